"""The status of an IPPool: how full it is, which nodes lack addresses, what is wrong.

Nodes write their `wants` (a BorrowQueue of model/ipam), the controller all the rest; each replaces
the whole status by compare-and-swap. Numbers of addresses end at the largest whole number that JSON
clients agree on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from kube_base.frozen import Frozen, replace
from kube_rdma.lib.text.ip_words import address as read_address
from kube_rdma.model.conditions import (
    NOT_OBSERVED,
    Condition,
    Sentence,
    SparsePart,
    StatusPart,
    Word,
    condition,
    cut,
    observed,
    stalled,
)
from kube_rdma.model.ipam import (
    BorrowQueue,
    BorrowRequest,
    Family,
    IPPool,
    NodeName,
    PoolName,
    Usage,
)
from kube_rdma.model.ipam import Version as ObjectVersion

MOST = 2**53 - 1  # a /64 has more; then the number means: at least so many
MOST_USAGES = 2 * 1025  # families and rails
MOST_WANTS = 16_384  # what an object has room for
MOST_CONFLICTS = 64  # that are written; earlier releases wrote all
LongText = Annotated[str, Meta(max_length=4096)]  # 64 subnets
FamilyName = Literal["IPv4", "IPv6"]


class UsageEntry(SparsePart, kw_only=True):
    """Addresses of one family, for one rail or for all NICs without one of their own."""

    family: FamilyName
    """family is the family of the addresses: IPv4 or IPv6."""
    rail: int | None = None
    """rail is the rail whose NICs get these addresses. Left out: NICs whose rail has no range of
    its own.
    """
    size: int
    """size is the number of addresses that pods can get, without excluded and reserved ones; with
    perNode, of all addresses of the slices. 9007199254740991 means this many or more.
    """
    held: int
    """held is the number of addresses that nodes hold: for pods, resting, or in advance."""
    free: int
    """free is the number of addresses that no node holds."""
    nodes: int
    """nodes is the number of nodes that hold addresses."""


class WantEntry(SparsePart, kw_only=True):
    """A node that cannot serve a pod, and asks the others to give back."""

    node: Word
    """node is the node that lacks addresses for a pod."""
    family: FamilyName
    """family is the family of the addresses that the node lacks: IPv4 or IPv6."""
    rail: int | None = None
    """rail is the rail that the addresses are for. Left out: NICs whose rail has no range of its
    own.
    """
    count: int
    """count is the number of addresses that the node lacks."""
    address: Word | None = None
    """address is the certain address that a pod waits for. Left out: any address will do."""

    def __post_init__(self) -> None:
        """ValueError when what was read is no address."""
        if self.address is not None:
            read_address(self.address)


class IPPoolStatus(StatusPart):
    """The whole status; nodes write `wants`, the controller all the rest."""

    observed_generation: int = NOT_OBSERVED
    """observedGeneration is metadata.generation of the pool that this status is about. -1: no
    controller has looked at the pool.
    """
    ranges: LongText = ""
    """ranges is the list of the pool's subnets as one text, for kubectl get."""
    used: Word = ""
    """used is the number of addresses that nodes hold, as a text for kubectl get. With two families
    it has both numbers. Example: 12 v4, 8 v6.
    """
    free: Word = ""
    """free is the number of addresses that no node holds, as a text for kubectl get. With two
    families it has both numbers. Example: 12 v4, 8 v6.
    """
    usage: Annotated[tuple[UsageEntry, ...], Meta(max_length=MOST_USAGES)] = ()
    """usage says how full the pool is, in one entry for each address family and rail."""
    wants: Annotated[tuple[WantEntry, ...], Meta(max_length=MOST_WANTS)] = ()
    """wants are the requests of nodes that lack addresses for pods. Nodes with spare addresses give
    them back. A node removes its entries when it no longer waits.
    """
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16)] = ()
    """conditions are Ready and NearlyFull. Ready: the pool can be used, and no address has two
    holders. NearlyFull: nodes hold at least 90 percent of the addresses of a family and rail. A
    pool that cannot be used as it is written has Stalled too.
    """
    conflicts: Annotated[tuple[Sentence, ...], Meta(max_length=16 * MOST_CONFLICTS)] = ()
    """conflicts are sentences about addresses that two nodes hold by their IPBlocks, and about
    IPBlocks that cannot be read: until they can, usage stays as it was. Empty: there are none.
    """


