"""Reports steps of the lab with their times, in the same form from every part.

The build reports in the caller's process, the supervisor over a pipe as JSON lines; both arrive
as Event values at one printer (printer.py).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import IO

from kube_base.errors import Broken, KubeError, Unavailable


class Phase(StrEnum):
    """The phase of a step of the lab's start; a CACHED one needed no work."""

    STARTED = "started"
    DONE = "done"
    CACHED = "cached"
    AGAIN = "again"  # it begins anew
    READY = "ready"  # of the whole lab: the supervisor needs no follower from here on
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Event:
    """A change of one step's phase; `note` says why it FAILED or begins AGAIN, or its version."""

    step: str
    phase: Phase
    seconds: float = 0.0
    note: str = ""


Report = Callable[[Event], None]


@contextlib.contextmanager
def step(report: Report, name: str) -> Iterator[None]:
    """Report a step as started and, unless it raises, as done with the seconds it took."""
    report(Event(name, Phase.STARTED))
    begin = time.monotonic()
    yield
    report(Event(name, Phase.DONE, time.monotonic() - begin))


class PipeReport:
    """A report that writes events as JSON lines to a pipe, for the follower of a supervisor."""

    def __init__(self, sink: IO[str]) -> None:
        self._sink = sink

    def __call__(self, event: Event) -> None:
        """Write one event to the pipe; a broken pipe is ignored, for the supervisor notices it."""
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(asdict(event)), file=self._sink, flush=True)


def follow(source: IO[str], report: Report) -> None:
    """Report a supervisor's events until the lab is ready.

    If the start failed, raise its error: Broken as Broken, any other as Unavailable. Raise
    Unavailable when the pipe closes earlier: the supervisor has ended.
    """
    for line in source:
        event = Event(**json.loads(line))
        if event.phase == Phase.READY:
            return
        if event.phase == Phase.FAILED:
            kinds: dict[str, type[KubeError]] = {"Broken": Broken}
            raise kinds.get(event.step, Unavailable)(event.note)
        report(event)
    raise Unavailable("the lab's supervisor ended before the lab was ready")
