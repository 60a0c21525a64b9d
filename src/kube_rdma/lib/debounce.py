"""Makes one signal out of a burst of events: one card with its functions may cause a hundred.

A timer runs only while a burst does.
"""

from __future__ import annotations

import asyncio

from kube_base.backoff import has_happened

QUIET = 0.1  # seconds without an event that end a burst
LONGEST = 0.3  # seconds after which an endless burst is looked into all the same

# Seconds from the last look of a burst to one more: a GID table is rewritten by a worker of the
# kernel some time after the address that causes it was announced, and nothing announces that.
SETTLE = 1.0

EVENTS_A_SECOND = 50.0  # 100 kB of statuses


def apart(shortest: float, events: int) -> float:
    """Return the seconds to wait before the next write of statuses that agents watch.

    `events` is how many events the last write caused, `shortest` the least wait. A watch cannot
    leave out changes of a status: each change of a selected object is sent (apiserver,
    pkg/storage/cacher/cache_watcher.go, convertToWatchEvent).
    """
    return max(shortest, events / EVENTS_A_SECOND)


class Debounce:
    """One signal for each burst: call `touch` for each event; `wait` returns at the burst's end."""

    def __init__(self, quiet: float = QUIET, longest: float = LONGEST) -> None:
        self._quiet = quiet
        self._longest = longest
        self._over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0

    def touch(self) -> None:
        """Note an event.

        A burst ends `quiet` seconds after its last event, or `longest` after its first.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is None:
            self._deadline = now + self._longest
        else:
            self._timer.cancel()
        self._timer = loop.call_at(min(now + self._quiet, self._deadline), self._end)

    def compare(self, old: object, new: object) -> None:
        """Note an event if a value differs from the one before."""
        if old != new:
            self.touch()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of a burst, at most `seconds` (None: without limit).

        Return True when a burst ended, False when the time was over.
        """
        heard = await has_happened(self._over, seconds)
        self._over.clear()
        return heard

    def _end(self) -> None:
        self._timer = None
        self._over.set()
