"""A support bundle of a whole cluster: a tar with the bundle of each node, for a doctor elsewhere.

`kube-rdma bundle` writes it, `kube-rdma doctor --all-nodes --bundle` reads it. Nodes that did not
answer stand in a member of their own, with the reason. What comes from others is foreign: members
are few, small, plain files with the name of a node, and all else is refused.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.adapters.files import bundle
from kube_rdma.model.fleet import NodeAnswer

MOST_NODES = 10_000
MOST_BYTES = 8 << 20  # of one node; as many as doctor/agents takes
_UNSEEN = "unseen"
_NAME = re.compile(r"nodes/([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)\.json")
_REMEDY = "Write one with kube-rdma bundle FILE"


class _Unseen(msgspec.Struct):
    """A node that did not answer."""

    node: str
    why: str = ""


class _Silent(msgspec.Struct):
    """The nodes that did not answer."""

    nodes: tuple[_Unseen, ...] = ()


def write(answers: Iterable[NodeAnswer], path: Path) -> None:
    """Write a new file that only its owner may read; raise Refused."""
    answers = tuple(answers)
    with bundle.created(path) as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for answer in answers:
            if answer.seen is not None:
                _add(tar, f"nodes/{answer.node}.json", bundle.encode(answer.seen))
        unseen = tuple(_Unseen(one.node, one.why) for one in answers if one.seen is None)
        _add(tar, f"{_UNSEEN}.json", msgspec.json.encode(_Silent(unseen)))


def read(path: Path) -> tuple[NodeAnswer, ...]:
    """What each node answered; raise Refused for anything that `write` has not made."""
    try:
        with tarfile.open(path, mode="r:gz") as tar:
            return tuple(_answers(tar, str(path)))
    except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError) as error:
        why = str(error) or type(error).__name__
        raise Refused(
            f"the bundle of the cluster cannot be read ({why})",
            remedy=_REMEDY,
            where=str(path),
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
            yield NodeAnswer(match[1], bundle.decode(data, f"{where}: node {match[1]}"))
        else:
            yield from silent(data, where)


def silent(data: bytes, where: str) -> tuple[NodeAnswer, ...]:
    """The nodes that did not answer, of their member; raise Refused."""
    try:
        unseen = decoded(data, _Silent, most=MOST_BYTES).nodes
    except Undecodable as error:
        raise Refused(f"{_UNSEEN}.json: {error.why}", remedy=_REMEDY, where=where) from None
    return tuple(NodeAnswer(one.node, why=one.why or "it did not answer") for one in unseen)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o600
    tar.addfile(member, io.BytesIO(data))
