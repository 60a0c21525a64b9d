"""Plans the writes of a node into blocks: what it acquires, gives back, asks back or confirms.

`plan` makes every write of a node, from the block as it was last seen. A write says the whole of
the node's holding: what the block lists, plus what the node acquires, minus what it gives back. So
each write that succeeds tells the node exactly what it holds, and makes every older write that is
still under way fail. Only a plain success counts: after any other outcome the block stays uncertain
until a later write succeeds. That holds for a conflict too, as the API server answers with one to
the second delivery of a write that succeeded.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import replace
from kube_rdma.ipam.rules import subpools
from kube_rdma.ipam.rules.node_state import LocalHolding, NodeAddressState, suspend_right
from kube_rdma.model import ipam

_ROOMY = 256  # block sizes: room for so many nodes that acquire before they see each other
_ALL = (1 << ipam.BLOCK_ADDRESSES) - 1
_FIRST = 4  # addresses that a node acquires first in a smaller pool; then twice what it uses
# the owner of the address at each offset of a block; None: no pod gets it back later
_Tenants = Mapping[int, ipam.Owner | None]

BlockAddresses = tuple[tuple[ipam.BlockKey, ipam.Bits], ...]
"""Addresses of several blocks, by block."""

Blocks = Mapping[ipam.BlockKey, ipam.Block]
"""The blocks as the node sees them, perhaps late; one that is missing counts as free."""


def held_by(block: ipam.Block | None, node: ipam.NodeName) -> ipam.Bits:
    """Return the addresses that a block says `node` holds; none for a block that is None."""
    bits = 0
    for holding in block.holdings if block else ():
        if holding.node == node:
            bits |= holding.bits
    return ipam.Bits(bits)


def held(block: ipam.Block | None) -> ipam.Bits:
    """Return the addresses of a block that any node holds; none for a block that is None."""
    bits = 0
    for holding in block.holdings if block else ():
        bits |= holding.bits
    return ipam.Bits(bits)


def pinned(block: ipam.Block | None) -> ipam.Bits:
    """Return the addresses of a block that have a pin; none for a block that is None."""
    bits = 0
    for pin in block.pins if block else ():
        bits |= 1 << pin.offset
    return ipam.Bits(bits)


def slice_owner(node: ipam.NodeName, node_slice: ipam.Subnet) -> ipam.Owner:
    """Return the owner that the pin of a node's slice names: ``node/NAME/ADDRESS``.

    ADDRESS is the first address of the slice.
    """
    return ipam.Owner(f"node/{node}/{node_slice.network_address}")


def plan(
    state: NodeAddressState,
    key: ipam.BlockKey,
    block: ipam.Block | None,
    *,
    acquire: ipam.Bits = subpools.NONE,
    give_back: ipam.Bits = subpools.NONE,
) -> tuple[NodeAddressState, ipam.Block]:
    """Return the state while the node writes a block, and the block to write.

    The write asks back what is in use where no other node holds it. Of `acquire` it takes what is
    free, of `give_back` it gives back what is not in use.
    """
    holding = state.holdings.get(key, LocalHolding())
    needed = state.needed(key)
    returning = ipam.Bits((holding.returning | give_back) & ~needed)
    others = held(block) & ~held_by(block, state.node)
    own = (held_by(block, state.node) | needed | acquire) & ~others & ~returning
    holdings = [h for h in (block.holdings if block else ()) if h.node != state.node]
    if own:
        holdings.append(ipam.NodeHolding(state.node, ipam.Bits(own)))
    written = ipam.Block(
        key,
        tuple(sorted(holdings, key=lambda h: h.node)),
        _pins(block, _tenants(state, key).get(key, {}), ipam.Bits(own)),
        (block.edition if block else 0) + 1,
        block.version if block else None,
    )
    holding = replace(holding, returning=returning, uncertain=True)
    return replace(state, holdings={**state.holdings, key: holding}), written


def confirm(state: NodeAddressState, block: ipam.Block) -> NodeAddressState:
    """Return the state after a sure write of `block`: the node holds what the block says.

    Call it only for a write that was planned in the same term, one at a time for each block.
    """
    own = held_by(block, state.node)
    holdings = dict(state.holdings)
    before = holdings[block.key]
    holding = LocalHolding(
        confirmed=own, in_use=before.in_use, pinned=pinned(block), kept=before.kept
    )
    if holding.confirmed or holding.in_use or holding.kept:
        holdings[block.key] = holding
    else:
        del holdings[block.key]
    return replace(state, holdings=holdings)


def is_rollback(old: ipam.Block | None, new: ipam.Block | None) -> bool:
    """Return whether a later look at a block, `new`, shows that etcd was restored since `old`.

    That is so if `new` has a lower version. It is so too if nodes held addresses of `old`, and
    `new` is None or has a lower edition. The controller deletes only blocks that no node holds.
    """
    if old is None:
        return False
    if new is None:
        return bool(old.holdings)
    if new.version == old.version:
        return False
    return is_older(new, old) or bool(old.holdings and new.edition < old.edition)


def is_older(block: ipam.Block, other: ipam.Block) -> bool:
    """Return whether `block` has a lower version than `other`.

    A version that is no number counts as 0.
    """
    return _number(block.version) < _number(other.version)


def _number(version: ipam.Version | None) -> int:
    """Return a resourceVersion as a number to compare (KEP-5504), 0 for any other text or None."""
    return int(version) if version and version.isdecimal() else 0


def after_rollback(
    state: NodeAddressState, blocks: Blocks, trusted: Mapping[ipam.BlockKey, ipam.Bits]
) -> NodeAddressState:
    """Return the state without the right; addresses in use that other nodes hold are in `taken`.

    Addresses `trusted` to be this node's are not: some blocks may be of the restored etcd by now.
    """
    taken = {
        key: ipam.Bits(
            (holding.in_use | holding.kept)
            & held(blocks.get(key))
            & ~held_by(blocks.get(key), state.node)
            & ~trusted.get(key, subpools.NONE)
        )
        for key, holding in state.holdings.items()
    }
    return replace(suspend_right(state), taken=taken)


def missing(state: NodeAddressState, blocks: Blocks) -> bool:
    """Return whether the blocks lack holdings of this node for addresses that it has in use.

    If the node's right was not revoked, that means that etcd was restored.
    """
    needed = ((key, one.in_use | one.kept) for key, one in state.holdings.items())
    return any(bits & ~held_by(blocks.get(key), state.node) for key, bits in needed)


def recall(
    state: NodeAddressState, blocks: Blocks, trusted: Mapping[ipam.BlockKey, ipam.Bits]
) -> NodeAddressState:
    """Return the state after etcd was restored, in which the node's blocks are to be written again.

    The writes ask back what the node needs (`NodeAddressState.needed`) and keep `trusted`
    addresses. They give back all others, which another node may have acquired since. Writes that
    were planned before do not count any more.
    """
    holdings = dict(state.holdings)
    for key in {k for k, block in blocks.items() if held_by(block, state.node)} | set(holdings):
        holding = holdings.get(key, LocalHolding())
        returning = ipam.Bits(_ALL & ~trusted.get(key, subpools.NONE) & ~state.needed(key))
        holdings[key] = LocalHolding(
            in_use=holding.in_use, returning=returning, uncertain=True, kept=holding.kept
        )
    return replace(state, holdings=holdings, term=state.term + 1)


def forgettable(state: NodeAddressState, key: ipam.BlockKey, block: ipam.Block | None) -> bool:
    """Return whether the node has nothing to settle in a block whose write has failed.

    The node then holds, uses and gives back no address of the block. A write that succeeds late
    shows up as a holding.
    """
    holding = state.holdings.get(key, LocalHolding())
    own = holding.confirmed | holding.in_use | holding.kept | holding.returning
    return not (own | held_by(block, state.node))


def forget(state: NodeAddressState, key: ipam.BlockKey) -> NodeAddressState:
    """Return the state without the node's holding in the block."""
    left = {other: holding for other, holding in state.holdings.items() if other != key}
    return replace(state, holdings=left)


