"""The controller's side: whose right has ended, what becomes free, how full a pool is.

A node is fenced when it is gone (no Node object, or the out-of-service taint: whoever set it says
that nothing runs there) and when its lease was silent for T plus a margin. Both are measured by the
controller itself, from when it first saw them: a restart of the controller only waits longer. A
holder that never had a lease here is another release's, whose leases lie in its own namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

from kube_base.errors import Broken
from kube_base.frozen import Frozen
from kube_rdma.model.ipam import (
    Bits,
    Block,
    Board,
    NodeLease,
    NodeName,
    PoolName,
    Timing,
    Usage,
    Want,
)
from kube_rdma.rules.ipam.cells import Zone, mask, places

_NEAR_DRY = 0.9  # of a pool, from which on its status warns


class Sighting(Frozen):
    """A node lease as last seen, since when it is so, and since when its node is gone.

    `is_own`: there was a lease, so the node is one of this controller's.
    """

    lease: NodeLease | None
    since: float
    gone_since: float | None
    is_own: bool


class Watch(Frozen):
    """What the controller remembers between two looks; it begins empty with each process."""

    nodes: Mapping[NodeName, Sighting]
    wants: Mapping[tuple[PoolName, Want], float]


EMPTY = Watch({}, {})


def look(
    watch: Watch,
    leases: Mapping[NodeName, NodeLease],
    holders: frozenset[NodeName],
    serving: frozenset[NodeName],
    now: float,
) -> Watch:
    """The watch after a look; `serving` are nodes that exist without the out-of-service taint."""
    nodes = {}
    for node in sorted(holders | set(leases)):
        before = watch.nodes.get(node)
        lease = leases.get(node)
        since = before.since if before and before.lease == lease else now
        gone: float | None = None
        if node not in serving:
            gone = now
            if before and before.gone_since is not None:
                gone = before.gone_since
        is_own = lease is not None or bool(before and before.is_own)
        nodes[node] = Sighting(lease, since, gone, is_own)
    return replace(watch, nodes=nodes)


def ended(watch: Watch, timing: Timing, rest: float, now: float) -> tuple[NodeName, ...]:
    """Nodes to fence; `rest` is the longest rest of any pool, so that their addresses had it."""
    return tuple(
        sorted(
            node
            for node, seen in watch.nodes.items()
            if seen.is_own
            and seen.gone_since is not None
            and now - seen.gone_since >= rest
            and now - seen.since >= _silence(seen.lease, timing)
            and not (seen.lease and seen.lease.fenced)
        )
    )


def strangers(watch: Watch) -> tuple[NodeName, ...]:
    """Nodes that are gone and hold addresses, and never had a lease here."""
    return tuple(
        node
        for node, seen in watch.nodes.items()
        if not seen.is_own and seen.gone_since is not None
    )


def reclaimed(block: Block, node: NodeName) -> Block | None:
    """The block without what `node` held; None: it holds nothing there."""
    left = tuple(holding for holding in block.holdings if holding.node != node)
    if left == block.holdings:
        return None
    return replace(block, holdings=left, edition=block.edition + 1)


def is_empty(block: Block) -> bool:
    """Its object says nothing more than its absence would."""
    return not block.holdings and not block.pins


def stale_wants(
    watch: Watch, boards: Iterable[Board], timing: Timing, now: float
) -> tuple[Watch, tuple[Board, ...]]:
    """Boards without wants that stood far longer than a request waits: their node forgot them."""
    wants = {}
    changed = []
    for board in boards:
        left = []
        for want in board.wants:
            since = watch.wants.get((board.pool, want), now)
            wants[board.pool, want] = since
            if now - since < 6 * timing.patience:
                left.append(want)
        if len(left) != len(board.wants):
            changed.append(replace(board, wants=tuple(left)))
    return replace(watch, wants=wants), tuple(changed)


def usage(zones: Iterable[Zone], blocks: Iterable[Block]) -> tuple[Usage, ...]:
    """How full each zone of a pool is; counted over blocks, never over addresses."""
    blocks = tuple(blocks)
    usages = []
    for zone in zones:
        held, nodes = 0, set()
        for block in blocks:
            given = mask(zone, block.cell)
            for holding in block.holdings if given else ():
                if bits := holding.bits & given:
                    held += bits.bit_count()
                    nodes.add(holding.node)
        usages.append(Usage(zone.pool, zone.family, zone.rail, zone.size, held, len(nodes)))
    return tuple(usages)


def near_dry(full: Usage) -> str:
    """A warning for a pool that is nearly full; empty where it is not."""
    if full.held < _NEAR_DRY * full.size:
        return ""
    rail = "" if full.rail is None else f" of rail {full.rail}"
    return (
        f"{full.held} of {full.size} IPv{full.family} addresses{rail} are held by "
        f"{full.nodes} nodes: add a range before the pool is full"
    )


def conflicts(block: Block) -> tuple[Broken, ...]:
    """What kube-rdma never writes: addresses with two holders, or places that are none."""
    problems = []
    for first, second in combinations(block.holdings, 2):
        if both := first.bits & second.bits:
            problems.append(
                Broken(
                    f"IPBlock {block.cell.name}, spec.holdings: {_listed(block, Bits(both))} held "
                    f"by node {first.node} and node {second.node}; take it from the one that has "
                    "no pod with it"
                )
            )
    return tuple(problems)


def outside(block: Block, zones: Iterable[Zone]) -> tuple[Broken, ...]:
    """Held addresses that no pool gives any more: it was shrunk, or the object edited by hand."""
    given = 0
    for zone in zones:
        given |= mask(zone, block.cell)
    return tuple(
        Broken(
            f"IPBlock {block.cell.name}, spec.holdings: {_listed(block, Bits(bits))} held by node "
            f"{holding.node}, but no IPPool of network {block.cell.network} gives it"
        )
        for holding in block.holdings
        if (bits := holding.bits & ~given)
    )


def _silence(lease: NodeLease | None, timing: Timing) -> float:
    """How long a lease must be unchanged; its own T counts where it is longer than `timing`'s."""
    return max(timing.contact, lease.duration if lease else 0.0) + timing.margin


def _listed(block: Block, bits: Bits) -> str:
    """The addresses of a set, the first few by name."""
    addresses = [str(block.cell.address(place)) for place in places(bits)]
    more = f" and {len(addresses) - 3} more" if len(addresses) > 3 else ""
    return f"{', '.join(addresses[:3])}{more} {'are' if len(addresses) > 1 else 'is'}"
