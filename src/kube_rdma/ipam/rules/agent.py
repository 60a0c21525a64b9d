"""The operations of a node's agent: serve requests, keep the right to allocate, settle blocks.

After the program loaded the journal, it runs `acquire_lease` until this succeeds. It runs
`renew_lease` every third of T, the duration of the lease, and after an outage of a watch. It runs
`tick` when `next_tick` says so or a block or pool changed, and `add` and `delete` for each request.
Each operation may stop anywhere, by a crash or an error: the next one reads what was done from the
journal and from the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from itertools import chain
from math import inf

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.ipam.rules import blocks, effects, grant, node_state
from kube_rdma.ipam.rules.effects import Effects, IpamAgentState
from kube_rdma.ipam.rules.pools import anchor_in, choose_slice, counted, own_part, strays
from kube_rdma.ipam.rules.subpools import NONE, Subpool, anchor, key_of, mask
from kube_rdma.lib.phrases import listed
from kube_rdma.model import ipam

_TRIES = 4  # of one write; then the block stays uncertain until the next tick
_MOMENT = 0.2  # seconds until the next try
_TURN = 0.1  # seconds of a turn of lenders
_AGAIN = 1.0  # seconds until the next try of what failed, and until a lender lends more
_PROBES = 6  # choices of addresses for a request; before the last one all blocks are read
_QUEUE = 12  # times the patience: how long a request may lose races while addresses are free


class _Outcome(IntEnum):
    """The outcome of an attempt to acquire addresses, from worst to best."""

    NONE = 0  # no address was free
    LOST = 1  # other nodes were first
    MADE = 2


def _nothing(_: ipam.Block | None) -> ipam.Bits:
    return NONE


def acquire_lease(agent: IpamAgentState) -> Effects[None]:
    """Acquire the node's lease, then settle its blocks.

    Wait until the right of another journal has ended. Raise Broken where another journal had the
    lease since the node was started: its pods may live.
    """
    seen: ipam.NodeLease | None = None
    since: float = yield effects.Clock()
    while True:
        lease: ipam.NodeLease | None = yield effects.ReadLease(agent.identity.node)
        sent: float = yield effects.Clock()
        if lease != seen:
            seen, since = lease, sent
        if lease and agent.lease and lease.heartbeat < agent.lease.heartbeat:
            since = -inf  # etcd was restored: this process had already taken that right over
        step = node_state.lease_acquisition(
            agent.identity, lease, sent - since, agent.timing, agent.cooldown
        )
        if not isinstance(step, ipam.NodeLease):  # but seconds to wait
            yield effects.Pause(step)
            continue
        written: ipam.NodeLease | None = yield effects.WriteLease(step)
        if written:
            break
        yield effects.Pause(_MOMENT)
    agent.lease = written
    agent.state = node_state.extend_right(agent.state, sent, written.duration)
    yield from _list(agent, sent, is_kept=node_state.is_ours(lease, agent.identity.journal))
    yield from settle(agent)


def _list(agent: IpamAgentState, sent: float, *, is_kept: bool) -> Effects[None]:
    """Read the node's blocks; if etcd was restored, prepare to ask back the addresses in use.

    `is_kept` says that the node kept its right, so the blocks must list what its pods have. Blocks
    of a restored etcd may lack the node's label and list addresses that the node gave back since.
    So all blocks are read then.
    """
    term = agent.state.term
    now: float = yield effects.Clock()
    agent.unseen.clear()
    listed: dict[ipam.BlockKey, ipam.Block] = yield effects.ListOwnBlocks(agent.state.node)
    for key in tuple(agent.state.holdings):
        if key not in listed and (block := (yield effects.ReadBlock(key))):
            listed[key] = block
    if is_kept and not agent.is_rolled_back and blocks.missing(agent.state, listed):
        right = agent.state.right_until
        agent.note_rollback(sent)
        agent.state, term = replace(agent.state, right_until=right), agent.state.term
    agent.forget()
    if agent.is_rolled_back:
        listed = yield effects.ListBlocks()
        agent.sees_all, agent.seen_until = True, now + max(agent.timing.sight, agent.timing.recall)
    agent.blocks = listed
    if agent.is_rolled_back and agent.state.term == term:
        agent.state = blocks.recall(agent.state, listed, agent.trusted)
        agent.recall_until = now + agent.timing.recall


def renew_lease(agent: IpamAgentState) -> Effects[None]:
    """Renew the node's lease; where it was revoked, stop granting at once and acquire it again.

    Do the same if the lease shows that etcd or this machine was restored. If two writes fail and
    the lease is still the node's, leave it to the next renewal.
    """
    for _ in range(2):
        if agent.is_rolled_back:
            break
        if agent.lease:
            sent: float = yield effects.Clock()
            lease = node_state.renewal(agent.lease)
            written: ipam.NodeLease | None = yield effects.WriteLease(lease)
            if written:
                agent.lease = written
                agent.state = node_state.extend_right(agent.state, sent, written.duration)
                # Nothing shows when another node gives back an address that a pod here has.
                for key in agent.state.holdings:
                    if not _is_shown(agent, agent.blocks.get(key)):
                        agent.lose_sight(key)
                return
        current: ipam.NodeLease | None = yield effects.ReadLease(agent.identity.node)
        now: float = yield effects.Clock()
        has_right = now < agent.state.right_until
        if agent.lease and node_state.is_lease_rollback(agent.lease, current, has_right=has_right):
            is_behind = current is not None and current.heartbeat < agent.lease.heartbeat
            agent.note_rollback(now, of_machine=not is_behind)
            break
        agent.lease = current if node_state.is_ours(current, agent.identity.journal) else None
        if agent.lease is None:
            break
    else:
        return
    agent.state = node_state.suspend_right(agent.state)
    yield from acquire_lease(agent)


def add(agent: IpamAgentState, request: ipam.AddressRequest) -> Effects[grant.GrantedAddresses]:
    """Give a container all addresses that it asks for.

    They are the node's own, else free ones, else those that other nodes give back. Raise Refused,
    Unavailable and Broken as `grant` does. Raise Refused also for a pool that stays full, or an
    address in use; Unavailable also where a later try may succeed.
    """
    yield from _wait_for_turn(agent, request.container)
    try:
        granted = yield from _add(agent, request)
    except Exception:
        yield from _withdraw_requests(agent, request.container)
        raise
    finally:
        agent.serving.discard(request.container)
    yield from _withdraw_requests(agent, request.container)
    return granted


def _add(agent: IpamAgentState, request: ipam.AddressRequest) -> Effects[grant.GrantedAddresses]:
    now: float = yield effects.Clock()
    deadline = now + agent.timing.patience
    last = now + _QUEUE * agent.timing.patience
    wanted = yield from _with_pins(agent, request)
    while True:
        if agent.is_rolled_back:
            raise _unavailable(agent, now)
        term = agent.state.term
        agent.state, answer = grant.grant(agent.state, wanted, agent.catalog, now)
        if isinstance(answer, grant.GrantedAddresses):
            yield effects.Put(answer.record)
            now = yield effects.Clock()
            agent.state = node_state.with_record(agent.state, answer.record, now)
            if agent.state.term != term or now >= agent.state.right_until:
                raise Unavailable(f"node {agent.state.node} lost its contact while it granted")
            for nic in request.nics:
                if nic.owner:
                    agent.awaited_since.pop(nic.owner, None)
            return answer
        if not agent.may_acquire(now):
            raise _unavailable(agent, now)
        if now >= deadline:
            # After a long enough wait other addresses than its owners' last ones will do. Those may
            # be in cool-down on the owner's last node, so the wait lasts as long, and the runtime
            # asks again meanwhile. Refused when other addresses are lacking too.
            _refuse_waiting(agent, answer, now)
            wanted = request
            deadline = now + agent.timing.patience
        ahead, writes = request.container not in agent.waiting, _writes_seen(agent)
        sees_all = agent.sees_all
        outcome = yield from _acquire(agent, answer, ahead=ahead)
        if agent.sees_all and not sees_all:  # the list took its time
            now = yield effects.Clock()
            deadline = min(last, now + agent.timing.patience)
        match outcome:
            case _Outcome.NONE:
                agent.waiting[request.container] = answer.shortages
                agent.seen_until = now + agent.timing.sight
                yield from _publish_requests(agent, {s.subpool.pool for s in answer.shortages})
                yield effects.Pause(_MOMENT)
            case _Outcome.LOST:
                yield effects.Pause(_MOMENT)
                now = yield effects.Clock()
                if _writes_seen(agent) != writes:  # others succeed: the pool is busy, not full
                    deadline = min(last, now + agent.timing.patience)
        now = yield effects.Clock()


def _refuse_waiting(agent: IpamAgentState, answer: grant.LackingAddresses, now: float) -> None:
    """Raise an error for the first shortage without an owner, or whose owner has to wait, if any.

    The error is Refused without an owner, else Unavailable. An owner waits for its last address
    until that had time to cool down.
    """
    for shortage in answer.shortages:
        if shortage.must or shortage.owner is None:
            raise _full(agent, answer)
        since = agent.awaited_since.setdefault(shortage.owner, now)
        if now - since < shortage.subpool.cooldown + agent.timing.patience:
            raise Unavailable(
                f"{shortage.address} was the last address of {shortage.owner}, and another "
                "node still has it: waiting until it has rested"
            )


def delete(
    agent: IpamAgentState, container: ipam.ContainerId, interface: ipam.InterfaceName | None = None
) -> Effects[None]:
    """Release a container's addresses into their cool-down; do nothing if it has none.

    With `interface`, release only addresses of this interface. A full or read-only disk delays no
    pod's end: the addresses then cool down in memory, and stay in use until a write succeeds.
    """
    yield from _wait_for_turn(agent, container)
    try:
        record = node_state.release(agent.state, container, interface)
        if record:
            with suppress(Unavailable):
                yield effects.Put(record)
            now: float = yield effects.Clock()
            agent.state = node_state.with_record(agent.state, record, now)
    finally:
        agent.serving.discard(container)


def collect(
    agent: IpamAgentState, living: frozenset[ipam.ContainerId], since: float
) -> Effects[None]:
    """Release the addresses of containers that `living` lacks, if recorded before `since`.

    A container with a request under way is left out.
    """
    for container in node_state.abandoned(agent.state, living, since):
        if container not in agent.serving:
            yield from delete(agent, container)


def tick(agent: IpamAgentState) -> Effects[None]:
    """Do the work that no request waits for.

    End cool-downs, settle blocks, lend to other nodes, acquire ahead. Without the right write no
    block. If etcd was restored, do nothing before the node has its lease again. After an outage of
    a watch write no block before the lease was written, for etcd may have been restored.
    """
    if agent.is_rolled_back:
        return
    now: float = yield effects.Clock()
    for container in node_state.cooled_down(agent.state, now):
        yield from _end_cooldown(agent, container)
    now = yield effects.Clock()
    if now >= agent.seen_until and not agent.waiting:
        agent.forget()  # first: it may be the watch of all blocks that is interrupted
    if now >= agent.state.right_until or agent.is_watch_interrupted():
        return
    if now >= agent.recall_until and agent.state.taken:
        agent.state = replace(agent.state, taken={})
    yield from settle(agent)
    now = yield effects.Clock()
    for pool in set(agent.lends_at) - set(agent.queues):
        del agent.lends_at[pool]
    for pool, queue in tuple(agent.queues.items()):
        is_asking = any(request.node == agent.state.node for request in queue.requests)
        if is_asking and not agent.waiting:
            yield from _publish_requests(agent, [pool])
        yield from _lend(agent, pool)
    if agent.may_acquire(now):
        yield from _replenish(agent)


def next_tick(agent: IpamAgentState, now: float) -> float:
    """Return the time at which `tick` next has work, if nothing changes before; inf for none.

    A time that is not later than `now` means that work is left over.
    """
    times = [*agent.state.cooldown_ends.values(), *agent.lends_at.values()]
    if agent.seen_until > -inf:
        times.append(agent.seen_until)
    if agent.state.taken or agent.recall_until > now:
        times.append(agent.recall_until)
    if agent.unseen or blocks.unsettled(agent.state, agent.blocks):
        times.append(now)
    return min(times, default=inf)


def _lend(agent: IpamAgentState, pool: ipam.PoolName) -> Effects[None]:
    """Give back spare addresses that other nodes request of a pool, when it is this node's turn."""
    pool_subpools, is_waiting = agent.catalog.get(pool, ()), bool(agent.waiting)
    queue = agent.queues.get(pool, ipam.BorrowQueue(pool))
    lent = grant.lendable(agent.state, queue, pool_subpools, is_waiting)
    if not lent:
        agent.lends_at.pop(pool, None)
        return
    now: float = yield effects.Clock()
    turn = grant.turn(agent.state, queue, pool_subpools, agent.blocks)
    if now >= agent.lends_at.setdefault(pool, now + turn * _TURN):
        agent.lends_at[pool] = now + _AGAIN
        for key, bits in lent:
            yield from write(agent, key, give_back=bits)


