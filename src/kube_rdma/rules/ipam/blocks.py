"""What a node writes into blocks: claims, what it gives back, and what settles a doubt.

Every write of a node is made by `plan`, from the block as it was just read, and says the whole of
the node's part: what the block says it holds, with what is to be added, without what is to leave.
So each write that succeeds tells the node exactly what it holds, and makes every older write that
is still under way fail. An outcome that is not a plain success is no outcome: the cell stays in
doubt until a later write succeeds. A conflict too, since a repeated delivery of a write that
succeeded is answered with one.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_rdma.model.frozen import replace
from kube_rdma.model.ipam import (
    CELL,
    Address,
    Bits,
    Block,
    Cell,
    CellHolding,
    NodeName,
    Owner,
    Pin,
    Version,
)
from kube_rdma.rules.ipam.cells import NONE, Zone, cell_at, cell_of, lowest, mask, start
from kube_rdma.rules.ipam.node_state import Hold, NodeAddressState, cut

_ROOMY = 256  # blocks: as many nodes may begin at the same time, before they see each other
_ALL = (1 << CELL) - 1
_FIRST = 4  # addresses that a node claims first in a smaller pool; then twice what it uses
_Tenants = Mapping[int, Owner | None]  # who lives at which place of a cell; None: not sticky

Blocks = Mapping[Cell, Block]
"""The blocks as the node sees them, perhaps late; a cell that is missing has no object."""


def holds_of(block: Block | None, node: NodeName) -> Bits:
    """What the block says that `node` holds."""
    bits = 0
    for holding in block.holdings if block else ():
        if holding.node == node:
            bits |= holding.bits
    return Bits(bits)


def held(block: Block | None) -> Bits:
    """What any node holds."""
    bits = 0
    for holding in block.holdings if block else ():
        bits |= holding.bits
    return Bits(bits)


def pinned(block: Block | None) -> Bits:
    """The addresses that were somebody's last."""
    bits = 0
    for pin in block.pins if block else ():
        bits |= 1 << pin.place
    return Bits(bits)


def plan(
    state: NodeAddressState, cell: Cell, block: Block | None, *, add: Bits = NONE, give: Bits = NONE
) -> tuple[NodeAddressState, Block]:
    """The next write of a cell, and the state while it is under way.

    What has users is asked back where nobody holds it. Of `add` it takes what is free, of `give` it
    leaves what is spare.
    """
    hold = state.holds.get(cell, Hold())
    own = state.claims(cell)
    leaving = Bits((hold.leaving | give) & ~own)
    others = held(block) & ~holds_of(block, state.node)
    mine = (holds_of(block, state.node) | own | add) & ~others & ~leaving
    keep = [h for h in (block.holdings if block else ()) if h.node != state.node]
    if mine:
        keep.append(CellHolding(state.node, Bits(mine)))
    written = Block(
        cell,
        tuple(sorted(keep, key=lambda h: h.node)),
        _pins(block, _tenants(state, cell).get(cell, {})),
        (block.edition if block else 0) + 1,
        block.version if block else None,
    )
    hold = replace(hold, leaving=leaving, doubt=True)
    return replace(state, holds={**state.holds, cell: hold}), written


def confirmed(state: NodeAddressState, block: Block) -> NodeAddressState:
    """The write surely succeeded: this is what the node holds now.

    Only for writes planned in the same term, one at a time for each cell (agent.write).
    """
    mine = holds_of(block, state.node)
    holds = dict(state.holds)
    hold = Hold(mine=mine, used=holds[block.cell].used, pinned=pinned(block))
    if hold.mine or hold.used:
        holds[block.cell] = hold
    else:
        del holds[block.cell]
    return replace(state, holds=holds)


