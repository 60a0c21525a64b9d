"""Threads for what takes long on behalf of a pod: the kernel's steps, and other CNI plugins.

Used by programs/agent/pod_networks/executor. The loop's own threads (process.BLOCKING) are for
short work: the journal, a survey, what Allocate asks. None of it may wait for a GID, a driver that
is bound again or a plugin that hangs for its minute, nor may a pod without such a plugin.
WorkerPools are started when there is work for them, and both numbers bound what a burst of pods
costs. Of what waits for one, ends go before beginnings, and a beginning that nobody waits for any
more is dropped before the kernel is touched (adapters/cni/turns).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar, TypeVarTuple

from kube_rdma.adapters.cni.turns import Turns, refuse_hung_up, set_aside

STEPS = 8
PLUGINS = 16

Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class _ThreadKind:
    """Threads of one kind, and who is served by them next."""

    def __init__(self, threads: int, name: str) -> None:
        self.executor = ThreadPoolExecutor(threads, name)
        self.turns = Turns(threads)


class WorkerPools:
    """Both kinds of one agent; whoever finds all of a kind taken waits for the next one."""

    def __init__(self, steps: int = STEPS, plugins: int = PLUGINS) -> None:
        self._steps = _ThreadKind(steps, "steps")
        self._plugins = _ThreadKind(plugins, "plugins")

    async def run(
        self, work: Callable[[*Ts], T], *args: *Ts, plugins: bool, begins: bool = False
    ) -> T:
        """The result of work that calls other CNI plugins, or of steps in the kernel alone.

        `begins`: it makes something new for the caller of this task; raise Unavailable when that
        one has hung up. Everything else is done for whoever is left, and before it. While plugins
        of others are waited for, the next call is served.
        """
        pool = self._plugins if plugins else self._steps
        async with set_aside() if plugins else nullcontext(), pool.turns.turn(begins=begins):
            if begins:
                refuse_hung_up()
            return await asyncio.get_running_loop().run_in_executor(pool.executor, work, *args)
