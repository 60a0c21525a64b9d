"""What a node's agent does, act by act: serve requests, keep its right, keep its holdings true.

`enter` once after the journal was loaded, then `renew` every third of T and `tick` every second or
when a block or board changed; `add` and `delete` for each request, one at a time per container.
Each may stop anywhere, by a crash or an error: whatever was done is found again, from the journal
and from the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from functools import partial
from itertools import chain
from math import inf

from kube_base.errors import Refused, Unavailable
from kube_rdma.model.ipam import (
    Ask,
    Bits,
    Block,
    Board,
    Cell,
    ContainerId,
    InterfaceName,
    NodeLease,
    PoolName,
)
from kube_rdma.rules.ipam.blocks import (
    choose,
    confirmed,
    forgettable,
    forgotten,
    free_of,
    held,
    holds_of,
    last_of,
    missing,
    plan,
    portion,
    recalled,
    unsettled,
    went_back,
)
from kube_rdma.rules.ipam.borrowing import gifts, is_posted, is_wanted, posted, surplus
from kube_rdma.rules.ipam.cells import NONE, Zone, cell_of, mask
from kube_rdma.rules.ipam.effects import (
    Clock,
    IpamAgentState,
    ListBlocks,
    Pause,
    Put,
    ReadBlock,
    ReadBoard,
    ReadLease,
    Remove,
    Talk,
    WriteBlock,
    WriteBoard,
    WriteLease,
)
from kube_rdma.rules.ipam.grant import Granted, Short, ask
from kube_rdma.rules.ipam.node_lease import entry, is_back, is_ours, renewal
from kube_rdma.rules.ipam.node_state import (
    abandoned,
    cut,
    due,
    release,
    removed,
    renewed,
    retire,
    spare,
    stored,
)

_TRIES = 4  # of one write, before its cell is left in doubt for the next tick
_MOMENT = 0.2  # seconds between two looks at a pool that is full
_QUEUE = 12  # times the patience: so long a request may lose races while something is free


class _Claim(IntEnum):
    """How a claim ended: nothing was free, others were first, it was made."""

    NONE = 0
    LOST = 1
    MADE = 2


def _just(bits: Bits) -> Callable[[Block | None], Bits]:
    return lambda _: bits


_NOTHING = _just(NONE)


def enter(desk: IpamAgentState) -> Talk[None]:
    """Get the right to grant, then confirm every holding; waits while another journal has it."""
    seen: NodeLease | None = None
    since: float = yield Clock()
    while True:
        lease: NodeLease | None = yield ReadLease(desk.mine.node)
        sent: float = yield Clock()
        if lease != seen:
            seen, since = lease, sent
        if lease and desk.lease and lease.beat < desk.lease.beat:
            since = -inf  # an older store: who had the right then lost it to this process
        wish = entry(desk.mine, lease, sent - since, desk.timing, desk.rest)
        if not isinstance(wish, NodeLease):
            yield Pause(wish)
            continue
        written: NodeLease | None = yield WriteLease(wish)
        if written:
            break
        yield Pause(_MOMENT)
    desk.lease = written
    desk.state = renewed(desk.state, sent, written.duration)
    yield from _list(desk, sent, is_kept=is_ours(lease, desk.mine.journal))
    yield from settle(desk)


def _list(desk: IpamAgentState, sent: float, *, is_kept: bool) -> Talk[None]:
    """Read all blocks; after the store went back, ask back and give back before all else.

    `is_kept`: nobody took the node's right away, so what its pods have must stand in the blocks.
    """
    term = desk.state.term
    now: float = yield Clock()
    listed: dict[Cell, Block] = yield ListBlocks()
    if is_kept and not desk.is_back and missing(desk.state, listed):
        right = desk.state.right_until
        desk.go_back(sent)
        desk.state, term = replace(desk.state, right_until=right), desk.state.term
    desk.blocks = listed
    if desk.is_back and desk.state.term == term:
        desk.state = recalled(desk.state, listed, desk.sure)
        desk.recall_until = now + desk.timing.recall


def renew(desk: IpamAgentState) -> Talk[None]:
    """Keep the right; where it was taken away, stop granting at once and enter again."""
    for _ in range(2):
        if desk.is_back:
            break
        if desk.lease:
            sent: float = yield Clock()
            written: NodeLease | None = yield WriteLease(renewal(desk.lease))
            if written:
                desk.lease = written
                desk.state = renewed(desk.state, sent, written.duration)
                return
        current: NodeLease | None = yield ReadLease(desk.mine.node)
        now: float = yield Clock()
        has_right = now < desk.state.right_until
        if desk.lease and is_back(desk.lease, current, has_right=has_right):
            is_behind = current is not None and current.beat < desk.lease.beat
            desk.go_back(now, alone=not is_behind)
            break
        desk.lease = current if is_ours(current, desk.mine.journal) else None
        if desk.lease is None:
            break
    else:
        return
    desk.state = cut(desk.state)
    yield from enter(desk)


def add(desk: IpamAgentState, request: Ask) -> Talk[Granted]:
    """Serve a request: from what the node holds, else after claims, else of what others give back.

    Raises Refused, Unavailable and Broken as `ask` does, and Refused for a pool that stays full.
    """
    yield from _turn(desk, request.container)
    try:
        granted = yield from _add(desk, request)
    except Exception:
        yield from _satisfied(desk, request.container)
        raise
    finally:
        desk.serving.discard(request.container)
    yield from _satisfied(desk, request.container)
    return granted


def _add(desk: IpamAgentState, request: Ask) -> Talk[Granted]:
    now: float = yield Clock()
    deadline = now + desk.timing.patience
    last = now + _QUEUE * desk.timing.patience
    wish = _with_pins(desk, request)
    while True:
        if desk.is_back:
            raise _recalling(desk, now)
        term = desk.state.term
        desk.state, answer = ask(desk.state, wish, desk.catalog, now)
        if isinstance(answer, Granted):
            yield Put(answer.booking)
            now = yield Clock()
            desk.state = stored(desk.state, answer.booking, now)
            if desk.state.term != term or now >= desk.state.right_until:
                raise Unavailable(f"node {desk.state.node} lost its contact while it granted")
            return answer
        if not desk.may_claim(now):
            raise _recalling(desk, now)
        if now >= deadline:
            wish, deadline = _less(desk, request, answer, now), now + desk.timing.patience
        ahead, writes = request.container not in desk.lacking, _writes_seen(desk)
        match (yield from _claim(desk, answer, ahead=ahead)):
            case _Claim.NONE:
                desk.lacking[request.container] = answer.lacks
                yield from _post(desk, {lack.zone.pool for lack in answer.lacks})
                yield Pause(_MOMENT)
            case _Claim.LOST:
                yield Pause(_MOMENT)
                now = yield Clock()
                if _writes_seen(desk) != writes:  # others get on: it is a queue, not a full pool
                    deadline = min(last, now + desk.timing.patience)
        now = yield Clock()


def delete(
    desk: IpamAgentState, container: ContainerId, interface: InterfaceName | None = None
) -> Talk[None]:
    """Let the container's addresses rest; a container that has none is no error.

    A full or read-only disk holds up no pod's end: they rest in memory then, and are given only
    once the journal has it. A process that begins before finds a container that is gone.
    """
    yield from _turn(desk, container)
    try:
        booking = release(desk.state, container, interface)
        if booking:
            with suppress(Unavailable):
                yield Put(booking)
            now: float = yield Clock()
            desk.state = stored(desk.state, booking, now)
    finally:
        desk.serving.discard(container)


def collect(desk: IpamAgentState, living: frozenset[ContainerId], since: float) -> Talk[None]:
    """Release what no container has; `living` are all of the runtime, listed after `since`."""
    for container in abandoned(desk.state, living, since):
        if container not in desk.serving:
            yield from delete(desk, container)


def tick(desk: IpamAgentState) -> Talk[None]:
    """Everything that no request waits for: doubts, ends of rest, wants, stock.

    Nothing after the store went back, before the node has its lease again: a holder without a
    lease is nobody's.
    """
    if desk.is_back:
        return
    now: float = yield Clock()
    if now >= desk.recall_until and desk.state.taken:
        desk.state = replace(desk.state, taken={})
    yield from settle(desk)
    now = yield Clock()
    for container in due(desk.state, now):
        yield from _retire(desk, container)
    for pool, board in tuple(desk.boards.items()):
        if not desk.lacking and is_posted(board, desk.state.node):
            yield from _post(desk, [pool])
        if _gifts(desk, pool, board):  # all who have some see the want: the first gift is enough
            yield Pause(_MOMENT)
            for cell, bits in _gifts(desk, pool, desk.boards.get(pool, board)):
                yield from write(desk, cell, give=bits)
    if desk.may_claim(now):
        yield from _keep_stock(desk)


def _keep_stock(desk: IpamAgentState) -> Talk[None]:
    for zone in _used_zones(desk):
        if is_wanted(desk.boards.get(zone.pool), desk.state.node):
            continue
        is_low = spare(desk.state, zone) < zone.block_size // 2
        if is_low and portion(desk.state, desk.blocks, zone) >= zone.block_size:
            yield from _stock(desk, zone, zone.block_size)
        for cell, bits in surplus(desk.state, zone):
            yield from write(desk, cell, give=bits)


def settle(desk: IpamAgentState) -> Talk[None]:
    """Write every cell that is in doubt or not as the node believes."""
    for cell in unsettled(desk.state, desk.blocks):
        yield from write(desk, cell)


def write(
    desk: IpamAgentState,
    cell: Cell,
    *,
    claim: Callable[[Block | None], Bits] = _NOTHING,
    give: Bits = NONE,
) -> Talk[bool]:
    """Write one cell until a write surely succeeds; False: it is busy, or stays in doubt.

    `claim` says which addresses to take of a block as it was just read; others may have been first.
    A claim ends with its term.
    """
    if cell in desk.busy:
        return False
    desk.busy.add(cell)
    began, latest, is_gone = desk.state.term, desk.blocks.get(cell), False
    try:
        for attempt in range(_TRIES):
            hold = desk.state.holds.get(cell)
            if attempt > 1:  # many want this cell: who tries again at once only adds to the queue
                yield Pause(_MOMENT)
            if attempt or (hold and hold.doubt):
                earlier = latest if desk.state.term == began else None  # no sign of another restore
                is_gone = yield from _read(desk, cell, earlier)
            term = desk.state.term
            if claim is not _NOTHING and term != began:
                return False
            add = claim(desk.blocks.get(cell))
            if attempt and not add and forgettable(desk.state, cell, desk.blocks.get(cell)):
                desk.state = forgotten(desk.state, cell)
                return False
            desk.state, written = plan(desk.state, cell, desk.blocks.get(cell), add=add, give=give)
            block = yield WriteBlock(written)
            if block is None:
                continue
            if is_gone and desk.state.term == began:  # it could be made: it was not only garbled
                desk.saw(cell, latest)
                yield from _go_back(desk)
            is_gone = False
            desk.saw(cell, block)
            if desk.state.term == term:
                desk.state = confirmed(desk.state, block)
                return True
        return False
    finally:
        desk.leave(cell, latest if is_gone else None)


def _read(desk: IpamAgentState, cell: Cell, latest: Block | None) -> Talk[bool]:
    """Read a block; True when there is none where there was a held one, as of a garbled one."""
    shown, term = desk.blocks.get(cell), desk.state.term
    block: Block | None = yield ReadBlock(cell)
    is_back = desk.state.term == term and went_back(latest, block)
    if block and is_back:
        yield from _go_back(desk)
    if block or desk.blocks.get(cell) is shown:  # else a watch was faster
        desk.saw(cell, block)
    return is_back and block is None


def _go_back(desk: IpamAgentState) -> Talk[None]:
    now: float = yield Clock()
    desk.go_back(now)


def _turn(desk: IpamAgentState, container: ContainerId) -> Talk[None]:
    """Wait until nothing else is done for the container: its records must not cross."""
    while container in desk.serving:
        yield Pause(_MOMENT)
    desk.serving.add(container)


def _writes_seen(desk: IpamAgentState) -> int:
    """How many writes made the blocks that the node sees: it grows while anybody gets on."""
    return sum(block.edition for block in desk.blocks.values())


def _less(desk: IpamAgentState, request: Ask, short: Short, now: float) -> Ask:
    """The request without its owners' last addresses, once they were waited for long enough.

    They may be resting where their owner was, so that long it is worth to wait; the runtime asks
    again meanwhile. Raises Refused when more than that is lacking.
    """
    for lack in short.lacks:
        if lack.must or lack.owner is None:
            raise _full(desk, short)
        since = desk.awaited.setdefault(lack.owner, now)
        if now - since < lack.zone.rest + desk.timing.patience:
            raise Unavailable(
                f"{lack.address} was the last address of {lack.owner}, and another node still has "
                "it: waiting until it has rested"
            )
    for lack in short.lacks:
        if lack.owner:
            desk.awaited.pop(lack.owner, None)
    return request


def _claim(desk: IpamAgentState, short: Short, *, ahead: bool) -> Talk[_Claim]:
    """Claim what is lacking, and some more for the next."""
    result = _Claim.NONE
    for lack in short.lacks:
        zone = lack.zone
        if lack.address:
            cell, bit = cell_of(zone.network, lack.address)
            block = desk.blocks.get(cell)
            if bit & held(block) & ~holds_of(block, desk.state.node):
                continue
            done = yield from write(desk, cell, claim=_just(bit))
            result = max(result, _Claim.MADE if done else _Claim.LOST)
            continue
        count = lack.count
        if ahead and not is_wanted(desk.boards.get(zone.pool), desk.state.node):
            count = max(count, portion(desk.state, desk.blocks, zone))
        stocked = yield from _stock(desk, zone, count)
        result = max(result, stocked)
    return result


def _stock(desk: IpamAgentState, zone: Zone, count: int) -> Talk[_Claim]:
    """Claim up to `count` addresses of the zone."""
    result = _Claim.NONE
    for cell, bits in choose(desk.state, desk.blocks, zone, count):
        claim = partial(free_of, zone=zone, cell=cell, count=bits.bit_count())
        done = yield from write(desk, cell, claim=claim)
        result = max(result, _Claim.MADE if done else _Claim.LOST)
    return result


def _gifts(desk: IpamAgentState, pool: PoolName, board: Board) -> tuple[tuple[Cell, Bits], ...]:
    """What to give back now for the wants on a board."""
    pool_zones = desk.catalog.get(pool, ())
    return gifts(desk.state, board, pool_zones, bool(desk.lacking), desk.blocks)


def _retire(desk: IpamAgentState, container: ContainerId) -> Talk[None]:
    """End rests: first in the journal, then here."""
    if container in desk.serving or container not in desk.state.ends:
        return
    desk.serving.add(container)
    try:
        booking = retire(desk.state, container)
        if booking.leases:
            yield Put(booking)
            now: float = yield Clock()
            desk.state = stored(desk.state, booking, now)
        else:
            yield Remove(container)
            desk.state = removed(desk.state, container)
    finally:
        desk.serving.discard(container)


def _satisfied(desk: IpamAgentState, container: ContainerId) -> Talk[None]:
    """The request waits no more; what cannot be taken down now, the next tick will."""
    lacks = desk.lacking.pop(container, ())
    try:
        yield from _post(desk, {lack.zone.pool for lack in lacks})
    except Unavailable:
        return


def _post(desk: IpamAgentState, pools: Iterable[PoolName]) -> Talk[None]:
    """Make the boards say what all requests of this node lack."""
    for pool in sorted(pools):
        board: Board = yield ReadBoard(pool)
        lacks = [lack for waiting in desk.lacking.values() for lack in waiting]
        if changed := posted(board, desk.state.node, lacks):
            yield WriteBoard(changed)


def _with_pins(desk: IpamAgentState, request: Ask) -> Ask:
    """The request, with the addresses that its owners had last."""
    nics = []
    for nic in request.nics:
        zones = desk.catalog.get(nic.pool, ())
        if nic.owner and not nic.addresses:
            last = chain.from_iterable(last_of(desk.blocks, z, nic.owner) for z in zones)
            nic = replace(nic, prefer=tuple(last))  # noqa: PLW2901 - the same NIC, completed
        nics.append(nic)
    return replace(request, nics=tuple(nics))


def _used_zones(desk: IpamAgentState) -> tuple[Zone, ...]:
    """Zones that the node gives from: only for these does it keep stock."""
    pools = {lease.pool for b in desk.state.bookings.values() for lease in b.leases}
    return tuple(
        zone
        for pool in sorted(pools & set(desk.catalog))
        for zone in desk.catalog[pool]
        if any(hold.used & mask(zone, cell) for cell, hold in desk.state.holds.items())
    )


def _recalling(desk: IpamAgentState, now: float) -> Unavailable:
    """The sentence for a store that went back, or may have."""
    if now >= desk.recall_until:
        return Unavailable(
            f"node {desk.state.node} takes no new addresses while its watch of the IPBlocks is "
            "interrupted"
        )
    wait = "once it has asked back" if desk.is_back else f"in {desk.recall_until - now:.0f} s"
    return Unavailable(
        "the IPBlocks went back to an earlier state, by a restore of etcd or by hand: every node "
        f"first asks back what its pods have, and node {desk.state.node} takes new addresses {wait}"
    )


def _full(desk: IpamAgentState, short: Short) -> Refused:
    """The sentence for a pool that stayed full."""
    lack = short.lacks[0]
    zone, where = lack.zone, f"IPPool {lack.zone.pool}"
    if lack.address:
        cell, bit = cell_of(zone.network, lack.address)
        block = desk.blocks.get(cell)
        holders = [h.node for h in block.holdings if h.bits & bit] if block else []
        by = f"node {holders[0]}" if holders else "a node"
        return Refused(
            f"{lack.address} is in use on {by}",
            remedy="Delete the pod that has it, or ask for another address",
            where=where,
        )
    parts = [(held(block) & mask(zone, cell)).bit_count() for cell, block in desk.blocks.items()]
    return Refused(
        f"the pool is full: {sum(parts)} of {zone.size} addresses are held, and no node gave back "
        f"the {lack.count} that node {desk.state.node} lacks",
        remedy="Add a range, delete pods, or taint nodes that are down as out-of-service",
        where=where,
    )
