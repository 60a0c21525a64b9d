"""Which slice of a pool is a node's own: each node has a subnet, with a router between them.

A slice belongs to the node that holds its anchor: all addresses of the slice that lie in its first
block, those that no pod gets too. A block is written by compare-and-swap, so an anchor has one
holder. A node gives addresses of a slice only while its last write that surely succeeded says that
it holds the whole anchor. So what is true of addresses is true of slices: no two nodes give from
one, a fenced node gives nothing, and after a restore of the store each node asks back the anchors
of what its pods have before anybody claims.

A node has one slice of each subpool, for a router has to know where its subnet is, and keeps it as
long as the node is there. The block keeps a pin for it, so a node that was gone and comes back gets
its slice again unless another node needed it. grant and agent ask here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from hashlib import blake2b

from kube_rdma.ipam.rules.blocks import Blocks, held, held_by, slice_owner
from kube_rdma.ipam.rules.node_state import LocalHolding, NodeAddressState
from kube_rdma.ipam.rules.subpools import NONE, Subpool, anchor, mask, part, slice_of, slices_from
from kube_rdma.model.ipam import (
    BLOCK_ADDRESSES,
    Bits,
    Block,
    BlockKey,
    NodeName,
    Subnet,
)

Holdings = Mapping[BlockKey, LocalHolding]


def own_part(node: NodeName, holdings: Holdings, subpool: Subpool) -> Subpool | None:
    """The part of a subpool that is this node's own; None while it owns no slice of it.

    Of several, which a change of the pool leaves, the one that containers have addresses of.
    """
    owned = []
    for key, holding in holdings.items():
        sure = holding.confirmed & ~holding.returning
        for node_slice in _slices_in(subpool, key) if sure & mask(subpool, key) else ():
            at, bits = anchor(subpool.network, node_slice)
            if at == key and not bits & ~sure and _may_have(node, subpool, node_slice):
                owned.append((not holding.kept & bits, int(node_slice.network_address), node_slice))
    return part(subpool, min(owned, key=lambda entry: entry[:2])[2]) if owned else None


def strays(
    node: NodeName, holdings: Holdings, subpool: Subpool
) -> tuple[tuple[BlockKey, Bits], ...]:
    """What the node holds of other slices than its own and does not use, to be given back.

    A change of the pool leaves it, or two requests that claimed at once. Other nodes need it whole.
    """
    if subpool.per_node is None:
        return ()
    own = own_part(node, holdings, subpool)
    at, bits = anchor(own.network, own.node_slice) if own and own.node_slice else (None, NONE)
    lent = []
    for key, holding in holdings.items():
        used = holding.in_use | holding.kept | (bits if key == at else NONE)
        used |= mask(own, key) if own else NONE
        if free := Bits(holding.confirmed & mask(subpool, key) & ~used & ~holding.returning):
            lent.append((key, free))
    return tuple(lent)


def choose_slice(
    state: NodeAddressState, blocks: Blocks, subpool: Subpool
) -> tuple[BlockKey, Bits] | None:
    """The anchor to claim; None where no slice is free, or the node owns one by now.

    First the slice that people chose for the node, then the one that it had last, then the first
    free one from a place that its name decides. What other nodes had last comes at the end.
    """
    if own_part(state.node, state.holdings, subpool):
        return None
    taken = _taken(state, blocks, subpool)
    chosen = _chosen(state.node, subpool)
    slices = iter([chosen]) if chosen else _in_order(state.node, blocks, subpool)
    entries = subpool.per_node.nodes if subpool.per_node else ()
    of_others = {entry.subnet for entry in entries if entry.node != state.node}
    for node_slice in slices:
        key, bits = anchor(subpool.network, node_slice)
        if bits & held(blocks.get(key)) & ~held_by(blocks.get(key), state.node):
            continue
        last = int(node_slice.broadcast_address)
        at = bisect_left(taken, key.first + BLOCK_ADDRESSES)
        if at < len(taken) and taken[at] <= last:
            continue  # another node has addresses further on in this slice
        if node_slice not in of_others and part(subpool, node_slice):
            return key, bits
    return None


def claim_in(
    state: NodeAddressState, blocks: Blocks, subpool: Subpool, key: BlockKey, block: Block | None
) -> Bits:
    """The anchor to claim in a block as it was just read; none where the choice is another now."""
    newest = {at: other for at, other in blocks.items() if at != key}
    chosen = choose_slice(state, newest | ({key: block} if block else {}), subpool)
    return chosen[1] if chosen and chosen[0] == key else NONE


def _may_have(node: NodeName, subpool: Subpool, node_slice: Subnet) -> bool:
    """Whether people chose this slice for the node, or neither this one nor another for it."""
    entries = subpool.per_node.nodes if subpool.per_node else ()
    return all(
        (entry.node == node) == (entry.subnet == node_slice)
        for entry in entries
        if entry.node == node or entry.subnet == node_slice
    )


def _chosen(node: NodeName, subpool: Subpool) -> Subnet | None:
    entries = subpool.per_node.nodes if subpool.per_node else ()
    return next((entry.subnet for entry in entries if entry.node == node), None)


def _in_order(node: NodeName, blocks: Blocks, subpool: Subpool) -> Iterator[Subnet]:
    """The slices in the order in which the node wants them."""
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


def _walk(node: NodeName, subpool: Subpool) -> Iterator[Subnet]:
    """All slices, from a place that differs from node to node: then nodes seldom race."""
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


def _slices_in(subpool: Subpool, key: BlockKey) -> Iterator[Subnet]:
    """The slices whose anchor can be in this block."""
    assert subpool.per_node
    size = 1 << (key.address(0).max_prefixlen - subpool.per_node.prefix)
    for offset in range(0, BLOCK_ADDRESSES, min(size, BLOCK_ADDRESSES)):
        if mask(subpool, key) >> offset & 1:
            yield slice_of(subpool, key.address(offset))


def _taken(state: NodeAddressState, blocks: Blocks, subpool: Subpool) -> list[int]:
    """Where blocks begin of which other nodes hold addresses."""
    return sorted(
        key.first
        for key, block in blocks.items()
        if held(block) & ~held_by(block, state.node) & mask(subpool, key)
    )
