"""Judges pools beside each other, and divides the pools whose nodes have slices.

`kube-rdma ip check` asks for overlaps. That protects no address: blocks do, whatever pools say. It
spares people surprises. A slice is the part of a pool's range that one node has for itself. A node
chooses one with its first pod (`choose_slice`). It owns the slice once it holds the slice's
addresses in the first block (`own_part`), and keeps it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import combinations

from kube_base.errors import Refused
from kube_rdma.ipam.rules.blocks import BlockAddresses, Blocks, held, held_by, slice_owner
from kube_rdma.ipam.rules.node_state import Holdings, NodeAddressState
from kube_rdma.ipam.rules.subpools import (
    NONE,
    Subpool,
    anchor,
    mask,
    part,
    slice_of,
    slices_from,
    subpools,
)
from kube_rdma.lib.phrases import listed
from kube_rdma.model import ipam


def overlaps(pools: Iterable[ipam.IPPool]) -> tuple[str, ...]:
    """Return a warning for each two pools of a network that can give the same addresses.

    That is allowed, an address is still given once; but the pools are full earlier than they look.
    Raise Refused for a pool that cannot be used.
    """
    compiled = [(pool, subpools(pool)) for pool in sorted(pools, key=lambda each: each.name)]
    warnings = []
    for (pool, own_subpools), (other, other_subpools) in combinations(compiled, 2):
        if pool.network != other.network:
            continue
        spans = {span for a in own_subpools for b in other_subpools for span in _common(a, b)}
        if common := sorted(spans):
            family, first, last = common[0]
            more = f" and {len(common) - 1} more ranges" if len(common) > 1 else ""
            warnings.append(
                f"IPPool {pool.name} and IPPool {other.name} both give "
                f"{family.address(first)}-{family.address(last)}{more} of network "
                f"{pool.network}: each address is given once, so both have less than they say"
            )
    return tuple(warnings)


def refuse_namespace(
    request: ipam.AddressRequest, pools: Mapping[ipam.PoolName, ipam.IPPool]
) -> None:
    """Raise Refused for the first NIC whose pool is not for the pod's namespace.

    A NIC whose pool is not in `pools` is left to grant.grant.
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
    """Return a number of addresses as words of a sentence: ``1 address``, ``2 addresses``."""
    return "1 address" if addresses == 1 else f"{addresses} addresses"


def _common(subpool: Subpool, other: Subpool) -> Iterator[tuple[ipam.Family, int, int]]:
    """Yield family, first and last address of each span of addresses that two subpools share."""
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


# Slices of nodes.


def own_part(node: ipam.NodeName, holdings: Holdings, subpool: Subpool) -> Subpool | None:
    """Return the part of a subpool that this node owns; None while it owns no slice of it.

    Without slices it is the whole subpool. Of several slices, which a change of the pool can leave,
    it is the lowest with addresses in use, else the lowest.
    """
    if subpool.per_node is None:
        return subpool
    owned = []
    for key, holding in holdings.items():
        sure = holding.confirmed & ~holding.returning
        for node_slice in _slices_in(subpool, key) if sure & mask(subpool, key) else ():
            at, bits = anchor(subpool.network, node_slice)
            if at == key and not bits & ~sure and _may_have(node, subpool, node_slice):
                owned.append((not holding.kept & bits, int(node_slice.network_address), node_slice))
    return part(subpool, min(owned, key=lambda entry: entry[:2])[2]) if owned else None


def strays(node: ipam.NodeName, holdings: Holdings, subpool: Subpool) -> BlockAddresses:
    """Return unused addresses that the node holds outside its own slice, to give back, by block.

    A change of the pool or two requests at once may leave them. Other nodes need the slice whole.
    """
    if subpool.per_node is None:
        return ()
    own = own_part(node, holdings, subpool)
    at, bits = anchor(own.network, own.node_slice) if own and own.node_slice else (None, NONE)
    lent = []
    for key, holding in holdings.items():
        used = holding.in_use | holding.kept | (bits if key == at else NONE)
        used |= mask(own, key) if own else NONE
        if free := ipam.Bits(holding.confirmed & mask(subpool, key) & ~used & ~holding.returning):
            lent.append((key, free))
    return tuple(lent)


