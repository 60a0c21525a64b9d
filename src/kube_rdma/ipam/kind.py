"""IPPools: the ranges of a network's addresses, and the wants of nodes on their status."""

from __future__ import annotations

from kube_client.kinds import ObjectCodec, ObjectKind, Stored
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam.ip_pool_status import IPPoolStatus
from kube_rdma.model.ipam import IPPool

IP_POOL = own_kind(
    "IPPool",
    "ippools",
    ObjectCodec(ip_pool.decode, ip_pool.encode),
    ObjectCodec.of(IPPoolStatus),
)
# For who reads or writes the status: a spec that is garbled is told there, and stays as it is.
IP_POOL_TEXT: ObjectKind[bytes, IPPoolStatus] = IP_POOL.read_as(
    ObjectCodec(bytes, bytes), IP_POOL.status
)


def pool_of(stored: Stored[IPPool, IPPoolStatus]) -> IPPool:
    """The value of an IPPool object."""
    return ip_pool.named(stored.spec, stored.name)


def pool_of_text(stored: Stored[bytes, IPPoolStatus]) -> IPPool:
    """The value of an IPPool object; raise Refused with all faults of its spec."""
    return ip_pool.named(ip_pool.decode(stored.spec), stored.name)
