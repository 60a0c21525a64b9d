"""Blocks, borrow queues and node leases at the API server: their kinds, and IpamObjects.

`IpamObjects` does what the effects of ipam/rules/effects ask of the API server; values of
model/ipam go in and out. A read raises Unavailable without an answer. `write_…` return the object
as stored, or None for a conflict or an unknown outcome: then read, and decide again.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from kube_base.errors import Broken, Unavailable
from kube_base.frozen import replace
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored, Wanted, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import lease_kind, own_kind
from kube_rdma.ipam import ip_pool, objects
from kube_rdma.ipam.objects import IPPoolStatus, LeaseSpec
from kube_rdma.model import ipam

_POOL = ObjectCodec(ip_pool.decode, ip_pool.encode)
# Their status counts what nodes hold, so an older one can show that etcd was restored.
IP_POOL = replace(
    own_kind("IPPool", "ippools", _POOL, ObjectCodec.of(IPPoolStatus)),
    is_listed_in_doubt=True,
)
# To read or write the status: there a garbled spec is reported, and it stays as it is.
IP_POOL_TEXT: ObjectKind[bytes, IPPoolStatus] = IP_POOL.read_as(
    ObjectCodec(bytes, bytes), IP_POOL.status
)


def pool_of(stored: Stored[ipam.IPPool, IPPoolStatus]) -> ipam.IPPool:
    """Return the pool that an IPPool object describes."""
    return ip_pool.named(stored.spec, stored.name)


def pool_of_text(stored: Stored[bytes, IPPoolStatus]) -> ipam.IPPool:
    """Return the pool of an IPPool object whose spec is still text.

    Raise Refused with all faults of the spec.
    """
    return ip_pool.named(ip_pool.decode(stored.spec), stored.name)


_BLOCK = ObjectCodec(objects.decode_block, objects.encode_block)
IP_BLOCK = replace(own_kind("IPBlock", "ipblocks", _BLOCK, NOTHING), is_listed_in_doubt=True)
LEASE = lease_kind(ObjectCodec(objects.decode_lease, msgspec.json.encode))
LEASES = Where(labels="=".join(objects.LEASE_LABEL))

S = TypeVar("S")


def stored_block(stored: Stored[ipam.Block, None]) -> ipam.Block:
    """Return the block of an IPBlock; raise Broken if the object has another block's name."""
    if stored.name != stored.spec.key.name:
        raise Broken(
            f"IPBlock {stored.name}, spec.first: {stored.spec.key.address(0)} of network "
            f"{stored.spec.key.network} belongs in the block {stored.spec.key.name}, so it was "
            "edited; restore the former value, or delete it when no pod uses an address of it"
        )
    own = {key for key, _ in stored.labels if key.startswith((objects.HOLDER, objects.PINNED))}
    is_labelled = own == dict(objects.block_labels(stored.spec)).keys()
    return replace(stored.spec, version=ipam.Version(stored.version), is_labelled=is_labelled)


def borrow_queue(stored: Stored[ipam.IPPool, IPPoolStatus]) -> ipam.BorrowQueue:
    """Return the borrow queue in the status of an IPPool object."""
    requests = stored.status.wants if stored.status else ()
    return ipam.BorrowQueue(ipam.PoolName(stored.name), requests, ipam.Version(stored.version))


def lease(stored: Stored[LeaseSpec, None]) -> ipam.NodeLease:
    """Return the node lease that a Lease object describes.

    Raise Refused if it cannot be understood, or is not the lease of a node for IPAM.
    """
    notes = dict(stored.annotations)
    return objects.lease(stored.name, stored.spec, notes, ipam.Version(stored.version))