def _replenish(agent: IpamAgentState) -> Effects[None]:
    """Acquire addresses ahead where few are spare, and give back those that are too many.

    Give back also unused addresses outside of the node's own slice.
    """
    for sliced in chain.from_iterable(agent.catalog.values()):
        for key, bits in strays(agent.state.node, agent.state.holdings, sliced):
            yield from write(agent, key, give_back=bits)
    for subpool in _used_subpools(agent):
        if grant.has_requests_of_others(agent.queues.get(subpool.pool), agent.state.node):
            continue
        is_low = node_state.spare(agent.state, subpool) < subpool.block_size // 2
        if is_low and _ahead_limit(agent, subpool) >= subpool.block_size:
            yield from _acquire_from(agent, subpool, subpool.block_size, probes=1)
        for key, bits in grant.surplus(agent.state, subpool) if subpool.is_shared else ():
            yield from write(agent, key, give_back=bits)


def settle(agent: IpamAgentState) -> Effects[None]:
    """Write each block that is uncertain, not shown any more, or differs from the node's state."""
    for key in agent.unseen - set(agent.state.holdings):
        agent.unseen.discard(key)
        agent.lose_sight(key)
    for key in sorted(agent.unseen | set(blocks.unsettled(agent.state, agent.blocks))):
        yield from write(agent, key)


