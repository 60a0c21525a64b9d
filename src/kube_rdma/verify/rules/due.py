"""When a BandwidthCheck is to be done: now, later, or not any more until somebody changes it."""

from __future__ import annotations

from datetime import datetime, timedelta

from kube_rdma.model.verify.bandwidth_check import BandwidthHistory

AGAIN = timedelta(minutes=5)  # after a run that something hindered: a missing right, no pod


def due(
    generation: int, every: int | None, history: BandwidthHistory | None, now: datetime
) -> datetime | None:
    """The time of the next run, which may have passed; None when there is none.

    A changed check is due at once, and so is one whose run was interrupted.
    """
    if history is None or history.generation != generation or history.ended is None:
        return now
    if history.refused:
        return None
    times = []
    try:
        if history.hindered:
            times.append(history.ended + AGAIN)
        if every is not None:
            times.append(max(history.ended, history.began + timedelta(seconds=every)))
    except OverflowError:  # no controller wrote such a time
        return now
    return min(times, default=None)
