"""How the devices of the driver are, as the kubelet writes it into the status of their pods.

Between claims/rules/prepare, which has the devices of the pools, and adapters/kubelet/claim_health.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_rdma.claims.rules.names import slot_name
from kube_rdma.claims.rules.prepare import PoolDevice, devices_of
from kube_rdma.claims.rules.shape import slot_count
from kube_rdma.model.claims.health import DeviceHealth
from kube_rdma.model.pools.pool import Pool


def health(pools: Iterable[Pool], node: str) -> tuple[DeviceHealth, ...]:
    """Every device of these pools, sorted by name; one that cannot be used says why.

    With all names that parts of a card may have in its slices: claims that were allocated before a
    change of these still have the old ones.
    """
    return tuple(
        DeviceHealth(node, name, not device.illness, "; ".join(device.illness))
        for own, device in sorted(devices_of(pools).items())
        for name in (own, *_parts(own, device))
    )


def _parts(name: str, device: PoolDevice) -> Iterator[str]:
    if device.is_shared:
        cards = len(device.pool.cards) if device.card else 1
        yield from (slot_name(name, slot) for slot in range(slot_count(device.room, cards)))
