"""Prints progress: a line per finished step, and on a terminal a live line of the running ones."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kube_rdma_lab.progress import Event, Phase

if TYPE_CHECKING:
    from rich.live import Live

MARKS = {Phase.DONE: "✓", Phase.CACHED: "·", Phase.AGAIN: "↻"}


class Printer:
    """A printer of build and boot steps to stderr; its context has a live line on a terminal."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._running: dict[str, None] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, color_system=None, highlight=False)
            self._live = Live(console=console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        """Print a step's event, and update the live line of running steps."""
        if event.phase == Phase.STARTED:
            self._running[event.step] = None
        else:
            if event.phase != Phase.AGAIN:
                self._running.pop(event.step, None)
            seconds = "cached" if event.phase == Phase.CACHED else f"{event.seconds:.1f} s"
            note = f"  {event.note}" if event.note else ""
            # On a terminal Rich's Live puts it above the line.
            print(f"  {MARKS[event.phase]} {event.step:<28} {seconds:>9}{note}", file=sys.stderr)
        if self._live:
            from rich.text import Text

            text = f"  … {', '.join(self._running)}" if self._running else ""
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
