"""How the devices of the driver are, as the kubelet writes it into the status of their pods.

Between rules/claims/prepare, which has the devices of the pools, and adapters/kubelet/claim_health.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_rdma.model.claims.health import DeviceHealth
from kube_rdma.model.pools.pool import Pool
from kube_rdma.rules.claims.prepare import devices_of


def health(pools: Iterable[Pool], node: str) -> tuple[DeviceHealth, ...]:
    """Every device of these pools, sorted by name; one that cannot be used says why."""
    return tuple(
        DeviceHealth(node, name, not device.illness, "; ".join(device.illness))
        for name, device in sorted(devices_of(pools).items())
    )
