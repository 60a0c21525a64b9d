"""Runs `kube-rdma devices --watch`: looks again whenever the kernel says that something happened.

It stands between the kernel's events, the survey, and the comparison of two surveys in
hardware/views/changes. A worker of the kernel rewrites a GID table some time after the address that
causes it was announced. Therefore the last look of a burst is followed by one more. Nothing else is
polled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from kube_base.errors import Unavailable
from kube_rdma.hardware.kernel_events import hear
from kube_rdma.hardware.views.changes import SurveyChange, changes
from kube_rdma.lib.debounce import SETTLE, Debounce
from kube_rdma.model.survey import Survey

EventSource = AbstractAsyncContextManager[AsyncIterator[object]]


async def watch(
    look: Callable[[], Survey],
    sources: Sequence[EventSource],
    tell: Callable[[tuple[SurveyChange, ...]], None],
    settle: float = SETTLE,
) -> None:
    """Call `tell` with the changes of the Survey whenever there are some, until cancelled.

    `look` takes a Survey and may block. Listening begins before the first look, so that nothing
    falls between the two. Raise Unavailable when the kernel does not allow listening, or its
    announcements break off.
    """
    bursts, heard = Debounce(), 0

    def counted(_: object) -> bool:
        nonlocal heard
        heard += 1
        return True

    async def follow(seen: Survey) -> None:
        again = None
        handled = 0  # events that a look has followed
        while True:
            await bursts.wait(again)
            again = settle if heard > handled else None
            handled = heard
            before, seen = seen, await asyncio.to_thread(look)
            if differences := changes(before, seen):
                tell(differences)

    async with AsyncExitStack() as stack:
        try:
            opened = [await stack.enter_async_context(source) for source in sources]
        except OSError as error:
            raise Unavailable(
                f"The kernel announces nothing to kube-rdma: {error.strerror}."
            ) from error
        first = await asyncio.to_thread(look)
        tasks = [asyncio.ensure_future(hear(source, bursts, counted)) for source in opened]
        tasks.append(asyncio.ensure_future(follow(first)))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
