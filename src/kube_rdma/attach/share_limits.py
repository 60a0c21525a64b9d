"""Has the kernel hold pods to the limits of their shares, and reads back that it does.

    ADD: shares, devices ────────────────────┐
    PreStart, Prepare and rounds: holdings ──┴ pools/rules/allocation ─► rdma.max ─► read back

A claim is not prepared, an ADD (attach/attach) fails, and a container with a share does not start
while limits cannot be set. Devices that the kernel does not count are only logged. The kubelet has
made the pod's group by then. While any resource has limits, the rounds compare what the kernel has
for every pod that holds shares. They find what came later: another policy, a device that was
registered anew. Nothing is kept on a disk, for the kernel's file is the record, and it ends with
the pod's group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import structlog

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_rdma.adapters.kernel.cgroups import RdmaGroups
from kube_rdma.attach.rules.late_binding import holder, holders, reported
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import Attachment, GrantedShare
from kube_rdma.model.claims.claim import PreparedClaim
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import PodName, PodSandbox
from kube_rdma.model.pools import DeviceLimits, PodDeviceUse, Pool, RdmaLimits, ShareId
from kube_rdma.pools.rules import allocation

ROUND_SECONDS = 60.0

Pools = Callable[[], Mapping[str, Pool] | None]
log = structlog.get_logger()


class ShareLimits:
    """The limits of RDMA objects that pods' shares have on one node.

    `groups` is None where the agent does not see the node's control groups.
    """

    def __init__(self, groups: RdmaGroups | None, pools: Pools) -> None:
        self._groups = groups
        self._pools = pools

    @property
    def by_resource(self) -> Mapping[str, RdmaLimits]:
        """Return the limits of a share, for each resource that has limits."""
        return allocation.limited(self._pools() or {})

    @property
    def is_able(self) -> bool:
        """Return whether the agent sees the node's control groups."""
        return self._groups is not None

    async def hold(
        self, uid: str, granted: Sequence[GrantedShare], used: allocation.UsedDevices = ()
    ) -> tuple[str, ...]:
        """Limit a pod to what its shares allow; return devices that the kernel does not count.

        `used` are devices of its interfaces. Raise KubeError if the limits cannot be set, or the
        kernel does not keep them.
        """
        limits = self.by_resource
        if not any(share.resource in limits for share in granted):
            return ()
        return await self._written(uid, allocation.device_limits(granted, limits, used))

    async def has_group(self, uid: str) -> bool:
        """Return whether the pod has a control group on this node."""
        try:
            return bool(self._groups and await asyncio.to_thread(self._groups.find, uid))
        except Unavailable:
            return False

    async def lift(
        self, uid: str, granted: Sequence[GrantedShare], used: allocation.UsedDevices
    ) -> None:
        """Remove the limits that an earlier policy set for a pod.

        Raise KubeError if the pod has no control group or the kernel does not remove them.
        """
        if self._groups:
            group = await asyncio.to_thread(self._groups.find, uid)
            await _compare(self._groups, uid, group, allocation.device_limits(granted, {}, used))

    def uses(self, pods: Mapping[str, PodName]) -> tuple[PodDeviceUse, ...]:
        """Return how many RDMA objects these pods (by uid) use, of devices with limits.

        It blocks. A pod whose control group cannot be read is left out.
        """
        groups = self._groups
        if groups is None or not self.by_resource:
            return ()
        uses: list[PodDeviceUse] = []
        for uid, pod in pods.items():
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
        """Set these limits for a pod; return the devices that the kernel does not count."""
        if self._groups is None:
            raise Refused(
                "the agent cannot hold pods to rdmaLimits, for it does not see the node's control "
                "groups",
                remedy="Install kube-rdma with agent.shareLimits=true, or remove rdmaLimits from "
                "the pools of this node",
            )
        group = await asyncio.to_thread(self._groups.switch_on, uid)
        counted = {entry.device for entry in await _compare(self._groups, uid, group, wanted)}
        limited = (entry.device for entry in wanted if entry.limits != RdmaLimits())
        return tuple(device for device in limited if device not in counted)


async def _compare(
    groups: RdmaGroups, uid: str, group: str, wanted: Sequence[DeviceLimits]
) -> tuple[DeviceLimits, ...]:
    """Write limits that differ from the kernel's; return all limits afterwards.

    Raise Unavailable if they cannot be read or written, Broken if the kernel does not keep them.
    """
    seen = (await asyncio.to_thread(groups.read, group)).limits
    different = allocation.differing(wanted, seen)
    if not different:
        return seen
    await asyncio.to_thread(groups.write, group, different)
    seen = (await asyncio.to_thread(groups.read, group)).limits
    if lost := allocation.differing(wanted, seen):
        names = listed([entry.device for entry in lost])
        raise Broken(f"The kernel did not keep the limits of {names} for the pod.")
    log.info("share limits set", uid=uid, devices=",".join(entry.device for entry in different))
    return seen


