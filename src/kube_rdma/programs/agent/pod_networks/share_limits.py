"""Has the kernel hold pods to the limits of their shares, and reads back that it does.

    ADD: shares, devices ─┐
    rounds: holdings ─────┴ rules/pools/share_limits ─► rdma.max of the pod's group ─► read back

Within an ADD (programs/agent/pod_networks/attach) no container of the pod has begun, so none begins
without its limits: what cannot be held is refused. The rounds compare what the kernel has for every
pod that holds shares. They find what came later: another policy, a device that was registered anew,
pods that get no network here. Nothing is kept on a disk, for the kernel's file is the record, and
it ends with the pod's group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import structlog

from kube_base.errors import Broken, KubeError, Refused
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_rdma.adapters.kernel.cgroups.rdma import RdmaGroups
from kube_rdma.model.attach.attachment import Attachment, GrantedShare, Sandbox
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.late_binding.runtime import PodSandbox
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Pool
from kube_rdma.model.pools.rdma_limits import DeviceLimits, PodDeviceUse, RdmaLimits
from kube_rdma.rules.phrases import listed
from kube_rdma.rules.pools.share_limits import (
    UsedDevices,
    device_limits,
    differing,
    limited,
    used_devices,
)

ROUND_SECONDS = 60.0

Pools = Callable[[], Mapping[str, Pool] | None]
log = structlog.get_logger()


class ShareLimits:
    """The limits of one node; `groups` None: the agent does not see the node's control groups."""

    def __init__(self, groups: RdmaGroups | None, pools: Pools) -> None:
        self._groups = groups
        self._pools = pools

    @property
    def by_resource(self) -> Mapping[str, RdmaLimits]:
        """What a share may take now, of the resources that have limits."""
        return limited(self._pools() or {})

    @property
    def is_able(self) -> bool:
        """Whether the agent sees the node's control groups."""
        return self._groups is not None

    async def hold(
        self, uid: str, granted: Sequence[GrantedShare], used: UsedDevices = ()
    ) -> tuple[str, ...]:
        """Have a pod held to the limits of these shares; devices that count nothing are returned.

        `used` are devices of its interfaces. Raise KubeError when the kernel does not hold it.
        """
        limits = self.by_resource
        if not any(share.resource in limits for share in granted):
            return ()
        return await self._written(uid, device_limits(granted, limits, used))

    async def lift(self, uid: str, granted: Sequence[GrantedShare], used: UsedDevices) -> None:
        """Take away what an earlier policy limited; raise KubeError."""
        if self._groups:
            group = await asyncio.to_thread(self._groups.find, uid)
            await _compare(self._groups, uid, group, device_limits(granted, {}, used))

    def uses(self, sandboxes: Iterable[Sandbox]) -> tuple[PodDeviceUse, ...]:
        """What these pods have of the devices that are limited for them.

        It blocks. A pod whose group has ended has nothing.
        """
        groups = self._groups if self.by_resource else None
        pods = {sandbox.uid: sandbox.pod for sandbox in sandboxes} if groups else {}
        uses: list[PodDeviceUse] = []
        for uid, pod in pods.items():
            assert groups
            with suppress(KubeError):
                group = groups.read(groups.find(uid))
                limits = {entry.device: entry.limits for entry in group.limits}
                uses += (
                    PodDeviceUse(pod.namespace, pod.name, use, limits[use.device])
                    for use in group.current
                    if limits.get(use.device, RdmaLimits()) != RdmaLimits()
                )
        return tuple(uses)

    async def _written(self, uid: str, wanted: Sequence[DeviceLimits]) -> tuple[str, ...]:
        """The devices among these that count nothing, once the others are limited."""
        if self._groups is None:
            raise Refused(
                "the agent cannot hold pods to rdmaLimits, for it does not see the node's control "
                "groups",
                remedy="Install kube-rdma with agent.shareLimits=true, or remove rdmaLimits from "
                "the pools of this node",
            )
        group = await asyncio.to_thread(self._groups.switch_on, uid)
        counted = {entry.device for entry in await _compare(self._groups, uid, group, wanted)}
        return tuple(
            entry.device
            for entry in wanted
            if entry.limits != RdmaLimits() and entry.device not in counted
        )


