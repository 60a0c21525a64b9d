"""Puts walls between the parts of a program: an unexpected failure ends one part, not all of them.

A program is a group of tasks, and an exception of one cancels the others. So each part runs in
`kept`, which logs a failure, counts it and starts the part again. Work of one caller runs in
`contained`, and work on one object of many in `ObjectWalls`. A program ends when somebody asks it
to, or when a part raises an error of the type `ends`. An example is a kubelet's folder that is
gone: the container has to be made anew. Adapters and programs use it alike; see
docs/decisions/0013-liveness.md.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import structlog

from kube_base.backoff import LONGEST, full_jitter
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_base.notices import Notices

failures: Counter[str] = Counter()
"""The number of failures of each part of this process, by its name, for the metrics."""

object_failures: Counter[str] = Counter()
"""The number of failures of work on objects in this process, by the objects' kind."""

MOST_FAILED = 1024  # objects of a kind that wait, the newest ones
_causes = Notices()  # by kind and name of an object

Part = Callable[[], Awaitable[None]]
T = TypeVar("T")

log = structlog.get_logger()


def start(
    tasks: asyncio.TaskGroup, parts: Mapping[str, Part], ends: type[KubeError] | None = None
) -> None:
    """Start parts of a program as tasks; `kept` runs each again after a failure."""
    for part, run in parts.items():
        tasks.create_task(kept(part, run, ends=ends))


async def kept(
    part: str,
    run: Part,
    *,
    ends: type[KubeError] | None = None,
    pause: Callable[[int], float] = full_jitter,
) -> None:
    """Run a part of a program again after each failure, until it returns or is cancelled.

    Raise only what is of the type `ends`. Failure n in a row, counted from 0, is followed by
    `pause(n)` seconds. A part that ran for longer than the longest pause begins to count anew.
    """
    notices, tries = Notices(), 0
    while True:
        began = time.monotonic()
        try:
            await run()
        except Exception as error:
            if ends and any(isinstance(leaf, ends) for leaf in _leaves(error)):
                raise
            _tell(part, error, notices)
        else:
            return
        tries = 0 if time.monotonic() - began > LONGEST else tries
        await asyncio.sleep(pause(tries))
        tries += 1


@contextmanager
def contained(part: str) -> Iterator[None]:
    """Log and count an exception of the block, then continue behind the block."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  that is what a wall is for
        _tell(part, error, Notices())


class _Failed(Frozen):
    times: int
    until: float  # of the clock; before it nothing is tried


class ObjectWalls:
    """A guard of work on objects of one kind: an object whose work failed waits before a retry."""

    def __init__(self, kind: str, pause: Callable[[int], float] = full_jitter) -> None:
        self._kind, self._pause = kind, pause
        self._failed: dict[Hashable, _Failed] = {}  # the newest last

    async def run(self, key: Hashable, work: Callable[[str], Awaitable[bool]]) -> bool:
        """Call `work("")` for an object and return its answer; return False while the object waits.

        `key` names the object; a key that has the state of the object, too, lets a changed object
        be tried at once. If the work fails, it is called again with the reason as text, to report
        it. Raise the work's own KubeError.
        """
        if (before := self._failed.get(key)) and time.monotonic() < before.until:
            return False
        try:
            answer = await work("")
        except KubeError:
            raise
        except Exception as error:  # noqa: BLE001  that is what a wall is for
            why = object_failed(self._kind, key, error)
        else:
            self._failed.pop(key, None)
            return answer
        times = before.times + 1 if before else 0
        self._failed.pop(key, None)
        self._failed[key] = _Failed(times, time.monotonic() + self._pause(times))
        if len(self._failed) > MOST_FAILED:
            del self._failed[next(iter(self._failed))]
        with contained(f"status of {self._kind}"):
            return await work(why)
        return False


def read_or_refusal(kind: str, name: str, read: Callable[[], T]) -> tuple[T | None, str]:
    """Return what `read` makes of an object, or None and why: a refusal, or a fault of ours."""
    try:
        return read(), ""
    except Refused as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001  of one object
        return None, object_failed(kind, name, error)


def object_failed(kind: str, name: object, error: Exception) -> str:
    """Count failed work on an object, log its cause once, and return a sentence for its author."""
    object_failures[kind] += 1
    cause = f"{type(error).__name__}: {error!s:.200}".rstrip(": .")
    if _causes.news((kind, str(name)), cause):
        log.error("object failed", kind=kind, object=str(name), exc_info=error)
    return f"kube-rdma cannot handle this {kind} ({cause}); its log says where it failed"


def _tell(part: str, error: Exception, notices: Notices) -> None:
    """Count an error of a part and log it: a KubeError as one line, any other with its traceback.

    A KubeError is logged only where `notices` do not have its sentence from the last failure.
    """
    failures[part] += 1
    count = failures[part]
    if all(isinstance(leaf, KubeError) for leaf in _leaves(error)):
        for why in notices.news(part, *map(str, _leaves(error))):
            log.warning("part of the program failed", part=part, failures=count, why=why)
    else:
        log.error("part of the program failed", part=part, failures=count, exc_info=error)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
