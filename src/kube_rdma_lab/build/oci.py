"""Writes and names container images without a container engine: the OCI image layout as a tar file.

Formats: OCI image specification 1.1 (image-layout.md, manifest.md, config.md, layer.md). Equal
folders give equal bytes: entries are sorted and carry no times, so a digest tells the content. A
manifest.json in the tar lets older engines load the same file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from kube_base.errors import Refused

GZIP_LEVEL = 6
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
# Content that belongs to the machine, not to an image.
MACHINE_FOLDERS = ("dev", "proc", "sys", "run")


@dataclass(frozen=True, slots=True)
class Layer:
    """An image layer on disk: a compressed tar, and the two digests that an image needs."""

    blob: Path
    digest: str  # of the compressed file
    diff_id: str  # of the tar in it
    size: int  # compressed, in bytes


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """The configuration of a container image: command, environment, labels and architecture."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
    labels: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    architecture: str = "amd64"  # as Go calls it


@dataclass(frozen=True, slots=True)
class Written:
    """An image archive: its path, reference, digest, and size in bytes."""

    path: Path
    reference: str
    digest: str
    size: int


class _Digesting(io.RawIOBase):
    """A binary writer that also counts the bytes written and computes their SHA-256."""

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
    """Write a folder as an image layer and return that; the folder stands for the image's /.

    The content of MACHINE_FOLDERS is left out. `root_owned` gives every file the owner root and a
    readable mode, for what Debian did not install.
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
    """Write an image archive of `layers`, bottom first; `reference` is the full name."""
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
        "platform": {"os": "linux", "architecture": config.architecture},
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


def read_image(path: Path) -> Written:
    """Return reference, digest and size of an image archive.

    Users write one by `docker save`, `podman save` or `skopeo copy`. The digest is that of the
    whole file. The reference is the name under which containerd will know the image. Raise Refused
    for another file, or an image without a name.
    """
    try:
        with tarfile.open(path) as tar:
            reference = _reference(tar)
        with path.open("rb") as file:
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except (OSError, tarfile.TarError, ValueError) as error:
        raise Refused(
            f"it is not an image archive ({error})",
            remedy="Write one: docker save my-image:1 -o my-image.tar",
            where=str(path),
        ) from error
    if reference is None:
        raise Refused(
            "the image has no name",
            remedy="Save it by its name: docker save my-image:1 -o my-image.tar",
            where=str(path),
        )
    return Written(path, full_reference(reference), digest, path.stat().st_size)


def full_reference(name: str) -> str:
    """Return an image's name, with docker.io and `latest` added if registry or tag is missing."""
    registry, slash, rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not re.search(r"[.:]|^localhost$", registry):
        name = f"docker.io/{registry}/{rest}"
    return name if re.search(r"[:@][^/]*$", name) else f"{name}:latest"


def _reference(tar: tarfile.TarFile) -> str | None:
    """Return the first name of an image that an archive lists; None without one.

    Raise ValueError for an archive of other files.
    """
    names = set(tar.getnames())
    if "manifest.json" in names:
        for image in _read_json(tar, "manifest.json"):
            for tag in image.get("RepoTags") or ():
                return str(tag)
    if "index.json" not in names:
        raise ValueError("neither index.json nor manifest.json is in it")
    for described in _read_json(tar, "index.json").get("manifests", ()):
        if name := (described.get("annotations") or {}).get("io.containerd.image.name"):
            return str(name)
    return None


def _read_json(tar: tarfile.TarFile, name: str) -> Any:
    member = tar.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is not a file")
    return json.load(member)


def _config(layers: Sequence[Layer], config: ContainerConfig) -> dict[str, Any]:
    return {
        "architecture": config.architecture,
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
