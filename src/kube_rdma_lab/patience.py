"""Decides when a wait is in vain: nothing new for too long, measured in this machine's own pace.

A wait asks again and again whether its condition holds. Meanwhile it gives Patience the facts that
it sees: events, states, the size of a log. Facts that were seen before are no news, so what fails
the same way endlessly, or swings to and fro, ends the wait too.

A starved or stopped machine delays the waiting process as well. So no more than MOST_BETWEEN_LOOKS
seconds of quiet are counted between two looks, however late the second one comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable

from kube_rdma_lab import pace

# The longest quiet of a healthy lab on the reference: the agent's round of repair takes 60 s.
QUIET_SECONDS = 90.0
# Beyond this a pace says more of its own moment than of the machine.
SLOWEST = 5.0
MOST_BETWEEN_LOOKS = 5.0  # seconds of quiet; looks are 2 s apart where the machine is not starved


class Patience:
    """A wait that is given up after too long a time without new facts."""

    def __init__(
        self,
        slowness: float,
        quiet: float = QUIET_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        measure: Callable[[], float] = pace.measure,
    ) -> None:
        """Start waiting; `slowness` is the machine's pace, `quiet` the seconds at pace 1."""
        self._slowness = min(max(1.0, slowness), SLOWEST)
        self._quiet = quiet
        self._clock = clock
        self._measure = measure
        self._seen: set[Hashable] = set()
        self._last = clock()
        self._quiet_so_far = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds without new facts after which the wait is given up."""
        return self._quiet * self._slowness

    def lost(self, facts: Iterable[Hashable]) -> bool:
        """Add the present facts; return whether nothing new came for too long."""
        now = self._clock()
        self._quiet_so_far += min(now - self._last, MOST_BETWEEN_LOOKS)
        self._last = now
        if new := set(facts) - self._seen:
            self._seen |= new
            self._quiet_so_far = 0.0
        if self._quiet_so_far < self.seconds:
            return False
        # It may have become slower since the lab was booted.
        self._slowness = max(self._slowness, min(self._measure(), SLOWEST))
        return self._quiet_so_far >= self.seconds
