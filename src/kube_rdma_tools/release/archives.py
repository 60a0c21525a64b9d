"""Archives whose bytes follow from their content: sorted, owned by root, of one time.

The chart, the licences, the kubectl plugin and the OLM bundle are such archives.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen

GZIP_LEVEL = 6


class ArchivedFile(Frozen):
    """A file for an archive: its bytes, and whether it is executable."""

    data: bytes
    runs: bool = False


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack a tar, plain or by gzip, into a folder; raise Unavailable if tar fails."""
    words: list[str | Path] = ["tar", "--extract", "--directory", folder, "--numeric-owner"]
    if archive.startswith(b"\x1f\x8b"):
        words.append("--gzip")
    done = subprocess.run(words, input=archive, capture_output=True, check=False)
    if done.returncode:
        raise Unavailable(f"tar failed: {done.stderr.decode(errors='replace').strip()}")


def write_tar_gz(target: Path, files: Mapping[str, ArchivedFile], epoch: int) -> None:
    """Write files by their path as a tar.gz of regular files alone, all of the time `epoch`.

    krew unpacks nothing but files and folders (krew, internal/download/downloader.go).
    """
    with (
        target.open("wb") as sink,
        gzip.GzipFile("", "wb", GZIP_LEVEL, sink, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            file = files[name]
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(file.data), epoch
            info.mode = 0o755 if file.runs else 0o644
            tar.addfile(info, io.BytesIO(file.data))