def choose_slice(
    state: NodeAddressState, blocks: Blocks, subpool: Subpool
) -> tuple[ipam.BlockKey, ipam.Bits] | None:
    """Return the anchor of a slice to acquire; None where none is free, or the node owns one.

    A slice that people chose for the node is the only choice. Without one, the slice that the node
    had last comes first. Free slices follow, from a place that the node's name decides; slices
    that other nodes had last come at the end.
    """
    if own_part(state.node, state.holdings, subpool):
        return None
    taken = _taken(state, blocks, subpool)
    entries = subpool.per_node.nodes if subpool.per_node else ()
    chosen = [entry.subnet for entry in entries if entry.node == state.node]
    slices = iter(chosen[:1]) if chosen else _in_order(state.node, blocks, subpool)
    of_others = {entry.subnet for entry in entries if entry.node != state.node}
    for node_slice in slices:
        key, bits = anchor(subpool.network, node_slice)
        if bits & held(blocks.get(key)) & ~held_by(blocks.get(key), state.node):
            continue
        last = int(node_slice.broadcast_address)
        at = bisect_left(taken, key.first + ipam.BLOCK_ADDRESSES)
        if at < len(taken) and taken[at] <= last:
            continue  # another node has addresses further on in this slice
        if node_slice not in of_others and part(subpool, node_slice):
            return key, bits
    return None


def anchor_in(
    state: NodeAddressState,
    blocks: Blocks,
    subpool: Subpool,
    key: ipam.BlockKey,
    block: ipam.Block | None,
) -> ipam.Bits:
    """Return the anchor to acquire in a block as just read; none if choose_slice has another."""
    newest = {at: other for at, other in blocks.items() if at != key}
    chosen = choose_slice(state, newest | ({key: block} if block else {}), subpool)
    return chosen[1] if chosen and chosen[0] == key else NONE


def _may_have(node: ipam.NodeName, subpool: Subpool, node_slice: ipam.Subnet) -> bool:
    """Return whether the pool's `nodes` entries allow the node to have this slice."""
    entries = subpool.per_node.nodes if subpool.per_node else ()
    about = [one for one in entries if one.node == node or one.subnet == node_slice]
    return all((one.node == node) == (one.subnet == node_slice) for one in about)


def _in_order(node: ipam.NodeName, blocks: Blocks, subpool: Subpool) -> Iterator[ipam.Subnet]:
    """Yield the slices in the order in which the node tries to acquire them."""
    pinned: dict[int, bool] = {}
    for key, block in blocks.items():
        for pin in block.pins if mask(subpool, key) else ():
            node_slice = slice_of(subpool, key.address(pin.offset))
            if pin.owner == slice_owner(node, node_slice):
                yield node_slice
            elif pin.owner.endswith(f"/{node_slice.network_address}"):
                pinned[int(node_slice.network_address)] = True
    yield from (one for one in _walk(node, subpool) if int(one.network_address) not in pinned)
    yield from _walk(node, subpool)


def _walk(node: ipam.NodeName, subpool: Subpool) -> Iterator[ipam.Subnet]:
    """Yield the slices, beginning with one that the node's name decides, so that nodes seldom race.

    The first of them come a second time at the end.
    """
    assert subpool.per_node
    prefix, subnets = subpool.per_node.prefix, [r.subnet for r in subpool.ranges]
    counts = [1 << (prefix - subnet.prefixlen) for subnet in subnets]
    digest = blake2b(f"{subpool.network}/{subpool.pool}/{node}".encode(), digest_size=8).digest()
    number, at = int.from_bytes(digest, "big") % sum(counts), 0
    while number >= counts[at]:
        number, at = number - counts[at], at + 1
    first = int(subnets[at].network_address) + (number << (subnets[at].max_prefixlen - prefix))
    yield from slices_from(subnets[at], prefix, subpool.excluded, first)
    for subnet in (*subnets[at + 1 :], *subnets[: at + 1]):
        yield from slices_from(subnet, prefix, subpool.excluded, int(subnet.network_address))


def _slices_in(subpool: Subpool, key: ipam.BlockKey) -> Iterator[ipam.Subnet]:
    """Yield the slices of a subpool whose anchor may be in this block."""
    assert subpool.per_node
    size = 1 << (key.address(0).max_prefixlen - subpool.per_node.prefix)
    for offset in range(0, ipam.BLOCK_ADDRESSES, min(size, ipam.BLOCK_ADDRESSES)):
        if mask(subpool, key) >> offset & 1:
            yield slice_of(subpool, key.address(offset))


def _taken(state: NodeAddressState, blocks: Blocks, subpool: Subpool) -> list[int]:
    """Return the first addresses of blocks where other nodes hold some of the subpool, sorted."""
    others = ((key, held(one) & ~held_by(one, state.node)) for key, one in blocks.items())
    return sorted(key.first for key, bits in others if bits & mask(subpool, key))
