"""Who of several copies of a program leads: one at a time, by a Lease that each of them reads.

    Lease as read ─► observed ─► may_take ─► claim ─► written if nobody wrote it since ─► leads

As client-go's leaderelection has it. A copy counts a Lease's time on its own clock, from the moment
at which it saw the last change: the clocks of other nodes do not matter, only that they run equally
fast. A leader stops `deadline` after it *sent* the last renewal that succeeded, another takes over
`duration` after it *saw* that renewal, which is later: so no two lead at once.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.election import ElectionRecord, ElectionTiming


class ObservedLease(Frozen):
    """A Lease and when it was first seen like this, in seconds of this copy's own clock."""

    record: ElectionRecord | None
    since: float


def observed(
    before: ObservedLease | None, record: ElectionRecord | None, now: float
) -> ObservedLease:
    """Return the Lease as it is seen now; one that has not changed keeps its time."""
    unchanged = before is not None and before.record == record
    return before if before is not None and unchanged else ObservedLease(record, now)


def may_take(seen: ObservedLease, identity: str, now: float) -> bool:
    """Whether this copy may write the Lease: its own, nobody's, or one not renewed in time."""
    record = seen.record
    if record is None or record.holder in ("", identity):
        return True
    return now >= seen.since + record.duration


def claim(seen: ObservedLease, identity: str, timing: ElectionTiming, clock: str) -> ElectionRecord:
    """Return what this copy writes at `clock`, RFC 3339: a renewal, or that it leads now."""
    record = seen.record
    if record is not None and record.holder == identity:
        return ElectionRecord(identity, timing.duration, record.acquired, clock, record.transitions)
    transitions = 0 if record is None else record.transitions + 1
    return ElectionRecord(identity, timing.duration, clock, clock, transitions)


def released(record: ElectionRecord, clock: str) -> ElectionRecord:
    """Return what a leader writes that ends: nobody has to wait for it."""
    return ElectionRecord("", 1.0, clock, clock, record.transitions)