def unsettled(state: NodeAddressState, blocks: Blocks) -> tuple[ipam.BlockKey, ...]:
    """Return the blocks to write again: uncertain, without labels, or different from the state."""
    owned = {key for key, block in blocks.items() if held_by(block, state.node)}
    tenants = _tenants(state)
    keys = []
    for key in sorted(owned | set(state.holdings)):
        block, holding = blocks.get(key), state.holdings.get(key, LocalHolding())
        own = held_by(block, state.node)
        lacking = state.needed(key) & ~held(block)  # in use, and could be asked back
        is_mispinned = block and _pins(block, tenants.get(key, {}), own) != block.pins
        is_hidden = block and own and not block.is_labelled
        if holding.uncertain or own != holding.confirmed or lacking or is_mispinned or is_hidden:
            keys.append(key)
    return tuple(keys)


def choose_addresses(
    state: NodeAddressState, blocks: Blocks, subpool: subpools.Subpool, count: int
) -> BlockAddresses:
    """Return up to `count` free addresses of a subpool by block, from the node's start block on.

    A block that the node does not see counts as free; one with an uncertain holding is left out.
    Pinned addresses are chosen only if no other is free.
    """
    return _walk(state, blocks, subpool, count, pins=False) or _walk(
        state, blocks, subpool, count, pins=True
    )


