"""Walls between the parts of a program: what one did not expect ends that one, not all of them.

A program is a group of tasks, and an exception of one cancels the others. So every part runs in
`kept`, which logs a failure, counts it and starts the part again; work of one caller runs in
`contained`. Only two things end a program: somebody asks it to end, or a part raises what it says
is the end (the kubelet's folder is gone, so the container has to be made anew). For adapters and
programs alike; docs/decisions/0065-bulkheads.md.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog

from kube_base.backoff import LONGEST, full_jitter
from kube_base.errors import KubeError
from kube_base.notices import Notices

failures: Counter[str] = Counter()
"""How often each part of this process has failed, by its name; metrics tell it."""

Part = Callable[[], Awaitable[None]]

log = structlog.get_logger()


def start(
    tasks: asyncio.TaskGroup, parts: Mapping[str, Part], ends: type[KubeError] | None = None
) -> None:
    """Start parts, each `kept` by itself."""
    for part, run in parts.items():
        tasks.create_task(kept(part, run, ends=ends))


async def kept(
    part: str,
    run: Part,
    *,
    ends: type[KubeError] | None = None,
    pause: Callable[[int], float] = full_jitter,
) -> None:
    """Run a part until it returns or is cancelled, and again after each failure.

    Raise only what is of the type `ends`. The n-th failure in a row waits `pause(n)` seconds; a
    part that ran for longer than the longest pause begins to count anew.
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
    """Log and count an exception of the block, and go on behind it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  that is what a wall is for
        _tell(part, error, Notices())


def _tell(part: str, error: Exception, notices: Notices) -> None:
    """What the product raises on purpose is one line while it stands; all else shows its cause."""
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
