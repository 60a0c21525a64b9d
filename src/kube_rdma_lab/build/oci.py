"""Writes container images without a container engine: the OCI image layout as one tar file.

Formats: OCI image specification 1.1 (image-layout.md, manifest.md, config.md, layer.md). Equal
folders give equal bytes: entries are sorted and carry no times, so a digest tells the content.
A manifest.json beside it lets older engines load the same file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

GZIP_LEVEL = 6
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
# Content that belongs to the machine, not to an image.
MACHINE_FOLDERS = ("dev", "proc", "sys", "run")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer on disk: a compressed tar and the two digests by which an image names it."""

    blob: Path
    digest: str  # of the compressed file
    diff_id: str  # of the tar in it
    size: int  # compressed, in bytes


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """How a container of the image starts, and what its labels say."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
    labels: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"


@dataclass(frozen=True, slots=True)
class Written:
    """An image file: where it lies, its size in bytes, and the digest of its manifest."""

    path: Path
    reference: str
    digest: str
    size: int


class _Digesting(io.RawIOBase):
    """Passes bytes on and digests them on the way."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self.size += len(data)
        self._sink.write(data)
        return len(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self.sha256.hexdigest()}"


def write_layer(folder: Path, blob: Path, *, root_owned: bool = False) -> Layer:
    """Write the content of a folder as a layer; its paths are those inside the image.

    `root_owned` gives every file to root and readable modes, for what was not installed by
    Debian. Returns the digests.
    """
    with blob.open("wb") as file:
        packed = _Digesting(file)
        with gzip.GzipFile("", "wb", GZIP_LEVEL, packed, mtime=0) as zipped:
            plain = _Digesting(zipped)  # type: ignore[arg-type]
            with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                for path in _sorted(folder):
                    _add(tar, folder, path, root_owned=root_owned)
    return Layer(blob, packed.digest, plain.digest, packed.size)


def _sorted(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink() and path.name not in MACHINE_FOLDERS:
            yield from _inside(path)


def _inside(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _inside(path)


def _add(tar: tarfile.TarFile, folder: Path, path: Path, *, root_owned: bool) -> None:
    info = tar.gettarinfo(path, str(path.relative_to(folder)))
    info.mtime = 0
    info.uname = info.gname = ""
    if root_owned:
        info.uid = info.gid = 0
        runs = info.isdir() or info.mode & stat.S_IXUSR
        info.mode = 0o755 if runs else 0o644
    if info.isreg():
        with path.open("rb") as file:
            tar.addfile(info, file)
    else:
        tar.addfile(info)


def write_image(
    target: Path, reference: str, layers: Sequence[Layer], config: ContainerConfig
) -> Written:
    """Write an image of `layers`, bottom first, as a tar file; `reference` is its full name."""
    config_blob = _json(_config(layers, config))
    manifest = _json({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _descriptor(CONFIG_TYPE, config_blob),
        "layers": [
            {"mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.size}
            for layer in layers
        ],
    })  # fmt: skip
    described = {
        **_descriptor(MANIFEST_TYPE, manifest),
        "platform": {"os": "linux", "architecture": "amd64"},
        "annotations": {
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
        },
    }
    index = _json({"schemaVersion": 2, "manifests": [described]})
    older = _json([{
        "Config": _blob_path(_digest(config_blob)),
        "RepoTags": [reference],
        "Layers": [_blob_path(layer.digest) for layer in layers],
    }])  # fmt: skip
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        _add_bytes(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add_bytes(tar, "index.json", index)
        _add_bytes(tar, "manifest.json", older)
        for blob in (manifest, config_blob):
            _add_bytes(tar, _blob_path(_digest(blob)), blob)
        for layer in _once(layers):
            info = tarfile.TarInfo(_blob_path(layer.digest))
            info.size = layer.size
            with layer.blob.open("rb") as file:
                tar.addfile(info, file)
    return Written(target, reference, _digest(manifest), target.stat().st_size)


def _config(layers: Sequence[Layer], config: ContainerConfig) -> dict[str, Any]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": "0:0",
            "Env": list(config.env),
            "Entrypoint": list(config.entrypoint),
            "Cmd": list(config.cmd),
            "WorkingDir": config.working_dir,
            "Labels": dict(config.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }


def _once(layers: Iterable[Layer]) -> Iterable[Layer]:
    return {layer.digest: layer for layer in layers}.values()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