async def _compare(
    groups: RdmaGroups, uid: str, group: str, wanted: Sequence[DeviceLimits]
) -> tuple[DeviceLimits, ...]:
    """Write what the kernel does not have; return what it has then. Raise KubeError."""
    seen = (await asyncio.to_thread(groups.read, group)).limits
    different = differing(wanted, seen)
    if not different:
        return seen
    await asyncio.to_thread(groups.write, group, different)
    seen = (await asyncio.to_thread(groups.read, group)).limits
    if lost := differing(wanted, seen):
        names = listed([entry.device for entry in lost])
        raise Broken(f"The kernel did not keep the limits of {names} for the pod.")
    log.info("share limits set", uid=uid, devices=",".join(entry.device for entry in different))
    return seen


class RoundDependencies(Frozen):
    """Whom the rounds need.

    `listed` are the runtime's sandboxes; it raises Unavailable. `holdings` is what all pods hold,
    None while nobody tells; `granted` looks shares up and raises Unavailable. `attachments` are
    those of the node's pods.
    """

    limits: ShareLimits
    listed: Callable[[], Awaitable[tuple[PodSandbox, ...]]]
    holdings: Callable[[], Awaitable[tuple[Holding, ...] | None]]
    granted: Callable[[Sequence[Holding]], tuple[GrantedShare, ...]]
    attachments: Callable[[], Iterable[Attachment]]


class ShareLimitRounds:
    """``await ShareLimitRounds(...).run()``."""

    def __init__(self, dependencies: RoundDependencies, pause: float = ROUND_SECONDS) -> None:
        self._needs = dependencies
        self._pause = pause
        self._notices = Notices()
        self._are_left = dependencies.limits.is_able  # those of an earlier policy, perhaps

    async def run(self) -> None:
        """Rounds, until cancelled."""
        while True:
            try:
                await self.round()
                self._notices.over("round")
            except KubeError as error:
                self._say("round", "share limits not compared", why=str(error))
            await asyncio.sleep(self._pause)

    async def round(self) -> None:
        """Compare once; raise KubeError when nobody tells who holds what.

        What cannot be held for one pod holds up no other. Where nothing is limited, and nothing
        was, nobody is asked.
        """
        limited_now = bool(self._needs.limits.by_resource)
        if not limited_now and not self._are_left:
            return
        holdings = await self._needs.holdings()
        if holdings is None:
            return
        by_pod: dict[PodName, list[Holding]] = {}
        for held in holdings:
            by_pod.setdefault(PodName(held.namespace, held.pod), []).append(held)
        for sandbox in await self._needs.listed():
            if sandbox.ready and sandbox.pod in by_pod:
                await self._compare(sandbox, by_pod[sandbox.pod])
        self._are_left = limited_now

    async def _compare(self, sandbox: PodSandbox, holdings: Sequence[Holding]) -> None:
        """What cannot be lifted ends with the pod; a node that cannot limit has nothing to lift."""
        limits, container = self._needs.limits, sandbox.container
        mine = [one for one in self._needs.attachments() if one.sandbox.container == container]
        used, resources = used_devices(mine), limits.by_resource
        is_limited = any(held.resource in resources for held in holdings)
        try:
            granted = self._needs.granted(holdings)
            if is_limited:
                uncounted = await limits.hold(sandbox.uid, granted, used)
            else:
                uncounted = ()
                await limits.lift(sandbox.uid, granted, used)
        except KubeError as error:
            if is_limited:
                self._fail(sandbox, str(error))
            return
        if uncounted:
            self._fail(sandbox, not_counted(uncounted))
        else:
            self._notices.over(sandbox.uid)

    def _fail(self, sandbox: PodSandbox, why: str) -> None:
        self._say(sandbox.uid, "share limits not held", pod=str(sandbox.pod), why=why)

    def _say(self, topic: str, event: str, *, why: str, **facts: str) -> None:
        for sentence in self._notices.news(topic, why):
            log.warning(event, **facts, why=sentence)


def not_counted(devices: Sequence[str]) -> str:
    """Why devices have no limits: a sentence for logs and people."""
    return (
        f"The kernel counts no objects of {listed(devices)}: its driver does not register with the "
        "rdma controller, or the device is gone."
    )