def free_of(
    block: ipam.Block | None, subpool: subpools.Subpool, key: ipam.BlockKey, count: int
) -> ipam.Bits:
    """Return up to `count` free addresses of a block in the subpool.

    Pinned addresses are chosen only if no other is free.
    """
    free = subpools.mask(subpool, key) & ~held(block)
    fresh = free & ~pinned(block)
    return subpools.lowest(fresh or free, count)


def vacancy(blocks: Blocks, subpool: subpools.Subpool) -> tuple[int, int]:
    """Return how many addresses of the subpool are free, and how many nodes hold some."""
    taken, nodes = 0, set()
    for key, block in blocks.items():
        if block.holdings and (given := subpools.mask(subpool, key)):
            for holding in block.holdings:
                if bits := holding.bits & given:
                    taken += bits.bit_count()
                    nodes.add(holding.node)
    return subpool.size - taken, len(nodes)


def outlook(state: NodeAddressState, blocks: Blocks, subpool: subpools.Subpool) -> tuple[int, int]:
    """Return estimates: how many addresses of a subpool are free, and how many nodes hold some.

    The share that other nodes hold in the blocks that this node sees stands for the whole subpool.
    Without such blocks all that this node does not hold counts as free.
    """
    seen = taken = own = 0
    nodes = set()
    for key, block in blocks.items():
        mine = held_by(block, state.node)
        given = subpools.mask(subpool, key)
        own += (given & mine).bit_count()
        seen += (given & ~mine).bit_count()
        taken += (given & ~mine & held(block)).bit_count()
        nodes |= {h.node for h in block.holdings if h.bits & given & ~mine}
    rest = subpool.size - own
    if not seen:
        return rest, 1
    return rest * (seen - taken) // seen, 1 + len(nodes) * rest // seen