def write(
    agent: IpamAgentState,
    key: ipam.BlockKey,
    *,
    acquire: Callable[[ipam.Block | None], ipam.Bits] = _nothing,
    give_back: ipam.Bits = NONE,
) -> Effects[bool]:
    """Write one block, with a few tries; return whether a write surely succeeded.

    `acquire` returns the addresses to take of the block as last seen; each further try reads it
    first, for other nodes may have been faster. `give_back` are addresses to release. Nothing is
    acquired if the node's right was revoked meanwhile, or etcd may have been restored. Return False
    at once while another operation writes the block.
    """
    if key in agent.busy:
        return False
    agent.busy.add(key)
    began, latest, is_gone = agent.state.term, agent.blocks.get(key), False
    try:
        for attempt in range(_TRIES):
            holding = agent.state.holdings.get(key)
            if attempt > 1:  # many nodes write this block: another try at once adds to the load
                yield effects.Pause(_MOMENT)
            if attempt or key in agent.unseen or (holding and holding.uncertain):
                # In another term the node knows already that etcd was restored.
                earlier = _comparable(agent, latest) if agent.state.term == began else None
                is_gone = yield from _read(agent, key, earlier)
            term = agent.state.term
            if acquire is not _nothing and (term != began or agent.is_in_doubt):
                return False  # what was just read may be of a restored etcd
            bits = acquire(agent.blocks.get(key))
            if attempt and not bits and blocks.forgettable(agent.state, key, agent.blocks.get(key)):
                agent.state = blocks.forget(agent.state, key)
                return False
            agent.state, written = blocks.plan(
                agent.state, key, agent.blocks.get(key), acquire=bits, give_back=give_back
            )
            block = yield effects.WriteBlock(written)
            if block is None:
                continue
            if is_gone and agent.state.term == began:  # it was deleted, not only garbled
                agent.observe(key, latest)
                yield from _note_rollback(agent)
            is_gone = False
            agent.observe(key, block)
            if agent.state.term == term:
                agent.state = blocks.confirm(agent.state, block)
                return True
        return False
    finally:
        if is_gone and latest and key not in agent.blocks:  # the next write has to know it
            agent.blocks[key] = latest
        agent.busy.discard(key)


