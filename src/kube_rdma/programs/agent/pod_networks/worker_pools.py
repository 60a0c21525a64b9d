"""Threads for what takes long on behalf of a pod: the kernel's steps, and other CNI plugins.

Used by programs/agent/pod_networks/executor. The loop's own threads (process.BLOCKING) are for
short work: the journal, a survey, what Allocate asks. None of it may wait for a GID, a driver that
is bound again or a plugin that hangs for its minute, nor may a pod without such a plugin. Threads
are started when there is work for them, and both numbers bound what a burst of pods costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

STEPS = 8
PLUGINS = 16

Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class Threads:
    """Both kinds of one agent; whoever finds all of a kind taken waits for the next one."""

    def __init__(self, steps: int = STEPS, plugins: int = PLUGINS) -> None:
        self._steps = ThreadPoolExecutor(steps, "steps")
        self._plugins = ThreadPoolExecutor(plugins, "plugins")

    async def run(self, work: Callable[[*Ts], T], *args: *Ts, plugins: bool) -> T:
        """The result of work that calls other CNI plugins, or of steps in the kernel alone."""
        threads = self._plugins if plugins else self._steps
        return await asyncio.get_running_loop().run_in_executor(threads, work, *args)