class PoolFindings(Frozen):
    """What the controller found out about one pool.

    `generation` is that of the object it looked at. `broken` says why the pool cannot be used at
    all, `scarce` which parts are nearly full, `conflicts` which addresses two nodes hold, and
    which IPBlocks of its network cannot be read.
    """

    generation: int
    usages: Sequence[Usage] = ()
    broken: str = ""
    scarce: Sequence[str] = ()
    conflicts: Sequence[str] = ()


def borrow_queue(
    pool: PoolName, status: IPPoolStatus | None, version: ObjectVersion
) -> BorrowQueue:
    """The borrow queue that a pool's status holds."""
    requests = tuple(
        BorrowRequest(
            NodeName(each.node),
            _family(each.family),
            each.rail,
            each.count,
            read_address(each.address) if each.address else None,
        )
        for each in (status.wants if status else ())
    )
    return BorrowQueue(pool, requests, version)


def with_wants(status: IPPoolStatus | None, requests: Iterable[BorrowRequest]) -> IPPoolStatus:
    """The status with these requests as its `wants`, everything else as it was."""
    entries = tuple(
        WantEntry(
            node=each.node,
            family=_name(each.family),
            rail=each.rail,
            count=each.count,
            address=str(each.address) if each.address else None,
        )
        for each in requests
    )
    return replace(status or IPPoolStatus(), wants=entries)


def pool_status(
    old: IPPoolStatus | None, pool: IPPool | None, findings: PoolFindings, now: str
) -> IPPoolStatus:
    """The status that says `findings`; wants stay. `now` is a time as in RFC 3339, for changes.

    Without `pool` its spec is not understood, as `findings` say.
    """
    before = old or IPPoolStatus()
    usage = tuple(
        UsageEntry(
            family=_name(each.family),
            rail=each.rail,
            size=min(each.size, MOST),
            held=min(each.held, MOST),
            free=min(each.free, MOST),
            nodes=each.nodes,
        )
        for each in findings.usages
    )
    return replace(
        before,
        observed_generation=findings.generation,
        ranges=cut(", ".join(str(each.subnet) for each in (pool.ranges if pool else ())), 4096),
        used=counted((each.family, each.held) for each in findings.usages),
        free=counted((each.family, each.free) for each in findings.usages),
        usage=usage,
        conditions=observed(_conditions(before.conditions, findings, now), findings.generation),
        conflicts=tuple(cut(each) for each in findings.conflicts[:MOST_CONFLICTS]),
    )


def counted(parts: Iterable[tuple[Family, int]]) -> str:
    """Numbers of addresses, summed by family: ``12``, or ``12 v4, 8 v6``."""
    sums: dict[Family, int] = {}
    for family, count in parts:
        sums[family] = sums.get(family, 0) + count
    if len(sums) == 1:
        return "".join(_short(count) for count in sums.values())
    return ", ".join(f"{_short(count)} v{family}" for family, count in sorted(sums.items()))


def _short(count: int) -> str:
    return str(count) if count < 10**9 else f"{count:.1e}".replace("e+", "e")


def _conditions(
    old: tuple[Condition, ...], findings: PoolFindings, now: str
) -> tuple[Condition, ...]:
    """Ready and NearlyFull; Stalled where only another spec helps."""
    ready = ("Usable", "Nodes give addresses of it.")
    if findings.broken:
        ready = ("Refused", findings.broken)
    elif findings.conflicts:
        ready = ("Conflict", findings.conflicts[0])
    full = ("Room", "There is room.")
    if findings.scarce:
        full = ("Scarce", " ".join(f"{each}." for each in findings.scarce))
    usable = not (findings.broken or findings.conflicts)
    return (
        condition(old, now, "Ready", usable, ready),
        condition(old, now, "NearlyFull", bool(findings.scarce), full),
        *stalled(old, now, ready if findings.broken else None),
    )


def _family(name: FamilyName) -> Family:
    return Family.V4 if name == "IPv4" else Family.V6


def _name(family: Family) -> FamilyName:
    return "IPv4" if family is Family.V4 else "IPv6"
