"""Borrowing: how a node that lacks addresses asks the other nodes, and what they give back.

A node writes a BorrowRequest into the queue of the pool, where every node sees it. Nodes with spare
addresses give back as many; these are then free, and the node that lacks addresses claims them.
While a pool has borrow requests no node claims ahead, so pods get its last address too.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_base.frozen import replace
from kube_rdma.ipam.rules.blocks import Blocks, vacancy
from kube_rdma.ipam.rules.grant import Shortage
from kube_rdma.ipam.rules.node_state import NodeAddressState, spare
from kube_rdma.ipam.rules.subpools import Subpool, key_of, lowest, mask, subpools_for
from kube_rdma.model.ipam import Address, Bits, BlockKey, BorrowQueue, BorrowRequest, NodeName

MOST_WANTS = 64  # of a node in a pool: families, rails and certain addresses
_AHEAD = 3  # times the block size: more than this is given back unasked


def with_requests_of(
    queue: BorrowQueue, node: NodeName, shortages: Iterable[Shortage]
) -> BorrowQueue | None:
    """The queue with the node's requests, in the node's old place; None: it has them already."""
    requests = tuple(
        BorrowRequest(
            node, shortage.subpool.family, shortage.subpool.rail, shortage.count, shortage.address
        )
        for shortage in shortages
        if shortage.subpool.pool == queue.pool and shortage.subpool.is_shared
    )
    requests = requests[:MOST_WANTS]
    own = [at for at, request in enumerate(queue.requests) if request.node == node]
    at = own[0] if own else len(queue.requests)
    others = tuple(request for request in queue.requests if request.node != node)
    whole = (*others[:at], *requests, *others[at:])
    return replace(queue, requests=whole) if whole != queue.requests else None


def has_requests_of(queue: BorrowQueue, node: NodeName) -> bool:
    """Whether the node has requests in the queue."""
    return any(request.node == node for request in queue.requests)


def has_requests_of_others(queue: BorrowQueue | None, node: NodeName) -> bool:
    """Whether another node lacks addresses: then claim no more than what is needed now."""
    return queue is not None and any(request.node != node for request in queue.requests)


def lendable(
    state: NodeAddressState,
    queue: BorrowQueue,
    pool: tuple[Subpool, ...],
    waiting: bool,
    blocks: Blocks,
) -> tuple[tuple[BlockKey, Bits], ...]:
    """What to give back for the requests; a node that is `waiting` itself serves those before it.

    Free addresses serve a request first: every node sees it, and the first to give back is enough.
    """
    lent: dict[BlockKey, int] = {}
    vacant: dict[tuple[int, int | None], int] = {}
    for request in queue.requests:
        if request.node == state.node:
            if waiting:
                break
            continue
        for subpool in subpools_for(pool, request.rail):
            if subpool.family == request.family and subpool.is_shared:
                count, part = request.count, (subpool.family, subpool.rail)
                if request.address is None:
                    if part not in vacant:
                        vacant[part] = vacancy(blocks, subpool)[0]
                    served = min(count, vacant[part])
                    vacant[part] -= served
                    count -= served
                _lend(state, lent, subpool, count, request.address)
    return tuple((key, Bits(bits)) for key, bits in lent.items())


def surplus(state: NodeAddressState, subpool: Subpool) -> tuple[tuple[BlockKey, Bits], ...]:
    """What to give back unasked: else a node would keep the addresses of many pods that ended."""
    lent: dict[BlockKey, int] = {}
    too_many = spare(state, subpool) - _AHEAD * subpool.block_size
    if too_many > 0:
        _lend(state, lent, subpool, too_many + subpool.block_size, None)
    return tuple((key, Bits(bits)) for key, bits in lent.items())


def _lend(
    state: NodeAddressState,
    lent: dict[BlockKey, int],
    subpool: Subpool,
    count: int,
    address: Address | None,
) -> None:
    """Add `count` spare addresses of the subpool, or just `address`, to what the node lends."""
    keys = list(state.holdings)
    only = -1
    if address is not None:
        key, only = key_of(subpool.network, address)
        keys = [key] if key in state.holdings else []
    for key in keys:
        free = state.holdings[key].spare & mask(subpool, key) & only & ~lent.get(key, 0)
        if free and count > 0:
            bits = lowest(free, count)
            lent[key] = lent.get(key, 0) | bits
            count -= bits.bit_count()
