"""A line on stderr that says what a command waits for; only people at a terminal get it.

It comes after two seconds, so that what is quick shows nothing, and vanishes at the end. Rich draws
it, and is loaded when it comes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import Lock, Timer
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from kube_base.plain_text import plain

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

AFTER_SECONDS = 2.0


class Later(Protocol):
    """What starts the line when its time has come, as threading.Timer does."""

    def start(self) -> None:
        """Begin to wait."""

    def cancel(self) -> None:
        """Wait no longer."""


def has_line() -> bool:
    """Whether stderr is a terminal on which a line can be taken back."""
    is_terminal = sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") != "dumb"


def _timer(seconds: float, begin: Callable[[], None]) -> Later:
    timer = Timer(seconds, begin)
    timer.daemon = True  # a command that ends early does not wait for it
    return timer


class ProgressLine:
    """The line while its block runs; `tell` changes what it says."""

    def __init__(
        self,
        sentence: str,
        timer: Callable[[float, Callable[[], None]], Later] = _timer,
        *,
        is_wanted: bool = True,
    ) -> None:
        self.is_shown = is_wanted and has_line()
        self._sentence = sentence
        self._lock = Lock()
        self._live: Live | None = None
        self._is_over = False
        self._later = timer(AFTER_SECONDS, self._begin)

    def __enter__(self) -> Self:
        """Show it when two seconds are over."""
        if self.is_shown:
            self._later.start()
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        """Take it back."""
        self._later.cancel()
        with self._lock:
            self._is_over = True
            if self._live is not None:
                self._live.stop()

    def tell(self, sentence: str) -> None:
        """Say this from now on."""
        with self._lock:
            self._sentence = sentence
            if self._live is not None:
                self._live.update(_spinner(sentence))

    def _begin(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._is_over:
                return
            console = Console(stderr=True, color_system=None)
            self._live = Live(
                _spinner(self._sentence),
                console=console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,  # what a command prints is no part of the line
                redirect_stderr=False,
            )
            self._live.start()
            console.show_cursor()  # a command that is killed leaves it as it was


def _spinner(sentence: str) -> Spinner:
    from rich.spinner import Spinner
    from rich.text import Text

    text = Text(plain(sentence), no_wrap=True, overflow="ellipsis")
    return Spinner("line", text)  # of ASCII alone
