"""The node lease: who may grant for a node, for how long, and how that right is taken away.

A node grants for T seconds after a renewal that it began and that succeeded, by its own clock. The
controller that has seen no renewal for T plus a margin, by its own clock, fences: it writes the
lease with the version it knows, so that a renewal that came in between makes it fail, and the
node's next renewal fails after it. No two clocks are ever compared.
"""

from __future__ import annotations

from dataclasses import replace

from kube_base.errors import Broken
from kube_rdma.model.ipam import BootId, JournalId, NodeLease, NodeName, Timing


def renewal(lease: NodeLease) -> NodeLease:
    """What a node writes to keep its right."""
    return replace(lease, beat=lease.beat + 1)


def is_ours(lease: NodeLease | None, journal: JournalId) -> bool:
    """It is still this journal's, so the right was never interrupted."""
    return lease is not None and lease.journal == journal and not lease.fenced


def is_back(last: NodeLease, current: NodeLease | None, *, has_right: bool) -> bool:
    """The store or this machine went back to an earlier hour; `last` is what this process wrote.

    One write may be unknown whose answer was lost. Nobody takes a right away before it has ended,
    and whoever does raises the beat.
    """
    if current and is_ours(current, last.journal):
        return current.beat not in (last.beat, last.beat + 1)
    return has_right or (current is not None and current.beat < last.beat)


def entry(
    mine: NodeLease, lease: NodeLease | None, unchanged: float, timing: Timing, rest: float
) -> NodeLease | float:
    """What a node writes to get its right, or how many seconds it has to wait before it may.

    `mine` says who asks; `lease` is what is there, seen unchanged for `unchanged` seconds; `rest`
    is the longest rest of any pool. Another journal's right must have ended, and the addresses of
    its pods must have rested. Raises Broken where the journal was lost while its pods may live.
    """
    if lease is None:
        return replace(mine, beat=1)
    taken = replace(mine, beat=lease.beat + 1, version=lease.version)
    if lease.journal == mine.journal:
        return taken
    if lease.boot == mine.boot:
        raise Broken(
            f"the IPAM journal of node {mine.node} is new, but the node has not been restarted "
            "since the old one was in use: pods may live whose addresses are no longer known; "
            "drain and restart the node"
        )
    ended = 0.0 if lease.fenced else max(rest, lease.duration + timing.margin) - unchanged
    return ended if ended > 0 else taken


def fence(node: NodeName, lease: NodeLease | None) -> NodeLease:
    """What the controller writes to take the right away; a lease that is missing is made."""
    if lease is None:
        return NodeLease(node, JournalId(""), BootId(""), beat=1, fenced=True)
    return replace(lease, beat=lease.beat + 1, fenced=True)
