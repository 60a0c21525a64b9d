"""One line for each thing worth knowing, to standard error: time, level, event, then facts.

logfmt rather than JSON: `kubectl logs` is read by people first, and every collector parses it.
Libraries that use the standard logging (grpclib, asyncio) come out in the same form.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import structlog

from kube_rdma.model.frozen import Frozen, field

_FIRST = ["timestamp", "level", "event"]


class LogLine(Frozen):
    """One line: its level (`info` or `warning`), the event and the facts."""

    level: str
    event: str
    facts: dict[str, object] = field(default_factory=dict)


def configure() -> None:
    """Send all logs of this process to standard error; call it once, before the first line."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    render = structlog.processors.LogfmtRenderer(key_order=_FIRST, drop_missing=True)
    structlog.configure(
        processors=[*shared, render],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING)


def write(lines: Iterable[LogLine]) -> None:
    """Log each line at its level."""
    log = structlog.get_logger()
    for line in lines:
        (log.info if line.level == "info" else log.warning)(line.event, **line.facts)


class Recording:
    """The log as a fake: lines are kept instead of written, and can be waited for."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._written = asyncio.Event()

    def __call__(self, _logger: object, level: str, line: structlog.typing.EventDict) -> NoReturn:
        """Keep a line; a processor of structlog that lets nothing through."""
        self.lines.append({"level": level, **line})
        self._written.set()
        raise structlog.DropEvent

    @property
    def events(self) -> list[str]:
        """The events of all lines."""
        return [line["event"] for line in self.lines]

    def of(self, event: str) -> list[dict[str, Any]]:
        """The lines with this event."""
        return [line for line in self.lines if line["event"] == event]

    async def wait_for(self, event: str, seconds: float = 30.0) -> None:
        """Wait until a line with this event was logged; TimeoutError when it is not."""
        async with asyncio.timeout(seconds):
            while event not in self.events:
                self._written.clear()
                await self._written.wait()


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record what this process logs inside the block."""
    recording = Recording()
    structlog.configure(processors=[recording])
    try:
        yield recording
    finally:
        structlog.reset_defaults()
