"""What a pod may take of each RDMA device: the limits of its shares, added up.

attach/share_limits writes the result into the pod's control group. A share
that stands for a whole pool opens every card of it, so each of these cards has the share's limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kube_base.errors import Refused
from kube_rdma.model.attach.attachment import Attachment, GrantedShare, Plan
from kube_rdma.model.attach.steps import MakeRdma, MoveRdma
from kube_rdma.model.pools.pool import Pool
from kube_rdma.model.pools.rdma_limits import MOST, DeviceLimits, RdmaLimits

UsedDevices = Sequence[tuple[Plan, tuple[str, ...]]]
"""The RDMA devices of each interface, by their current names."""


def limited(pools: Mapping[str, Pool]) -> dict[str, RdmaLimits]:
    """The limits of a share, by resource; resources without any are left out."""
    limits = {name: pool.spec.limits for name, pool in pools.items()}
    return {name: one for name, one in limits.items() if one is not None}


def unheld(resource: str) -> Refused:
    """Why no container begins with limits that an agent without pod networks cannot hold."""
    return Refused(
        "the agent runs without --networks, so it cannot hold pods to rdmaLimits",
        remedy="Run it with --networks, or remove rdmaLimits from the pools of this node",
        where=resource,
    )


def device_limits(
    granted: Iterable[GrantedShare], limits: Mapping[str, RdmaLimits], used: UsedDevices = ()
) -> tuple[DeviceLimits, ...]:
    """What a pod with these shares may take of every device that they stand for, by name.

    A device of a share without limits has none, whatever other shares of it say.
    """
    shares: dict[str, list[RdmaLimits]] = {}
    for share in granted:
        names = {device.name for card in share.cards for device in card.devices}
        names |= {name for plan, devices in used if plan.held == share.held for name in devices}
        for name in names:
            own = limits.get(share.resource, RdmaLimits())
            shares.setdefault(name, []).extend([own] * share.slots)
    return tuple(DeviceLimits(name, _sum(shares[name])) for name in sorted(shares))


def used_devices(attachments: Iterable[Attachment]) -> UsedDevices:
    """The devices that were moved into a pod, or made for it."""
    return [
        (
            plan,
            tuple(
                step.device if isinstance(step, MoveRdma) else step.name
                for step in plan.steps
                if isinstance(step, MoveRdma | MakeRdma)
            ),
        )
        for attachment in attachments
        for plan in attachment.plans
    ]


def differing(
    wanted: Iterable[DeviceLimits], seen: Iterable[DeviceLimits]
) -> tuple[DeviceLimits, ...]:
    """Those of `wanted` that the kernel does not have; it says nothing of devices that are gone."""
    now = {one.device: one.limits for one in seen}
    return tuple(one for one in wanted if one.device in now and now[one.device] != one.limits)


def _sum(limits: Sequence[RdmaLimits]) -> RdmaLimits:
    return RdmaLimits(
        _added([one.handles for one in limits]), _added([one.objects for one in limits])
    )


def _added(numbers: Sequence[int | None]) -> int | None:
    """Their sum; None where one of them has no end, or the kernel could not count so far."""
    counts = [number for number in numbers if number is not None]
    total = sum(counts)
    return total if len(counts) == len(numbers) and total <= MOST else None
