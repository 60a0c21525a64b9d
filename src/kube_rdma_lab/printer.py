"""How progress looks: a line per finished step, and on a terminal a live line of what runs now."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from kube_rdma_lab.progress import Event, Phase

MARKS = {Phase.DONE: "✓", Phase.CACHED: "·", Phase.AGAIN: "↻"}
CLEAR_LINE = "\r\x1b[K"


class Printer:
    """Prints events; use it as a context manager so that the live line is cleared at the end."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._running: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        self._clear()
        if event.phase == Phase.STARTED:
            self._running[event.step] = time.monotonic()
        else:
            if event.phase != Phase.AGAIN:
                self._running.pop(event.step, None)
            self._line(event)
        self._show_running()

    def _line(self, event: Event) -> None:
        seconds = "cached" if event.phase == Phase.CACHED else f"{event.seconds:.1f} s"
        note = f"  {event.note}" if event.note else ""
        print(f"  {MARKS[event.phase]} {event.step:<28} {seconds:>9}{note}", file=sys.stderr)

    def _show_running(self) -> None:
        if self._live and self._running:
            print("  … " + ", ".join(self._running), end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._live:
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