def _read(agent: IpamAgentState, key: ipam.BlockKey, latest: ipam.Block | None) -> Effects[bool]:
    """Read a block; return True if it is gone or garbled, and nodes held addresses of it.

    If it is there in an older version, note that etcd was restored.
    """
    shown, term = agent.blocks.get(key), agent.state.term
    block: ipam.Block | None = yield effects.ReadBlock(key)
    is_rolled_back = agent.state.term == term and blocks.is_rollback(latest, block)
    if block and is_rolled_back:
        yield from _note_rollback(agent)
    if block or agent.blocks.get(key) is shown:  # else a watch was faster
        agent.observe(key, block)
    return is_rolled_back and block is None


def _comparable(agent: IpamAgentState, latest: ipam.Block | None) -> ipam.Block | None:
    """Return the block as last seen, for comparison with a later read.

    The holdings are left out if no watch shows the block: it may have been emptied, deleted and
    made anew.
    """
    if latest is None or _is_shown(agent, latest):
        return latest
    return replace(latest, holdings=())


def _is_shown(agent: IpamAgentState, block: ipam.Block | None) -> bool:
    """Return whether a watch shows this block: all are watched, or the node holds some of it."""
    return agent.sees_all or bool(blocks.held_by(block, agent.state.node))


def _see_all(agent: IpamAgentState) -> Effects[None]:
    """Have all blocks watched for a time from now; read them first, unless they are watched."""
    now: float = yield effects.Clock()
    agent.seen_until = now + agent.timing.sight
    if agent.sees_all:
        return
    listed: dict[ipam.BlockKey, ipam.Block] = yield effects.ListBlocks()
    for key in set(agent.blocks) - set(listed):
        agent.lose_sight(key)
    agent.sees_all = True
    for key, block in listed.items():
        agent.observe(key, block)