class RoundDependencies(Frozen):
    """Everything that the rounds of limits depend on."""

    limits: ShareLimits
    listed: Callable[[], Awaitable[tuple[PodSandbox, ...]]]  # lists sandboxes; raises Unavailable
    # what all pods hold, None while the kubelet does not say
    holdings: Callable[[], Awaitable[tuple[Holding, ...] | None]]
    # looks shares up; raises Unavailable
    granted: Callable[[Sequence[Holding]], tuple[GrantedShare, ...]]
    attachments: Callable[[], Iterable[Attachment]]  # of the node's pods


class ShareLimitRounds:
    """Rounds that set the limits of a node's pods: ``await ShareLimitRounds(...).run()``."""

    def __init__(self, dependencies: RoundDependencies, pause: float = ROUND_SECONDS) -> None:
        self._needs = dependencies
        self._pause = pause
        self._notices = Notices()
        self._are_left = dependencies.limits.is_able  # limits of an earlier policy may be left
        self._pods: dict[str, PodName] = {}  # those that hold limited shares, by uid

    def uses(self) -> tuple[PodDeviceUse, ...]:
        """Return how many RDMA objects pods use, of devices with limits; it blocks."""
        attached = (one.sandbox for one in tuple(self._needs.attachments()))
        pods = {sandbox.uid: sandbox.pod for sandbox in attached}
        return self._needs.limits.uses(pods | self._pods)

    async def run(self) -> None:
        """Run rounds of limits until cancelled."""
        while True:
            try:
                await self.round()
                self._notices.over("round")
            except KubeError as error:
                self._notices.warn(log, "share limits not compared", "round", str(error))
            await asyncio.sleep(self._pause)

    async def round(self) -> None:
        """Set all pods' limits once; raise Unavailable if the runtime does not answer.

        Do nothing if the kubelet does not answer, or if no resource has limits and no pod can have
        some of an earlier policy. A failure for one pod holds up no other.
        """
        limited_now = bool(self._needs.limits.by_resource)
        if not limited_now and not self._are_left:
            return
        holdings = await self._needs.holdings()
        if holdings is None:
            return
        pods = set(holders(holdings).values())
        sandboxes = [one for one in await self._needs.listed() if one.ready and one.pod in pods]
        self._pods = {one.uid: one.pod for one in sandboxes if one.uid in self._pods}
        for sandbox in sandboxes:
            try:
                await self._hold(sandbox.pod, sandbox.uid, holdings)
            except KubeError as error:  # tried again in the next round
                self._fail(sandbox.pod, sandbox.uid, str(error))
        self._are_left = limited_now

    async def before_start(self, resource: str, shares: Sequence[ShareId]) -> None:
        """Set the limits of the pod that holds these shares.

        Raise KubeError if kubelet or runtime do not show the pod, or the kernel refuses.
        """
        holdings = reported(await self._needs.holdings())
        pod = holder(holders(holdings), {(resource, share) for share in shares})
        sandboxes = [one for one in await self._needs.listed() if one.ready and one.pod == pod]
        if not sandboxes:
            raise Unavailable(f"The container runtime shows no sandbox of pod {pod} yet.")
        for sandbox in sandboxes:
            await self._hold(pod, sandbox.uid, holdings)

    async def prepared(self, claim: PreparedClaim) -> None:
        """Set the limits of the pods that use a claim; raise KubeError if that fails.

        If some of them have a control group, the others are skipped. They have not begun, as the
        kubelet makes a pod's group before it asks for its claims (kubelet.go, SyncPod).
        """
        holdings = reported(await self._needs.holdings())
        users = [user for user in claim.users if user.resource == "pods"]
        begun = [user for user in users if await self._needs.limits.has_group(user.uid)]
        for user in begun or users:
            await self._hold(PodName(claim.claim.namespace, user.name), user.uid, holdings)

    async def _hold(self, pod: PodName, uid: str, holdings: Sequence[Holding]) -> None:
        """Set the limits of one pod for all that it holds; raise KubeError if that fails.

        A failure to remove limits of an earlier policy is ignored: they end with the pod.
        """
        limits = self._needs.limits
        mine = [one for one in holdings if PodName(one.namespace, one.pod) == pod]
        attached = (one for one in self._needs.attachments() if one.sandbox.pod == pod)
        used = allocation.used_devices(attached)
        if not any(held.resource in limits.by_resource for held in mine):
            with suppress(KubeError):
                await limits.lift(uid, self._needs.granted(mine), used)
        else:
            self._pods[uid] = pod
            if uncounted := await limits.hold(uid, self._needs.granted(mine), used):
                self._fail(pod, uid, not_counted(uncounted))
                return
        self._notices.over(uid)

    def _fail(self, pod: PodName, uid: str, why: str) -> None:
        self._notices.warn(log, "share limits not held", uid, why, pod=str(pod))


def not_counted(devices: Sequence[str]) -> str:
    """Return the sentence that the kernel cannot limit these devices."""
    return (
        f"The kernel counts no objects of {listed(devices)}: its driver does not register with the "
        "rdma controller, or the device is gone."
    )
