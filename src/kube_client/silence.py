"""Limits the silence of a server in turns of this process, and not by the clock.

On a node with a tenth of a processor, a clock may run out before the process reads an answer that
has come. So a limit here ends in ticks, each of which needs a turn of the event loop. What came in
meanwhile is read before the last tick is counted. One timer covers most of the earlier ticks, so
that a waiting process is not woken each second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

TICK = 1.0  # seconds
TURNS = 5  # ticks at the end: more than what a new connection needs, its handshake included


class Silence:
    """A timeout for a silent server: ``async with Silence(30): await answer``.

    Its last TURNS seconds count only while this process runs: one that is starved or stopped waits
    for longer. `notice` is called after `notice_after` seconds of silence.
    """

    def __init__(
        self, seconds: float, notice: Callable[[], None] | None = None, notice_after: int = 0
    ) -> None:
        self._left = max(1, round(seconds / TICK))  # ticks
        self._notice = notice
        self._notice_at = self._left - notice_after
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._wait()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _wait(self) -> None:
        """Schedule the next tick; one timer spans the ticks between notice and last TURNS."""
        told = self._notice is None or self._left <= self._notice_at
        ticks = max(1, self._left - TURNS) if told else 1
        self._left -= ticks
        self._handle = self._loop.call_later(ticks * TICK, self._tick)

    def _tick(self) -> None:
        if self._notice and self._left == self._notice_at:
            self._notice()
        if self._left:
            self._wait()
        else:  # what the same turn has read comes to its reader first
            self._limit.reschedule(self._loop.time())