def _note_rollback(agent: IpamAgentState) -> Effects[None]:
    now: float = yield effects.Clock()
    agent.note_rollback(now)


def _wait_for_turn(agent: IpamAgentState, container: ipam.ContainerId) -> Effects[None]:
    """Wait until no other operation serves the container, then mark the container as served."""
    while container in agent.serving:
        yield effects.Pause(_MOMENT)
    agent.serving.add(container)


def _writes_seen(agent: IpamAgentState) -> int:
    """Return the sum of the editions of the known blocks, which each write that is seen raises."""
    return sum(block.edition for block in agent.blocks.values())


def _acquire(
    agent: IpamAgentState, insufficient: grant.LackingAddresses, *, ahead: bool
) -> Effects[_Outcome]:
    """Try to acquire what is lacking, with `ahead` also some more; return the best outcome."""
    result = _Outcome.NONE
    for shortage in insufficient.shortages:
        subpool = shortage.subpool
        if subpool.per_node:
            result = max(result, (yield from _acquire_slice(agent, subpool)))
            continue
        if shortage.address:
            key, bit = key_of(subpool.network, shortage.address)
            if key in agent.blocks and not agent.sees_all:
                yield from _read(agent, key, _comparable(agent, agent.blocks[key]))
            block = agent.blocks.get(key)
            if bit & blocks.held(block) & ~blocks.held_by(block, agent.state.node):
                continue
            done = yield from write(agent, key, acquire=partial(_unheld, bit))
            result = max(result, _Outcome.MADE if done else _Outcome.LOST)
            continue
        count = shortage.count
        if ahead and not grant.has_requests_of_others(
            agent.queues.get(subpool.pool), agent.state.node
        ):
            count = max(count, _ahead_limit(agent, subpool))
        result = max(result, (yield from _acquire_from(agent, subpool, count)))
    return result


def _ahead_limit(agent: IpamAgentState, subpool: Subpool) -> int:
    return blocks.ahead_limit(agent.state, agent.blocks, subpool, sees_all=agent.sees_all)