def went_back(old: Block | None, new: Block | None) -> bool:
    """No store that goes on shows `new` after `old`: an older one, or none where one was held.

    Only a block that nobody holds is deleted, and may be there anew: with an edition that began
    again, and a version that is higher than before.
    """
    if old is None:
        return False
    if new is None:
        return bool(old.holdings)
    if new.version == old.version:
        return False
    return is_older(new, old) or bool(old.holdings and new.edition < old.edition)


def is_older(block: Block, other: Block) -> bool:
    """By the API server's count, where it has one."""
    return _number(block.version) < _number(other.version)


def _number(version: Version | None) -> int:
    """Versions of one resource are numbers that rise (KEP-5504); of others nothing is known."""
    return int(version) if version and version.isdecimal() else 0


def outdated(state: NodeAddressState, blocks: Blocks) -> NodeAddressState:
    """The right is lost since the store went back; what others had by then is theirs."""
    taken = {
        cell: Bits(hold.used & held(blocks.get(cell)) & ~holds_of(blocks.get(cell), state.node))
        for cell, hold in state.holds.items()
    }
    return replace(cut(state), taken=taken)


def missing(state: NodeAddressState, blocks: Blocks) -> bool:
    """Addresses in use stand in no block as the node's, though nobody took its right away."""
    return any(
        hold.used & ~holds_of(blocks.get(cell), state.node) for cell, hold in state.holds.items()
    )


def recalled(
    state: NodeAddressState, blocks: Blocks, sure: Mapping[Cell, Bits]
) -> NodeAddressState:
    """The state after the store went back: of what blocks say, only `sure` is believed.

    What has users is asked back. All else is given back, for since then it may have become
    another node's. Writes that were planned before count no more.
    """
    holds = dict(state.holds)
    for cell in {c for c, block in blocks.items() if holds_of(block, state.node)} | set(holds):
        hold = holds.get(cell, Hold())
        leaving = Bits(_ALL & ~sure.get(cell, NONE) & ~state.claims(cell))
        holds[cell] = Hold(used=hold.used, leaving=leaving, doubt=True)
    return replace(state, holds=holds, term=state.term + 1)


def forgettable(state: NodeAddressState, cell: Cell, block: Block | None) -> bool:
    """A claim failed where the node has nothing, and the block as just read says so too.

    Nothing is granted there, so nothing has to be settled; a late claim shows up as a holding.
    """
    hold = state.holds.get(cell, Hold())
    return not (hold.mine | hold.used | hold.leaving | holds_of(block, state.node))


def forgotten(state: NodeAddressState, cell: Cell) -> NodeAddressState:
    """The state without the cell."""
    return replace(state, holds={key: hold for key, hold in state.holds.items() if key != cell})


def unsettled(state: NodeAddressState, blocks: Blocks) -> tuple[Cell, ...]:
    """Cells to write again: in doubt, or seen to be otherwise than this node believes."""
    owned = {cell for cell, block in blocks.items() if holds_of(block, state.node)}
    tenants = _tenants(state)
    return tuple(
        cell
        for cell in sorted(owned | set(state.holds))
        if _differs(state, cell, blocks.get(cell))
        or _mispinned(blocks.get(cell), tenants.get(cell, {}))
    )


def choose(
    state: NodeAddressState, blocks: Blocks, zone: Zone, count: int
) -> tuple[tuple[Cell, Bits], ...]:
    """Where to claim `count` addresses, in a zone of any size; fewer where it has no more.

    The walk begins at the node's own place and ends after as many cells as there are blocks: one
    without an object is free. Others' pinned addresses come last.
    """
    return _walk(state, blocks, zone, count, pins=False) or _walk(
        state, blocks, zone, count, pins=True
    )


def free_of(block: Block | None, zone: Zone, cell: Cell, count: int) -> Bits:
    """Up to `count` addresses of the cell that nobody holds, of those nobody's last ones first."""
    free = mask(zone, cell) & ~held(block)
    fresh = free & ~pinned(block)
    return lowest(fresh or free, count)


