"""Runs a role as a process: signals end it in order, whatever it holds is given back.

A loop that hangs hears no signal; the watchdog ends it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

import structlog

from kube_rdma.lib.watchdog import watched

# Threads for what blocks for a moment: a survey takes a while, the journal must not wait for it.
# What may take long has its own (attach/executor.py).
BLOCKING = 2

log = structlog.get_logger()


async def until_signal(work: Coroutine[None, None, None]) -> None:
    """Run `work` until it ends or SIGTERM or SIGINT asks for its end, which is not an error."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(BLOCKING, "blocking"))
    task = asyncio.create_task(work)
    asked: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        asked.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        with watched():
            await task
    except asyncio.CancelledError:
        if not asked:
            raise
        log.info("stopped")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
