"""Writes and reads support bundles: Observations as files, for `kube-rdma doctor` elsewhere.

`kube-rdma doctor --collect` writes the JSON of one node and `--bundle` reads it; `kube-rdma
bundle` writes a tar with such JSON of each node that answers. model/doctor decides field by field
what a bundle has.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.model.device import PciAddress
from kube_rdma.model.doctor import VERSION, NodeAnswer, Observation
from kube_rdma.model.finding import FieldPath, Finding, Severity

_SEVERITIES = {"refuse": Severity.ERROR, "warn": Severity.WARNING}
_WORDS: dict[bool, Literal["refuse", "warn"]] = {True: "refuse", False: "warn"}
_LONGEST = 64 << 20  # bytes; a node with a thousand functions has one


class _Problem(msgspec.Struct):
    """A problem of `kube-rdma status` in the form that bundles of format 1 have."""

    code: str
    about: str
    sentence: str
    remedy: str
    is_advice: bool = False


class _PodFinding(msgspec.Struct):
    """A finding about a pod in the form that bundles of format 1 have."""

    rule: str
    severity: Literal["refuse", "warn"]
    path: FieldPath
    problem: str
    remedy: str


class _Pod(msgspec.Struct):
    findings: tuple[_PodFinding, ...] | None = None


class _BundleHead(msgspec.Struct):
    document: int


class _Bundle(msgspec.Struct):
    """The fields of a format 1 bundle that have another form in an Observation."""

    problems: tuple[_Problem, ...] | None = None
    pod: _Pod | None = None


def encode(seen: Observation) -> bytes:
    """Return an Observation as indented JSON, for people who read it before they send it."""
    document = msgspec.to_builtins(seen, enc_hook=_plain)
    if seen.problems is not None:
        document["problems"] = [
            _Problem(one.code, one.subject, one.problem, one.remedy, not one.is_error)
            for one in seen.problems
        ]
    if seen.pod and seen.pod.findings is not None:
        document["pod"]["findings"] = [
            _PodFinding(one.code, _WORDS[one.is_error], one.path, one.problem, one.remedy)
            for one in seen.pod.findings
        ]
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode(data: bytes, where: str) -> Observation:
    """Return the Observation in a bundle's JSON; raise Refused for anything else."""
    remedy = "Write one with kube-rdma doctor --collect FILE"
    try:
        version = decoded(data, _BundleHead, most=_LONGEST).document
        if version > VERSION:
            remedy = "Read it with the release that wrote it, or a newer one"
            raise Refused(f"the bundle has format {version}", remedy=remedy, where=where)
        return decoded(_with_findings(data), Observation, most=_LONGEST, hook=_of_text)
    except Undecodable as error:
        raise Refused(f"this is not a bundle ({error.why})", remedy=remedy, where=where) from None


def _with_findings(data: bytes) -> bytes:
    """Return a bundle's JSON with Findings in the present format.

    Raise Undecodable for a text that cannot be read.
    """
    bundle = decoded(data, _Bundle, most=_LONGEST)
    document = decoded(data, dict[str, Any], most=_LONGEST)
    if bundle.problems is not None:
        severities = (Severity.ERROR, Severity.ADVICE)
        document["problems"] = [
            Finding.of(one.code, one.about, one.sentence, one.remedy, severities[one.is_advice])
            for one in bundle.problems
        ]
    if bundle.pod and bundle.pod.findings is not None:
        document["pod"]["findings"] = [
            Finding.of(one.rule, one.path, one.problem, one.remedy, _SEVERITIES[one.severity])
            for one in bundle.pod.findings
        ]
    return msgspec.json.encode(document)


def write(seen: Observation, path: Path) -> None:
    """Write an Observation to a new file that only its owner may read; raise as `created` does."""
    with created(path) as file:
        file.write(encode(seen))


def created(path: Path) -> BinaryIO:
    """Return a new open file that only its owner may read.

    Raise Refused when a file of the name exists, or none can be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(
            f"the bundle cannot be written ({error.strerror})",
            remedy="Name a new file in a folder that may be written to",
            where=str(path),
        ) from error
    return os.fdopen(descriptor, "wb")


def read(path: Path) -> Observation:
    """Return the Observation in a bundle file; raise Refused if it is unreadable or no bundle."""
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


# The bundle of a whole cluster: a tar with that of each node.

MOST_NODES = 10_000
MOST_BYTES = 8 << 20  # of one node; as many as doctor/agents takes
_UNSEEN = "unseen"
_NAME = re.compile(r"nodes/([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)\.json")
_REMEDY = "Write one with kube-rdma bundle FILE"


class _Unseen(msgspec.Struct):
    """The entry of a bundle for a node that did not answer, with the reason."""

    node: str
    why: str = ""


class _Silent(msgspec.Struct):
    """The member of a bundle that lists the nodes that did not answer."""

    nodes: tuple[_Unseen, ...] = ()


def write_cluster_bundle(answers: Iterable[NodeAnswer], path: Path) -> None:
    """Write the answers of all nodes to a new tar file; raise as `created` does."""
    answers = tuple(answers)
    with created(path) as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for answer in answers:
            if answer.seen is not None:
                _add(tar, f"nodes/{answer.node}.json", encode(answer.seen))
        unseen = tuple(_Unseen(one.node, one.why) for one in answers if one.seen is None)
        _add(tar, f"{_UNSEEN}.json", msgspec.json.encode(_Silent(unseen)))


def read_cluster_bundle(path: Path) -> tuple[NodeAnswer, ...]:
    """Return the nodes' answers in a bundle of the cluster; raise Refused for other files."""
    try:
        with tarfile.open(path, mode="r:gz") as tar:
            return tuple(_answers(tar, str(path)))
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
        why = str(error) or type(error).__name__
        raise Refused(
            f"the bundle of the cluster cannot be read ({why})", remedy=_REMEDY, where=str(path)
        ) from error


def _answers(tar: tarfile.TarFile, where: str) -> Iterator[NodeAnswer]:
    for number, member in enumerate(tar):
        match = _NAME.fullmatch(member.name)
        is_unseen = member.name == f"{_UNSEEN}.json"
        if not member.isreg() or not (match or is_unseen):
            raise Refused(f"{member.name[:60]!r} is no node", remedy=_REMEDY, where=where)
        if member.size > MOST_BYTES or number > MOST_NODES:
            raise Refused("it is too large for a bundle", remedy=_REMEDY, where=where)
        file = tar.extractfile(member)
        data = file.read(MOST_BYTES) if file else b""
        if match:
            yield NodeAnswer(match[1], decode(data, f"{where}: node {match[1]}"))
        else:
            yield from silent(data, where)


def silent(data: bytes, where: str) -> tuple[NodeAnswer, ...]:
    """Return the nodes that did not answer, from their file in the bundle.

    Raise Refused when it cannot be read.
    """
    try:
        unseen = decoded(data, _Silent, most=MOST_BYTES).nodes
    except Undecodable as error:
        raise Refused(f"{_UNSEEN}.json: {error.why}", remedy=_REMEDY, where=where) from None
    return tuple(NodeAnswer(one.node, why=one.why or "it did not answer") for one in unseen)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o600
    tar.addfile(member, io.BytesIO(data))
