"""Late binding that began without: the runtime is asked again until it is known to read CDI files.

A runtime that does not answer when the node boots, or is updated while the agent runs, would
otherwise cost late binding until somebody restarts the agent. What pods hold does not change its
meaning below them: programs/agent/device_plugin/mode_changes changes a resource over when nobody
holds a share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from kube_base.errors import KubeError
from kube_rdma.programs.agent.late_binding.forwarding import ForwardingBinding
from kube_rdma.programs.agent.late_binding.interface import LateBinding, NoLateBinding

ASK_SECONDS = 60.0

log = structlog.get_logger()


class AskedAgain(ForwardingBinding):
    """`never` until `ask` answers that CDI works; from then on the one that `make` opens.

    `ask` says whether, and why. `make` raises KubeError, and is tried again.
    """

    def __init__(
        self,
        never: NoLateBinding,
        ask: Callable[[], Awaitable[tuple[bool, str]]],
        make: Callable[[], LateBinding],
        seconds: float = ASK_SECONDS,
    ) -> None:
        super().__init__(never)
        self._ask = ask
        self._make = make
        self._seconds = seconds
        self._works = asyncio.Event()

    async def follow(self, changed: Callable[[], None]) -> None:
        """Ask until it works, then call `changed`."""
        while not self._works.is_set():
            await asyncio.sleep(self._seconds)
            works, why = await self._ask()
            if not works:
                continue
            try:
                self._to = self._make()
            except KubeError as error:
                log.warning("late binding not available", why=str(error))
                continue
            log.info("late binding available", why=why)
            self._works.set()
            changed()

    async def sweep(self) -> None:
        """Forget what nobody needs any more, once anything is promised, until cancelled."""
        await self._works.wait()
        await super().sweep()