def ahead_limit(
    state: NodeAddressState, blocks: Blocks, subpool: subpools.Subpool, *, sees_all: bool
) -> int:
    """Return how many addresses the node may acquire ahead, the block size at most.

    How many nodes will acquire is unknown. So a node takes half of an even share of what is left.
    It begins small where many nodes at once could empty the pool by a block size each.
    """
    vacant, nodes = vacancy(blocks, subpool) if sees_all else outlook(state, blocks, subpool)
    share = min(subpool.block_size, vacant // (2 * max(nodes, 1)))
    if vacant >= _ROOMY * subpool.block_size:
        return share
    own = (one.in_use & subpools.mask(subpool, key) for key, one in state.holdings.items())
    return min(share, max(_FIRST, 2 * sum(bits.bit_count() for bits in own)))


def last_of(
    blocks: Blocks, subpool: subpools.Subpool, owner: ipam.Owner
) -> tuple[ipam.Address, ...]:
    """Return the addresses of the subpool that pins in the blocks give as the owner's last."""
    return tuple(
        key.address(pin.offset)
        for key, block in blocks.items()
        for pin in block.pins
        if pin.owner == owner and subpools.mask(subpool, key) >> pin.offset & 1
    )


def _walk(
    state: NodeAddressState, blocks: Blocks, subpool: subpools.Subpool, count: int, *, pins: bool
) -> BlockAddresses:
    chosen: list[tuple[ipam.BlockKey, ipam.Bits]] = []
    origin = subpools.start_block(subpool, state.node)
    for step in range(min(subpool.block_count, len(blocks) + len(subpool.spans) + count)):
        if count <= 0:
            break
        key = subpools.key_at(subpool, (origin + step) % subpool.block_count)
        holding = state.holdings.get(key)
        if holding and holding.uncertain:
            continue
        block = blocks.get(key)
        free = subpools.mask(subpool, key) & ~held(block)
        if not pins:
            free &= ~pinned(block)
        if free:
            bits = subpools.lowest(free, count)
            chosen.append((key, bits))
            count -= bits.bit_count()
    return tuple(chosen)


def _tenants(
    state: NodeAddressState, only: ipam.BlockKey | None = None
) -> dict[ipam.BlockKey, dict[int, ipam.Owner | None]]:
    """Return the owners of containers' addresses that the node surely holds, by block and offset.

    With `only`, return owners of that block alone. At the first address of a slice that containers
    use the owner is the node, unless a pod's interface is.
    """
    tenants: dict[ipam.BlockKey, dict[int, ipam.Owner | None]] = {}
    slices: set[tuple[ipam.NetworkName, ipam.Subnet]] = set()
    if only and not (only in state.holdings and state.needed(only)):
        return tenants
    for record in state.records.values():
        for allocation in record.live:
            if allocation.node_slice:
                slices.add((allocation.network, allocation.node_slice))
            if only and not 0 <= int(allocation.address) - only.first < ipam.BLOCK_ADDRESSES:
                continue
            key, bit = subpools.key_of(allocation.network, allocation.address)
            if state.holdings[key].confirmed & bit:
                tenants.setdefault(key, {})[bit.bit_length() - 1] = allocation.owner
    for network, node_slice in slices:
        key, bits = subpools.anchor(network, node_slice)
        offset = int(node_slice.network_address) - key.first
        if only in (None, key) and not bits & ~state.holdings[key].confirmed:
            own = tenants.setdefault(key, {})
            own[offset] = own.get(offset) or slice_owner(state.node, node_slice)
    return tenants


def _pins(block: ipam.Block | None, tenants: _Tenants, own: ipam.Bits) -> tuple[ipam.Pin, ...]:
    """Return the pins of a block after a write by a node that then holds `own`.

    Only pins at these addresses change, and other pins of owners that get a pin there.
    """
    tenants = {offset: owner for offset, owner in tenants.items() if own >> offset & 1}
    owners = set(tenants.values())
    pins = block.pins if block else ()
    kept = [pin for pin in pins if pin.offset not in tenants and pin.owner not in owners]
    kept += [ipam.Pin(owner, offset) for offset, owner in tenants.items() if owner]
    return tuple(sorted(kept, key=lambda pin: (pin.offset, pin.owner)))
