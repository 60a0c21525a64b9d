"""OCI image layouts in a tar file: the chart as an artefact, the image for several architectures.

Formats: OCI image specification 1.1 (image-layout.md, image-index.md). kube_rdma_lab/build/oci.py
writes the image of one architecture; here such archives become one.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kube_base.frozen import Frozen

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


class Blob(Frozen):
    """Content of an OCI layout, which names it by its digest, with its media type."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        """Return the digest by which a layout names the bytes."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def descriptor(self) -> dict[str, Any]:
        """Return the descriptor by which other blobs name this one."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data)}


def json_blob(media_type: str, value: object) -> Blob:
    """Return a value as a blob of JSON, with equal bytes for equal values."""
    return Blob(media_type, as_json(value))


def as_json(value: object) -> bytes:
    """Encode a value as JSON such that equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def write_layout(target: Path, top: Blob, reference: str, blobs: Sequence[Blob]) -> None:
    """Write an OCI layout with all blobs, whose only entry is `top` under a full image name."""
    names = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [{**top.descriptor(), "annotations": names}],
    }
    files = {
        "index.json": as_json(index),
        "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
        **{f"blobs/{blob.digest.replace(':', '/')}": blob.data for blob in (top, *blobs)},
    }
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files, key=lambda name: (name.startswith("blobs/"), name)):
            info = tarfile.TarInfo(name)
            info.size = len(files[name])
            tar.addfile(info, io.BytesIO(files[name]))


def write_joined(target: Path, reference: str, archives: Sequence[Path]) -> None:
    """Join images of several architectures into one archive, from an archive for each."""
    entries: list[Mapping[str, Any]] = []
    blobs: dict[str, Blob] = {}
    for archive in archives:
        with tarfile.open(archive) as tar:
            (entry,) = json.loads(read_member(tar, "index.json"))["manifests"]
            entries.append({key: entry[key] for key in ("mediaType", "digest", "size", "platform")})
            for member in tar:
                if member.isfile() and member.name.startswith("blobs/"):
                    blobs[member.name] = Blob("", read_member(tar, member.name))
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}
    write_layout(target, json_blob(INDEX_TYPE, index), reference, tuple(blobs.values()))


def manifest_digest(archive: Path) -> str:
    """Return the manifest digest of the only image of an archive."""
    with tarfile.open(archive) as tar:
        (entry,) = json.loads(read_member(tar, "index.json"))["manifests"]
    return str(entry["digest"])


def read_member(tar: tarfile.TarFile, name: str) -> bytes:
    """Return the bytes of a tar's member."""
    file = tar.extractfile(name)
    assert file is not None, f"{name} is not a file"
    return file.read()
