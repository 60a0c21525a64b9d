"""Limits the silence of a server in turns of this process, and not by the clock.

On a node with a tenth of a processor, a clock runs out while the answer lies in the socket: the
process had no turn to read it. So a limit here is a number of ticks, each of which needs a turn of
the event loop, and what came in meanwhile is read before the last one is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

TICK = 1.0  # seconds
_MOST = 30  # ticks of one silence: a watch is silent for minutes, and an idle process sleeps


class Silence:
    """``async with Silence(30): await answer``: TimeoutError after 30 seconds with turns.

    A dead server costs as many seconds where the process has its turns, and more where it is
    starved or stopped. `notice` is called after `notice_after` seconds, if they come to pass.
    """

    def __init__(
        self, seconds: float, notice: Callable[[], None] | None = None, notice_after: int = 0
    ) -> None:
        self._seconds = max(TICK, seconds / _MOST)  # of a tick
        self._left = max(1, round(seconds / self._seconds))
        self._notice = notice
        self._notice_at = self._left - max(1, round(notice_after / self._seconds))
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(self._seconds, self._tick)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _tick(self) -> None:
        self._left -= 1
        if self._notice and self._left == self._notice_at:
            self._notice()
        if self._left:
            self._handle = self._loop.call_later(self._seconds, self._tick)
        else:  # what the same turn has read comes to its reader first
            self._limit.reschedule(self._loop.time())