class IpamObjects:
    """A client for the objects of IPAM at the API server.

    `namespace` is the namespace of the nodes' leases.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    async def block(self, key: ipam.BlockKey) -> ipam.Block | None:
        """Return the block with this key, None where the API server has no such IPBlock.

        Raise Refused or Broken for a garbled one, Unavailable without an answer.
        """
        stored = await self._cluster.get(IP_BLOCK, key.name)
        return stored_block(stored) if stored else None

    async def pinned(self, owner: ipam.Owner) -> dict[ipam.BlockKey, ipam.Block]:
        """Return the blocks whose label names the owner's pod, by key.

        Blocks that are garbled or have another block's name are left out.
        """
        seen = await self._cluster.see(IP_BLOCK, Where(labels=objects.pin_label(owner)))
        with_names = [one for one in seen.objects if one.name == one.spec.key.name]
        return {one.spec.key: stored_block(one) for one in with_names}

    async def write_block(self, written: ipam.Block) -> ipam.Block | None:
        """Create the IPBlock of a block without a version, else replace exactly its version.

        Return the block as stored; None where it was not written or that is unknown. Raise Refused
        where the API server refused it.
        """
        wanted = Wanted(written.key.name, "", written, objects.block_labels(written))
        stored = await self._write(IP_BLOCK, wanted, written, written.version)
        return stored_block(stored) if stored else None

    async def drop_block(self, seen: ipam.Block) -> None:
        """Delete the IPBlock of a block if it still has the version that was seen."""
        await self._drop(IP_BLOCK, seen.key.name, "", seen.version)

    async def lease(self, node: ipam.NodeName) -> ipam.NodeLease | None:
        """Return a node's lease, None without one; raise Refused if it cannot be understood."""
        stored = await self._cluster.get(LEASE, objects.lease_name(node), self._namespace)
        return lease(stored) if stored else None

    async def write_lease(self, written: ipam.NodeLease) -> ipam.NodeLease | None:
        """Create the Lease of a node lease without a version, else replace exactly its version.

        Return the lease as stored; None where it was not written or that is unknown. Raise Refused
        where the API server refused it.
        """
        name = objects.lease_name(written.node)
        spec = objects.lease_spec(written)
        notes = tuple(sorted(objects.lease_annotations(written).items()))
        wanted = Wanted(name, self._namespace, spec, (objects.LEASE_LABEL,), notes)
        stored = await self._write(LEASE, wanted, spec, written.version)
        return lease(stored) if stored else None

    async def drop_lease(self, seen: ipam.NodeLease) -> None:
        """Delete a node's Lease if it still has the version that was seen."""
        await self._drop(LEASE, objects.lease_name(seen.node), self._namespace, seen.version)

    async def borrow_queue(self, name: ipam.PoolName) -> ipam.BorrowQueue:
        """Return the borrow queue of a pool; an empty one without version for a missing pool."""
        stored = await self._cluster.get(IP_POOL, name)
        return borrow_queue(stored) if stored else ipam.BorrowQueue(name)

    async def write_borrow_queue(self, written: ipam.BorrowQueue) -> ipam.BorrowQueue | None:
        """Replace the borrow queue in a pool's status if the pool still has the queue's version.

        The rest of the status stays. Return the queue as stored, None where it was not written or
        that is unknown. Raise Unavailable if the pool cannot be read, Refused for a refusal.
        """
        current = await self._cluster.get(IP_POOL, written.pool)
        if current is None or current.version != written.version:
            return None
        status = replace(current.status or IPPoolStatus(), wants=written.requests)
        made = self._cluster.replace_status(IP_POOL, replace(current, status=status))
        stored = await _outcome(made)
        return borrow_queue(stored) if stored else None

    async def _write(
        self, kind: ObjectKind[S, None], wanted: Wanted[S], spec: S, version: ipam.Version | None
    ) -> Stored[S, None] | None:
        """Create an object if `version` is None, else replace exactly that version.

        Return the object as stored; None where it was not written or that is unknown. Raise Refused
        where the API server refused it.
        """
        if version is None:
            return await _outcome(self._cluster.create(kind, wanted))
        name, namespace, labels = wanted.name, wanted.namespace, wanted.labels
        changed: Stored[S, None] = Stored(
            name, namespace, "", version, labels, wanted.annotations, spec, None
        )
        return await _outcome(self._cluster.replace(kind, changed))

    async def _drop(
        self, kind: ObjectKind[S, None], name: str, namespace: str, version: ipam.Version | None
    ) -> None:
        current = await self._cluster.get(kind, name, namespace)
        if current and current.version == version:
            await _outcome(self._cluster.delete(kind, current))


async def _outcome(writing: Awaitable[S]) -> S | None:
    """Return the result of a write; None where the write raised Unavailable.

    Raise Refused where the API server refused it.
    """
    try:
        return await writing
    except Unavailable:
        return None
