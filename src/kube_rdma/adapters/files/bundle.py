"""A support bundle: an Observation as a file of JSON, for a doctor elsewhere.

`kube-rdma doctor --collect` writes it and `--bundle` reads it. What is in it is decided field by
field in model/doctor, so nothing comes along that nobody meant.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.model.device import PciAddress
from kube_rdma.model.doctor import VERSION, Observation

_LONGEST = 64 << 20  # bytes; a node with a thousand functions has one


def encode(seen: Observation) -> bytes:
    """The document, indented for people who look into it before they send it."""
    return msgspec.json.format(msgspec.json.encode(seen, enc_hook=_plain), indent=1) + b"\n"


def decode(data: bytes, where: str) -> Observation:
    """The Observation that was encoded so; raise Refused for anything else."""
    remedy = "Write one with kube-rdma doctor --collect FILE"
    try:
        version = decoded(data, _BundleHead, most=_LONGEST).document
        if version > VERSION:
            remedy = "Read it with the release that wrote it, or a newer one"
            raise Refused(f"the bundle has format {version}", remedy=remedy, where=where)
        return decoded(data, Observation, most=_LONGEST, hook=_of_text)
    except Undecodable as error:
        raise Refused(f"this is not a bundle ({error.why})", remedy=remedy, where=where) from None


def write(seen: Observation, path: Path) -> None:
    """Write a new file that only its owner may read; raise Refused."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(
            f"the bundle cannot be written ({error.strerror})",
            remedy="Name a new file in a folder that may be written to",
            where=str(path),
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode(seen))


def read(path: Path) -> Observation:
    """What the file holds; raise Refused."""
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST)
    except OSError as error:
        raise Refused(
            f"the bundle cannot be read ({error.strerror})",
            remedy="Name a file that kube-rdma doctor --collect has written",
            where=str(path),
        ) from error
    return decode(data, str(path))


class _BundleHead(msgspec.Struct):
    document: int


def _plain(value: object) -> object:
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"a bundle has no form for {type(value).__name__}")


def _of_text(kind: type, value: object) -> object:
    if kind is PciAddress:
        if not isinstance(value, str):
            raise ValueError(f"a PCI address is a text, and not of {type(value).__name__}")
        return PciAddress(value)
    raise NotImplementedError(f"a bundle has no form for {kind.__name__}")
