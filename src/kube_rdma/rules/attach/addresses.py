"""What one interface got of a pool, for the plan of its attachment.

Between IPAM, which grants leases, and rules/attach/plan: of the pool's routes only those are the
interface's whose gateway it can reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.attach.attachment import Given, InterfaceAddress, NetworkRoute
from kube_rdma.model.ipam import InterfaceName, IPPool, Lease, Owner, Route
from kube_rdma.model.pod import PodState


def given(interface: InterfaceName, leases: Sequence[Lease], pool: IPPool) -> Given:
    """Addresses and routes of an interface, out of the leases of its container."""
    own = [one for one in leases if one.interface == interface]
    addresses = tuple(
        InterfaceAddress(one.address, one.subnet.prefixlen, one.gateway) for one in own
    )
    routes = tuple(
        NetworkRoute(one.to, one.via)
        for one in pool.routes
        if any(_reaches(lease, one) for lease in own)
    )
    return Given(interface, addresses, routes, pool.probe)


def owner(pod: PodState, interface: InterfaceName) -> Owner | None:
    """By what the addresses are found again for the pod that comes next under its name.

    Only those of a StatefulSet come again.
    """
    if not any(key == "apps.kubernetes.io/pod-index" for key, _ in pod.labels):
        return None
    return Owner(f"{pod.namespace}/{pod.name}/{interface}")


def _reaches(lease: Lease, route: Route) -> bool:
    """Whether a route of the pool is one of this NIC: its gateway may be another rail's."""
    if route.via is not None:
        return route.via in lease.subnet
    if not route.to.prefixlen and lease.gateway is None:
        return False  # it would take the pod's own default route away, and lead nowhere
    return route.to.version == lease.address.version