def _acquire_from(
    agent: IpamAgentState, subpool: Subpool, count: int, probes: int = _PROBES
) -> Effects[_Outcome]:
    """Acquire up to `count` addresses of the subpool, in at most `probes` tries.

    Return the outcome of the last try. A block that the node does not see counts as free. Of
    several tries, the last one reads all blocks first, and so does the try after one that found no
    free address.
    """
    result = _Outcome.NONE
    for probe in range(probes, 0, -1):
        sees_all, result = agent.sees_all, _Outcome.NONE
        chosen = blocks.choose_addresses(agent.state, agent.blocks, subpool, count)
        for key, bits in chosen:
            acquire = partial(blocks.free_of, subpool=subpool, key=key, count=bits.bit_count())
            done = yield from write(agent, key, acquire=acquire)
            result = max(result, _Outcome.MADE if done else _Outcome.LOST)
        holdings = agent.state.holdings
        is_unknown = any(key in holdings and holdings[key].uncertain for key, _ in chosen)
        if result is _Outcome.MADE or sees_all or is_unknown or probe == 1:
            break
        now: float = yield effects.Clock()
        agent.seen_until = now + agent.timing.sight
        if result is _Outcome.NONE or probe == 2:
            yield from _see_all(agent)
    return result


def _unheld(bits: ipam.Bits, block: ipam.Block | None) -> ipam.Bits:
    return ipam.Bits(bits & ~blocks.held(block))


def _acquire_slice(agent: IpamAgentState, subpool: Subpool) -> Effects[_Outcome]:
    """Acquire a slice of the subpool for this node, unless it already owns one."""
    if not own_part(agent.state.node, agent.state.holdings, subpool):
        yield from _see_all(agent)
    chosen = choose_slice(agent.state, agent.blocks, subpool)
    if chosen is None:
        is_own = own_part(agent.state.node, agent.state.holdings, subpool)
        return _Outcome.MADE if is_own else _Outcome.NONE
    key = chosen[0]

    def acquire(block: ipam.Block | None) -> ipam.Bits:
        return anchor_in(agent.state, agent.blocks, subpool, key, block)

    done = yield from write(agent, key, acquire=acquire)
    return _Outcome.MADE if done else _Outcome.LOST


def _end_cooldown(agent: IpamAgentState, container: ipam.ContainerId) -> Effects[None]:
    """End the cool-down of a container's addresses: first in the journal, then in memory."""
    if container in agent.serving or container not in agent.state.cooldown_ends:
        return
    agent.serving.add(container)
    try:
        record = node_state.end_cooldown(agent.state, container)
        if record.allocations:
            yield effects.Put(record)
            now: float = yield effects.Clock()
            agent.state = node_state.with_record(agent.state, record, now)
        else:
            yield effects.Remove(container)
            agent.state = node_state.without_record(agent.state, container)
    finally:
        agent.serving.discard(container)


def _withdraw_requests(agent: IpamAgentState, container: ipam.ContainerId) -> Effects[None]:
    """Remove the borrow requests of a container; if that fails, a later tick repeats it."""
    shortages = agent.waiting.pop(container, ())
    try:
        yield from _publish_requests(agent, {shortage.subpool.pool for shortage in shortages})
    except Unavailable:
        return


def _publish_requests(agent: IpamAgentState, pools: Iterable[ipam.PoolName]) -> Effects[None]:
    """Write into the borrow queues of these pools which addresses this node lacks."""
    for pool in sorted(pools):
        queue: ipam.BorrowQueue = yield effects.ReadBorrowQueue(pool)
        shortages = [shortage for waiting in agent.waiting.values() for shortage in waiting]
        if changed := grant.with_requests_of(queue, agent.state.node, shortages):
            yield effects.WriteBorrowQueue(changed)


def _with_pins(agent: IpamAgentState, request: ipam.AddressRequest) -> Effects[ipam.AddressRequest]:
    """Return the request, in which owners without static addresses prefer their last addresses."""
    nics = []
    for nic in request.nics:
        if nic.owner and not nic.addresses:
            last = _last_of(agent, nic, nic.owner)
            if not last and not agent.sees_all:
                with suppress(Unavailable):  # the pod can start with another address
                    found: dict[ipam.BlockKey, ipam.Block] = yield effects.ListPinned(nic.owner)
                    for key, block in found.items():
                        agent.observe(key, block)
                last = _last_of(agent, nic, nic.owner)
            nic = replace(nic, prefer=last)  # noqa: PLW2901 - the same NIC, completed
        nics.append(nic)
    return replace(request, nics=tuple(nics))


