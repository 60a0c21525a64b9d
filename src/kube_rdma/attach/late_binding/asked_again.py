"""Late binding that began without: the runtime is asked again until it is known to read CDI files.

A runtime that does not answer when the node boots, or is updated while the agent runs, would
otherwise cost late binding until somebody restarts the agent. What pods hold does not change its
meaning below them: agent/mode_changes changes a resource over when nobody
holds a share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

from kube_base.errors import KubeError
from kube_rdma.attach.late_binding.interface import LateBinding, NoLateBinding
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.late_binding.binding import ContainerId, Edits, HeldShare
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Grant, Pool, PoolSpec, ShareId
from kube_rdma.pools.rules.health.evaluate import LinksInside

ASK_SECONDS = 60.0

log = structlog.get_logger()


class AskedAgain(LateBinding):
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
        self._to: LateBinding = never
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
        await self._to.sweep()

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """The wishes, with `attach` as this node can do it."""
        return self._to.possible(specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what is offered now, by resource."""
        self._to.offered(pools)

    async def promise(self, pool: Pool, grant: Grant) -> Grant:
        """The grant as Allocate answers it."""
        return await self._to.promise(pool, grant)

    async def start(self, pool: Pool, shares: Sequence[ShareId]) -> None:
        """Return when the container that holds these shares may start; raise Refused before."""
        await self._to.start(pool, shares)

    async def links_inside(self, node: Sequence[Card]) -> LinksInside:
        """The pod and its links for each card of the node that sits inside one."""
        return await self._to.links_inside(node)

    def cards(self) -> frozenset[CardId] | None:
        """The cards that are promised to pods or bound; None where a record is not understood."""
        return self._to.cards()

    async def held(self) -> tuple[Holding, ...]:
        """What is bound for pods that run, whatever the kubelet knows."""
        return await self._to.held()

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[HeldShare, Edits],
        annotations: Mapping[str, str],
        holdings: Sequence[Holding] | None = None,
    ) -> object:
        """Bind every promise of a pod."""
        return await self._to.attach(sandbox, edits, annotations, holdings)

    async def detach(self, container: ContainerId) -> None:
        """End what is bound in a sandbox."""
        await self._to.detach(container)
