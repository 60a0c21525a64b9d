"""Writes the stacks of threads, then of tasks, to standard error when SIGUSR1 comes.

`kill -USR1` of a process that hangs or is slow needs no port and ends nothing. The threads are
written by faulthandler, in C and at once, whatever the loop does. The tasks of asyncio come when
the loop has its next turn; where they do not come, the loop is what hangs.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

_STDERR = 2
_MOST = 1 << 16  # characters of all tasks


def register() -> None:
    """Have SIGUSR1 write the stacks of all threads to standard error.

    Call this before all else, for without a handler the signal ends the process.
    """
    if not hasattr(signal, "SIGUSR1"):  # on Windows, where some commands run
        return
    signal.signal(signal.SIGUSR1, lambda *_: None)  # to which faulthandler hands on
    faulthandler.register(signal.SIGUSR1, _STDERR, chain=True)


def with_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Have SIGUSR1 also write the stacks of the tasks of an event loop."""
    loop.add_signal_handler(signal.SIGUSR1, _write, loop)
    # asyncio has replaced faulthandler's handler. In this order the signal always has a handler.
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.register(signal.SIGUSR1, _STDERR, chain=True)


def _write(loop: asyncio.AbstractEventLoop) -> None:
    text = of_tasks(loop)
    cut = "\n…\n" if len(text) > _MOST else ""
    print(f"{text[:_MOST]}{cut}", file=sys.stderr, flush=True)


def of_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return the stacks of all tasks as text, outermost frame first; equal stacks are counted."""
    import asyncio

    stacks = Counter("\n".join(map(_line, _frames(task))) for task in asyncio.all_tasks(loop))
    return "\n\n".join(f"Tasks: {count}\n{stack}" for stack, count in stacks.most_common())


def _line(frame: FrameType) -> str:
    code = frame.f_code
    return f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_qualname}'


def _frames(task: asyncio.Task[object]) -> Iterator[FrameType]:
    """Yield the frames of a task and of all that it awaits, outermost first.

    Task.get_stack has only the first of them.
    """
    awaited: object = task.get_coro()
    while awaited is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(awaited, f"{kind}_frame")), "")
        frame = getattr(awaited, f"{kind}_frame", None)
        if frame is None:
            return
        yield frame
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
