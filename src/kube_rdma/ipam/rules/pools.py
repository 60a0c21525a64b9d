"""Pools beside each other and over time: overlaps, and which held addresses a change drops.

Admission asks when a pool is changed or deleted, `kube-rdma ip check` asks about what is there.
Nothing here protects an address: blocks do that, whatever pools say. It spares people surprises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import combinations

from kube_base.errors import Refused
from kube_rdma.ipam.rules.subpools import Subpool, mask, offsets, subpools
from kube_rdma.lib.phrases import listed
from kube_rdma.model.ipam import (
    Address,
    AddressRequest,
    Bits,
    Block,
    Family,
    IPPool,
    NodeName,
    PoolName,
)


def overlaps(pools: Iterable[IPPool]) -> tuple[str, ...]:
    """A warning for each two pools of a network that can give the same addresses.

    That is allowed, an address is still given once; but the pools are full earlier than they look.
    """
    compiled = [(pool, subpools(pool)) for pool in sorted(pools, key=lambda each: each.name)]
    warnings = []
    for (pool, own_subpools), (other, other_subpools) in combinations(compiled, 2):
        if pool.network != other.network:
            continue
        common = sorted(
            {span for a in own_subpools for b in other_subpools for span in _common(a, b)}
        )
        if common:
            family, first, last = common[0]
            more = f" and {len(common) - 1} more ranges" if len(common) > 1 else ""
            warnings.append(
                f"IPPool {pool.name} and IPPool {other.name} both give "
                f"{_address(family, first)}-{_address(family, last)}{more} of network "
                f"{pool.network}: each address is given once, so both have less than they say"
            )
    return tuple(warnings)


def lost(old: IPPool, new: IPPool | None, blocks: Iterable[Block]) -> str:
    """A warning when `new` (None: the deletion) no longer gives what nodes hold; empty without.

    No address comes to harm, pods keep what they have. It is not a refusal since a node holds more
    than its pods use, and what pods use the node alone knows.
    """
    kept = subpools(new) if new and new.network == old.network else ()
    gone = list(_lost(subpools(old), kept, blocks))
    if not gone:
        return ""
    named = listed([str(address) for _, addresses in gone for address in addresses])
    nodes = listed(sorted({node for node, _ in gone}))
    count = sum(len(addresses) for _, addresses in gone)
    what = "deleting it" if new is None else "the change"
    return (
        f"IPPool {old.name}: {what} takes {counted(count)} that nodes hold ({named}, on {nodes}): "
        "pods that have them keep them until they end, and no pod gets them after that"
    )


def refuse_namespace(request: AddressRequest, pools: Mapping[PoolName, IPPool]) -> None:
    """Raise Refused for the first NIC whose pool is not for the pod's namespace.

    A pool that is not in `pools` is left to grant.grant, which refuses it for another reason.
    """
    for nic in request.nics:
        pool = pools.get(nic.pool)
        if pool and pool.namespaces and request.namespace not in pool.namespaces:
            asker = f"namespace {request.namespace}" if request.namespace else "no namespace"
            raise Refused(
                f"IPPool {pool.name} is for pods of {listed(pool.namespaces)}, "
                f"and this pod is of {asker}",
                remedy="Name a pool of the pod's own namespace, or have the namespace added to "
                "spec.namespaces of the pool",
                where=f"interface {nic.interface}",
            )


def counted(addresses: int) -> str:
    """How many addresses, as a sentence says it."""
    return "1 address" if addresses == 1 else f"{addresses} addresses"


def _lost(
    before: Sequence[Subpool], kept: Sequence[Subpool], blocks: Iterable[Block]
) -> Iterator[tuple[NodeName, list[Address]]]:
    for block in blocks:
        gone = 0
        for subpool in before:
            gone |= mask(subpool, block.key)
        for subpool in kept:
            gone &= ~mask(subpool, block.key)
        for holding in block.holdings:
            if bits := Bits(holding.bits & gone):
                yield holding.node, [block.key.address(offset) for offset in offsets(bits)]


def _common(subpool: Subpool, other: Subpool) -> Iterator[tuple[Family, int, int]]:
    """The spans that both have; both are sorted, so each is walked once."""
    if subpool.family != other.family:
        return
    a = b = 0
    while a < len(subpool.spans) and b < len(other.spans):
        first = max(subpool.spans[a][0], other.spans[b][0])
        last = min(subpool.spans[a][1], other.spans[b][1])
        if first <= last:
            yield subpool.family, first, last
        if subpool.spans[a][1] < other.spans[b][1]:
            a += 1
        else:
            b += 1


def _address(family: Family, number: int) -> Address:
    return IPv4Address(number) if family is Family.V4 else IPv6Address(number)
