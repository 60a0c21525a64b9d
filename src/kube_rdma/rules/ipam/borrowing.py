"""Borrowing: how a node that can serve no pod tells the others, and what they give back.

A want stands on the board of its pool, where every node sees it. A node that has spare addresses
gives up to as many back; they are then nobody's, and whoever is short claims them. While a want
stands nobody claims ahead, so a pool is filled to its last address.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_rdma.model.frozen import replace
from kube_rdma.model.ipam import Address, Bits, Board, Cell, NodeName, Want
from kube_rdma.rules.ipam.blocks import Blocks, vacancy
from kube_rdma.rules.ipam.cells import Zone, cell_of, lowest, mask, zones_for
from kube_rdma.rules.ipam.grant import Lack
from kube_rdma.rules.ipam.node_state import NodeAddressState, spare

_AHEAD = 3  # times the block size: more than this is given back unasked


def posted(board: Board, node: NodeName, lacks: Iterable[Lack]) -> Board | None:
    """The board with the node's wants, in the place where it stood before; None: they stand."""
    wants = tuple(
        Want(node, lack.zone.family, lack.zone.rail, lack.count, lack.address)
        for lack in lacks
        if lack.zone.pool == board.pool
    )
    own = [at for at, want in enumerate(board.wants) if want.node == node]
    at = own[0] if own else len(board.wants)
    others = tuple(want for want in board.wants if want.node != node)
    whole = (*others[:at], *wants, *others[at:])
    return replace(board, wants=whole) if whole != board.wants else None


def is_posted(board: Board, node: NodeName) -> bool:
    """The node has wants on the board."""
    return any(want.node == node for want in board.wants)


def is_wanted(board: Board | None, node: NodeName) -> bool:
    """Another node is short: claim no more than what is needed now."""
    return board is not None and any(want.node != node for want in board.wants)


def gifts(
    state: NodeAddressState, board: Board, pool: tuple[Zone, ...], waiting: bool, blocks: Blocks
) -> tuple[tuple[Cell, Bits], ...]:
    """What to give back for the wants; a node that is `waiting` itself serves those before it.

    What nobody holds by now serves them first: all see each want, and one gift for it is enough.
    """
    given: dict[Cell, int] = {}
    vacant: dict[tuple[int, int | None], int] = {}
    for want in board.wants:
        if want.node == state.node:
            if waiting:
                break
            continue
        for zone in zones_for(pool, want.rail):
            if zone.family == want.family:
                count, key = want.count, (zone.family, zone.rail)
                if want.address is None:
                    if key not in vacant:
                        vacant[key] = vacancy(blocks, zone)[0]
                    served = min(count, vacant[key])
                    vacant[key] -= served
                    count -= served
                _give(state, given, zone, count, want.address)
    return tuple((cell, Bits(bits)) for cell, bits in given.items())


def surplus(state: NodeAddressState, zone: Zone) -> tuple[tuple[Cell, Bits], ...]:
    """What to give back unasked: after many pods went, a node would keep their addresses."""
    given: dict[Cell, int] = {}
    too_many = spare(state, zone) - _AHEAD * zone.block_size
    if too_many > 0:
        _give(state, given, zone, too_many + zone.block_size, None)
    return tuple((cell, Bits(bits)) for cell, bits in given.items())


def _give(
    state: NodeAddressState, given: dict[Cell, int], zone: Zone, count: int, address: Address | None
) -> None:
    """Add `count` spare addresses of the zone, or just `address`, to what is given."""
    cells = list(state.holds)
    only = -1
    if address is not None:
        cell, only = cell_of(zone.network, address)
        cells = [cell] if cell in state.holds else []
    for cell in cells:
        free = state.holds[cell].spare & mask(zone, cell) & only & ~given.get(cell, 0)
        if free and count > 0:
            bits = lowest(free, count)
            given[cell] = given.get(cell, 0) | bits
            count -= bits.bit_count()