def vacancy(blocks: Blocks, zone: Zone) -> tuple[int, int]:
    """How many addresses of the zone nobody holds, and how many nodes hold some."""
    taken, nodes = 0, set()
    for cell, block in blocks.items():
        if block.holdings and (given := mask(zone, cell)):
            for holding in block.holdings:
                if bits := holding.bits & given:
                    taken += bits.bit_count()
                    nodes.add(holding.node)
    return zone.size - taken, len(nodes)


def portion(state: NodeAddressState, blocks: Blocks, zone: Zone) -> int:
    """How many addresses the node may claim ahead, the block size at most.

    Nobody knows how many nodes will ask. So of what is left a node takes half of an even share, and
    where many nodes at once could empty the pool with a block each, it begins small. The last
    addresses of a pool are claimed singly, and none has to be given back.
    """
    vacant, nodes = vacancy(blocks, zone)
    share = min(zone.block_size, vacant // (2 * max(nodes, 1)))
    if vacant >= _ROOMY * zone.block_size:
        return share
    used = sum((hold.used & mask(zone, cell)).bit_count() for cell, hold in state.holds.items())
    return min(share, max(_FIRST, 2 * used))


def last_of(blocks: Blocks, zone: Zone, owner: Owner) -> tuple[Address, ...]:
    """Where the owner's pins lie in the zone."""
    return tuple(
        cell.address(pin.place)
        for cell, block in blocks.items()
        for pin in block.pins
        if pin.owner == owner and mask(zone, cell) >> pin.place & 1
    )


def _walk(
    state: NodeAddressState, blocks: Blocks, zone: Zone, count: int, *, pins: bool
) -> tuple[tuple[Cell, Bits], ...]:
    claims: list[tuple[Cell, Bits]] = []
    origin = start(zone, state.node)
    for step in range(min(zone.cells, len(blocks) + len(zone.spans) + count)):
        if count <= 0:
            break
        cell = cell_at(zone, (origin + step) % zone.cells)
        hold = state.holds.get(cell)
        if hold and hold.doubt:
            continue
        block = blocks.get(cell)
        free = mask(zone, cell) & ~held(block)
        if not pins:
            free &= ~pinned(block)
        if free:
            bits = lowest(free, count)
            claims.append((cell, bits))
            count -= bits.bit_count()
    return tuple(claims)


def _differs(state: NodeAddressState, cell: Cell, block: Block | None) -> bool:
    """The block says otherwise, or an address in use could be asked back."""
    hold = state.holds.get(cell, Hold())
    is_other = hold.doubt or holds_of(block, state.node) != hold.mine
    return is_other or bool(state.claims(cell) & ~held(block))


def _mispinned(block: Block | None, tenants: _Tenants) -> bool:
    return block is not None and _pins(block, tenants) != block.pins


def _tenants(
    state: NodeAddressState, only: Cell | None = None
) -> dict[Cell, dict[int, Owner | None]]:
    """Who lives where, of the addresses that the node surely holds; in one cell, or in all."""
    tenants: dict[Cell, dict[int, Owner | None]] = {}
    if only and not (only in state.holds and state.holds[only].used):
        return tenants
    for booking in state.bookings.values():
        for lease in booking.live:
            if only and not 0 <= int(lease.address) - only.first < CELL:
                continue
            cell, bit = cell_of(lease.network, lease.address)
            if state.holds[cell].mine & bit:
                tenants.setdefault(cell, {})[bit.bit_length() - 1] = lease.owner
    return tenants


def _pins(block: Block | None, tenants: _Tenants) -> tuple[Pin, ...]:
    """The block's pins made true: a place is its tenant's, and an owner has one place in a cell."""
    owners = set(tenants.values())
    kept = [
        pin
        for pin in (block.pins if block else ())
        if pin.place not in tenants and pin.owner not in owners
    ]
    kept += [Pin(owner, place) for place, owner in tenants.items() if owner]
    return tuple(sorted(kept, key=lambda pin: (pin.place, pin.owner)))
