"""A fake log in place of lib/logs.py: it keeps lines, and a test can wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import structlog


class Recording:
    """A fake log that keeps its lines, for which a test can wait."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._written = asyncio.Event()

    def __call__(self, _logger: object, level: str, line: structlog.typing.EventDict) -> NoReturn:
        """Keep a log line, as a processor of structlog that passes nothing on."""
        self.lines.append({"level": level, **line})
        self._written.set()
        raise structlog.DropEvent

    @property
    def events(self) -> list[str]:
        """Return the event names of all lines."""
        return [line["event"] for line in self.lines]

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the lines that have this event name."""
        return [line for line in self.lines if line["event"] == event]

    async def wait_for(self, event: str) -> None:
        """Wait until a line with this event name is logged."""
        while event not in self.events:
            self._written.clear()
            await self._written.wait()


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the log lines of this process inside the block, at a program's default level."""
    recording = Recording()
    least = structlog.make_filtering_bound_logger("info")
    structlog.configure(processors=[recording], wrapper_class=least)
    try:
        yield recording
    finally:
        structlog.reset_defaults()
