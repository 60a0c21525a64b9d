"""Answers the kubelet's calls about a resource out of the pools as they are at that moment.

adapters/kubelet/device_plugin has the calls; rules decide: allocation, which shares are preferred,
whether a container may start. Added here are, among others, the log, device info files and the GPUs
that are free now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.kubelet.device_plugin import Choice, PluginHandlers
from kube_rdma.attach.late_binding import LateBindingChoice
from kube_rdma.claims.rules.serving import refuse_claimed
from kube_rdma.model.holdings import FreeGpu
from kube_rdma.model.pools import DeviceInfo, Grant, Pool, PoolSpec, Preference, ShareId, Variables
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rules.allocation import allocate, device_infos, unheld
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.preference import prefer

if TYPE_CHECKING:
    from kube_rdma.attach.share_limits import ShareLimitRounds

log = structlog.get_logger()


class Handlers:
    """The answers to the kubelet's calls for all resources of a node.

    Without `limits` no pod can be held to rdmaLimits.
    """

    def __init__(
        self,
        kubelet: KubeletView,
        late: LateBindingChoice,
        infos: DeviceInfoFolder | None,
        limits: ShareLimitRounds | None = None,
    ) -> None:
        self._kubelet = kubelet
        self._late = late
        self._infos = infos
        self._limits = limits
        self._described: Mapping[str, frozenset[ShareId]] = {}  # shares that may have a file

    async def offered(self, pools: Mapping[str, Pool]) -> None:
        """Remove device info files of shares that no longer exist, also of an earlier agent.

        Files of a resource that this agent has never offered stay.
        """
        if self._infos is None:
            return
        current = {resource: frozenset(pool.index) for resource, pool in pools.items()}
        previous, self._described = self._described, current
        for resource in {**previous, **current}:
            shares = current.get(resource, frozenset())
            if previous.get(resource) != shares:
                await asyncio.to_thread(self._infos.keep, resource, shares)

    def answers(self, pool: Callable[[], Pool]) -> PluginHandlers:
        """Return the handlers of one resource; `pool` returns its pool at the time of a call."""

        async def preferred(choice: Choice) -> Sequence[ShareId]:
            now, gpus = pool(), tuple[FreeGpu, ...]()
            if terms(now.spec).prefer is Preference.NUMA:
                gpus = await self._kubelet.free_gpus(now.spec.resource)
            return prefer(now, choice.available, choice.must, choice.size, gpus)

        return PluginHandlers(partial(self._allocate, pool), preferred, partial(self._start, pool))

    async def _allocate(self, now: Callable[[], Pool], wanted: Sequence[ShareId]) -> Grant:
        pool = now()
        try:
            await self._refuse_claimed(pool, wanted)
            grant = await self._late.now.promise(pool, allocate(pool, wanted))
            for share, info in device_infos(pool, grant):
                await self._tell(pool.spec, share, info)
        except KubeError as error:
            log.warning("allocation refused", resource=pool.spec.resource, why=str(error))
            raise
        log.info(
            "allocated",
            resource=grant.resource,
            count=len(grant.shares),
            shares=",".join(grant.shares),
            device_nodes=len(grant.char_paths),
        )
        self._kubelet.granted(grant)
        return grant

    async def _refuse_claimed(self, pool: Pool, wanted: Sequence[ShareId]) -> None:
        """Raise Refused where claims leave too few shares of a card by now."""
        resource = pool.spec.resource
        booked = self._kubelet.claims.booked
        if any(share.resource == resource for claim in booked for share in claim.shares):
            refuse_claimed(pool, wanted, booked, await self._kubelet.plugin_holders({resource}))

    async def _tell(self, spec: PoolSpec, share: ShareId, info: DeviceInfo) -> None:
        """Write the device info file of a share, which CNI plugins read.

        A failure is raised only where the pool imitates the SR-IOV plugin.
        """
        try:
            if self._infos:
                await asyncio.to_thread(self._infos.write, spec.resource, share, info)
        except Unavailable as error:
            if spec.variables is Variables.PCIDEVICE:
                raise
            log.warning("device info file not written", why=str(error))

    async def _start(self, now: Callable[[], Pool], shares: Sequence[ShareId]) -> None:
        pool = now()
        try:
            await self._late.now.start(pool, shares)
            if pool.spec.limits and self._limits is None:
                raise unheld(pool.spec.resource)
            if pool.spec.limits and self._limits:
                await self._limits.before_start(pool.spec.resource, shares)
        except KubeError as error:
            log.warning("container start refused", resource=pool.spec.resource, why=str(error))
            raise
