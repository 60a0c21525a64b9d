"""What one interface got of a pool, for the plan of its attachment.

Between IPAM, which grants allocations, and rules/attach/plan: an interface gets only those routes
of the pool whose gateway it can reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.attach.attachment import Given, InterfaceAddress, NetworkRoute
from kube_rdma.model.ipam import AddressAllocation, InterfaceName, IPPool, Owner, Route
from kube_rdma.model.pod import PodState


def given(
    interface: InterfaceName, allocations: Sequence[AddressAllocation], pool: IPPool
) -> Given:
    """Addresses and routes of an interface, out of the allocations of its container."""
    own = [one for one in allocations if one.interface == interface]
    addresses = tuple(
        InterfaceAddress(one.address, one.subnet.prefixlen, one.gateway) for one in own
    )
    routes = tuple(
        NetworkRoute(one.to, one.via)
        for one in pool.routes
        if any(_reaches(allocation, one) for allocation in own)
    )
    return Given(interface, addresses, routes, pool.probe)


def owner(pod: PodState, interface: InterfaceName) -> Owner | None:
    """By what the addresses are found again for the pod that comes next under its name.

    Only those of a StatefulSet come again.
    """
    if not any(key == "apps.kubernetes.io/pod-index" for key, _ in pod.labels):
        return None
    return Owner(f"{pod.namespace}/{pod.name}/{interface}")


def _reaches(allocation: AddressAllocation, route: Route) -> bool:
    """Whether a route of the pool is one of this NIC: its gateway may be another rail's."""
    if route.via is not None:
        return route.via in allocation.subnet
    if not route.to.prefixlen and allocation.gateway is None:
        return False  # it would take the pod's own default route away, and lead nowhere
    return route.to.version == allocation.address.version
