"""The node lease: who may grant for a node, for how long, and how that right is revoked.

A node grants for T seconds after a renewal that it began and that succeeded, by its own clock. The
controller that has seen no renewal for T plus a margin, by its own clock, fences: it writes the
lease with the version it knows, so that a renewal that came in between makes it fail, and the
node's next renewal fails after it. No two clocks are ever compared.
"""

from __future__ import annotations

from kube_base.errors import Broken
from kube_base.frozen import replace
from kube_rdma.model.ipam import BootId, JournalId, NodeLease, NodeName, Timing


def renewal(lease: NodeLease) -> NodeLease:
    """The lease that a node writes to keep its right."""
    return replace(lease, heartbeat=lease.heartbeat + 1)


def is_ours(lease: NodeLease | None, journal: JournalId) -> bool:
    """Whether the lease is still this journal's, so that the right was never interrupted."""
    return lease is not None and lease.journal == journal and not lease.fenced


def is_lease_rollback(last: NodeLease, current: NodeLease | None, *, has_right: bool) -> bool:
    """Whether the store or this machine went back; `last` is what this process wrote last.

    One later write may have lost its answer. Nobody revokes a right before it has ended,
    and to revoke it raises the heartbeat.
    """
    if current and is_ours(current, last.journal):
        return current.heartbeat not in (last.heartbeat, last.heartbeat + 1)
    return has_right or (current is not None and current.heartbeat < last.heartbeat)


def acquisition(
    identity: NodeLease, lease: NodeLease | None, unchanged: float, timing: Timing, cooldown: float
) -> NodeLease | float:
    """The lease that a node writes to get its right, or how many seconds it has to wait first.

    `identity` says which node and journal; `lease` is the stored one, unchanged for `unchanged`
    seconds; `cooldown` is the longest of any pool. Another journal's right must have ended, and so
    must the cool-down of its pods' addresses. Raises Broken where the journal was lost while its
    pods may live.
    """
    if lease is None:
        return replace(identity, heartbeat=1)
    taken = replace(identity, heartbeat=lease.heartbeat + 1, version=lease.version)
    if lease.journal == identity.journal:
        return taken
    if lease.boot == identity.boot:
        raise Broken(
            f"the IPAM journal of node {identity.node} is new, but the node has not been restarted "
            "since the old one was in use: running pods may have addresses that it lacks; "
            "drain and restart the node"
        )
    ended = 0.0 if lease.fenced else max(cooldown, lease.duration + timing.margin) - unchanged
    return ended if ended > 0 else taken


def fence(node: NodeName, lease: NodeLease | None) -> NodeLease:
    """The lease that the controller writes to revoke the right, also where there is none."""
    if lease is None:
        return NodeLease(node, JournalId(""), BootId(""), heartbeat=1, fenced=True)
    return replace(lease, heartbeat=lease.heartbeat + 1, fenced=True)
