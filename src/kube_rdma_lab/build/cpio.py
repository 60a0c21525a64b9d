"""Archives for the initramfs: the kernel's `newc` format.

Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel. The kernel
unpacks one archive after the other into one root, so a lab appends a small archive per node to
the shared one.
"""

from __future__ import annotations

import gzip
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ALIGNMENT = 512  # an archive must start at a multiple of 4; zeros between archives are skipped


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A file, folder or link of an archive; `mode` has type bits, `data` a content or target."""

    path: str
    mode: int
    data: bytes = b""


def file(path: str, data: bytes, mode: int = 0o644) -> ArchiveEntry:
    """Return an archive entry for a regular file owned by root."""
    return ArchiveEntry(path.strip("/"), stat.S_IFREG | mode, data)


def from_folder(folder: Path, prefix: str = "") -> list[ArchiveEntry]:
    """Return the entries of a folder, placed under `prefix` and sorted.

    Of the modes only the executable bit counts, as in git: the archive must not depend on umask.
    """
    entries = []
    for path in sorted(folder.rglob("*")):
        name = f"{prefix}/{path.relative_to(folder)}"
        if path.is_symlink():
            aim = str(path.readlink()).encode()
            entries.append(ArchiveEntry(name.strip("/"), stat.S_IFLNK | 0o777, aim))
        elif path.is_file():
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            entries.append(file(name, path.read_bytes(), mode))
        else:
            entries.append(ArchiveEntry(name.strip("/"), stat.S_IFDIR | 0o755))
    return entries


def archive(entries: Iterable[ArchiveEntry]) -> bytes:
    """Return a cpio archive of the entries, with folder entries for their missing parents."""
    out = bytearray()
    made: set[str] = set()
    number = 0
    for entry in entries:
        for missing in _parents(entry.path, made):
            number += 1
            _append(out, ArchiveEntry(missing, stat.S_IFDIR | 0o755), number)
        number += 1
        made.add(entry.path)
        _append(out, entry, number)
    _append(out, ArchiveEntry("TRAILER!!!", 0), 0)
    return _padded(bytes(out))


def compressed(plain: bytes) -> bytes:
    """Return an archive compressed lightly, since an emulated CPU unpacks it."""
    return _padded(gzip.compress(plain, compresslevel=1, mtime=0))


def _parents(path: str, made: set[str]) -> list[str]:
    parts = path.split("/")[:-1]
    folders = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    missing = [folder for folder in folders if folder not in made]
    made.update(missing)
    return missing


def _append(out: bytearray, entry: ArchiveEntry, number: int) -> None:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    # inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name size, check
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, 0, 0, len(name), 0)
    out += b"070701" + b"".join(b"%08X" % field for field in fields) + name
    out += bytes(-len(out) % 4)
    out += entry.data
    out += bytes(-len(out) % 4)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