def _last_of(
    agent: IpamAgentState, nic: ipam.NicRequest, owner: ipam.Owner
) -> tuple[ipam.Address, ...]:
    every = (blocks.last_of(agent.blocks, s, owner) for s in agent.catalog.get(nic.pool, ()))
    return tuple(chain.from_iterable(every))


def _used_subpools(agent: IpamAgentState) -> tuple[Subpool, ...]:
    """Return the subpools to acquire ahead from: containers of the node have addresses of them."""
    pools = {a.pool for record in agent.state.records.values() for a in record.allocations}
    node, holdings = agent.state.node, agent.state.holdings
    return tuple(
        subpool
        for pool in sorted(pools & set(agent.catalog))
        for whole in agent.catalog[pool]
        if (subpool := own_part(node, holdings, whole))
        and any(h.in_use & mask(subpool, key) for key, h in holdings.items())
    )


def _unavailable(agent: IpamAgentState, now: float) -> Unavailable:
    """Return the error for a node that takes no addresses, as etcd may have been restored."""
    if now >= agent.recall_until:
        return Unavailable(
            f"node {agent.state.node} takes no new addresses while its watch of the IPBlocks is "
            "interrupted"
        )
    left = f"in {agent.recall_until - now:.0f} s"
    wait = "once it has asked back" if agent.is_rolled_back else left
    return Unavailable(
        "the IPBlocks went back to an earlier state, by a restore of etcd or by hand: every node "
        f"first asks back what its pods have, and node {agent.state.node} takes new addresses "
        f"{wait}"
    )


def _full(agent: IpamAgentState, insufficient: grant.LackingAddresses) -> Refused:
    """Return the Refused for a request whose pool stayed full, or whose address is in use."""
    shortage = insufficient.shortages[0]
    subpool, where = shortage.subpool, f"IPPool {shortage.subpool.pool}"
    if shortage.address:
        key, bit = key_of(subpool.network, shortage.address)
        block = agent.blocks.get(key)
        holders = [h.node for h in block.holdings if h.bits & bit] if block else []
        by = f"node {holders[0]}" if holders else "a node"
        return Refused(
            f"{shortage.address} is in use on {by}",
            remedy="Delete the pod that has it, or ask for another address",
            where=where,
        )
    if subpool.per_node:
        return _without_slice(agent, subpool)
    if subpool.node_slice:
        return Refused(
            f"{subpool.node_slice}, which node {agent.state.node} has of the pool, is full: pods "
            f"have all of its {counted(subpool.size)}",
            remedy="Delete pods of this node, or write a shorter perNode.prefix",
            where=where,
        )
    seen = agent.blocks.items()
    parts = [(blocks.held(block) & mask(subpool, key)).bit_count() for key, block in seen]
    return Refused(
        f"the pool is full: {sum(parts)} of {subpool.size} addresses are held, and no node gave "
        f"back the {shortage.count} that node {agent.state.node} lacks",
        remedy="Add a range, delete pods, or taint nodes that are down as out-of-service",
        where=where,
    )


def _without_slice(agent: IpamAgentState, subpool: Subpool) -> Refused:
    """Return the Refused for a node that gets no slice of the subpool."""
    assert subpool.per_node
    node, where = agent.state.node, f"IPPool {subpool.pool}"
    for entry in subpool.per_node.nodes:
        if entry.node == node:
            key, bits = anchor(subpool.network, entry.subnet)
            block = agent.blocks.get(key)
            holders = sorted(h.node for h in block.holdings if h.bits & bits) if block else []
            by = f"node {holders[0]} holds addresses of it" if holders else "it is not free"
            return Refused(
                f"{entry.subnet} is the slice of node {node}, and {by}",
                remedy="Delete the pods that have these addresses, or choose another slice",
                where=where,
            )
    subnets = listed([str(r.subnet) for r in subpool.ranges])
    return Refused(
        f"the pool is full: no /{subpool.per_node.prefix} of {subnets} is free for node {node}",
        remedy="Add a range, or delete the Node objects of nodes that are gone for good",
        where=where,
    )
