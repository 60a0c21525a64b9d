"""Blocks, borrow queues and node leases at the API server: their kinds, and IpamObjects.

`IpamObjects` does what the effects of ipam/rules/effects ask of the API server; values of
model/ipam go in and out. A read raises Unavailable without an answer. A write returns the object as
stored, or None when it was lost or its outcome is unknown: then read, and decide again.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from kube_base.errors import Broken, Unavailable
from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored, Wanted, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import own_kind
from kube_rdma.ipam import ip_objects, ip_pool_status
from kube_rdma.ipam.ip_objects import LeaseSpec
from kube_rdma.ipam.ip_pool_status import IPPoolStatus
from kube_rdma.ipam.kind import IP_POOL
from kube_rdma.model.ipam import (
    Block,
    BlockKey,
    BorrowQueue,
    IPPool,
    NodeLease,
    NodeName,
    PoolName,
    Version,
)

_BLOCK = ObjectCodec(ip_objects.decode_block, ip_objects.encode_block)
IP_BLOCK = own_kind("IPBlock", "ipblocks", _BLOCK, NOTHING)
LEASE = ObjectKind(
    "coordination.k8s.io",
    "v1",
    "Lease",
    "leases",
    namespaced=True,
    spec=ObjectCodec(ip_objects.decode_lease, msgspec.json.encode),
    status=NOTHING,
)
LEASES = Where(labels="=".join(ip_objects.LEASE_LABEL))

S = TypeVar("S")


def block(stored: Stored[Block, None]) -> Block:
    """The value of an IPBlock object; raise Broken when its name is not that of its addresses."""
    if stored.name != stored.spec.key.name:
        raise Broken(
            f"IPBlock {stored.name}, spec.first: {stored.spec.key.address(0)} of network "
            f"{stored.spec.key.network} belongs in the block {stored.spec.key.name}, so it was "
            "edited; restore the former value, or delete it when no pod uses an address of it"
        )
    return replace(stored.spec, version=Version(stored.version))


def borrow_queue(stored: Stored[IPPool, IPPoolStatus]) -> BorrowQueue:
    """The borrow queue in the status of an IPPool object."""
    return ip_pool_status.borrow_queue(
        PoolName(stored.name), stored.status, Version(stored.version)
    )


def lease(stored: Stored[LeaseSpec, None]) -> NodeLease:
    """The value of a Lease object; raise Refused when its annotations were edited."""
    notes = dict(stored.annotations)
    return ip_objects.lease(stored.name, stored.spec, notes, Version(stored.version))


class IpamObjects:
    """The objects of IPAM at the API server. `namespace` is where the leases of the nodes are."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    async def blocks(self) -> dict[BlockKey, Block]:
        """All blocks, consistently; raise Refused or Broken when one of them is garbled."""
        stored = await self._cluster.list(IP_BLOCK)
        return {each.spec.key: block(each) for each in stored}

    async def block(self, key: BlockKey) -> Block | None:
        """One block, None where it has no object."""
        stored = await self._cluster.get(IP_BLOCK, key.name)
        return block(stored) if stored else None

    async def write_block(self, written: Block) -> Block | None:
        """Create it when it has no version, else replace that version."""
        wanted = Wanted(written.key.name, spec=written)
        stored = await self._write(IP_BLOCK, wanted, written, written.version)
        return block(stored) if stored else None

    async def drop_block(self, seen: Block) -> None:
        """Delete exactly this version, if it is still there."""
        await self._drop(IP_BLOCK, seen.key.name, "", seen.version)

    async def lease(self, node: NodeName) -> NodeLease | None:
        """A node's lease, None when there is none."""
        name = ip_objects.lease_name(node)
        stored = await self._cluster.get(LEASE, name, self._namespace)
        return lease(stored) if stored else None

    async def write_lease(self, written: NodeLease) -> NodeLease | None:
        """Create it when it has no version, else replace that version."""
        name = ip_objects.lease_name(written.node)
        spec = ip_objects.lease_spec(written)
        notes = tuple(sorted(ip_objects.lease_annotations(written).items()))
        wanted = Wanted(name, self._namespace, spec, (ip_objects.LEASE_LABEL,), notes)
        stored = await self._write(LEASE, wanted, spec, written.version)
        return lease(stored) if stored else None

    async def drop_lease(self, seen: NodeLease) -> None:
        """Delete exactly this version, if it is still there."""
        name = ip_objects.lease_name(seen.node)
        await self._drop(LEASE, name, self._namespace, seen.version)

    async def borrow_queue(self, name: PoolName) -> BorrowQueue:
        """The borrow queue of a pool; an empty one without a version where the pool is missing."""
        stored = await self._cluster.get(IP_POOL, name)
        return borrow_queue(stored) if stored else BorrowQueue(name)

    async def write_borrow_queue(self, written: BorrowQueue) -> BorrowQueue | None:
        """Replace the queue in exactly this version of the pool; the rest of the status stays."""
        current = await self._cluster.get(IP_POOL, written.pool)
        if current is None or current.version != written.version:
            return None
        status = ip_pool_status.with_wants(current.status, written.requests)
        made = self._cluster.replace_status(IP_POOL, replace(current, status=status))
        stored = await _outcome(made)
        return borrow_queue(stored) if stored else None

    async def _write(
        self, kind: ObjectKind[S, None], wanted: Wanted[S], spec: S, version: Version | None
    ) -> Stored[S, None] | None:
        """Create, or replace exactly this version; which object is meant, the version says."""
        if version is None:
            return await _outcome(self._cluster.create(kind, wanted))
        name, namespace, labels = wanted.name, wanted.namespace, wanted.labels
        changed: Stored[S, None] = Stored(
            name, namespace, "", version, labels, wanted.annotations, spec, None
        )
        return await _outcome(self._cluster.replace(kind, changed))

    async def _drop(
        self, kind: ObjectKind[S, None], name: str, namespace: str, version: Version | None
    ) -> None:
        current = await self._cluster.get(kind, name, namespace)
        if current and current.version == version:
            await _outcome(self._cluster.delete(kind, current))


async def _outcome(writing: Awaitable[S]) -> S | None:
    """What was written; None when it was lost or the outcome is unknown; raise Refused."""
    try:
        return await writing
    except Unavailable:
        return None
