"""Who may grant for a node, what the controller takes away, and what nodes give back."""

from ipaddress import ip_address, ip_network
from itertools import pairwise

import pytest

from kube_base.errors import Broken
from kube_base.frozen import replace
from kube_rdma.ipam.rules import reclaim
from kube_rdma.ipam.rules.agent import tick
from kube_rdma.ipam.rules.blocks import after_rollback, confirm, is_rollback, plan, recall
from kube_rdma.ipam.rules.effects import Clock, IpamAgentState, ReadBlock
from kube_rdma.ipam.rules.grant import (
    MOST_REQUESTS,
    Shortage,
    has_requests_of_others,
    lendable,
    surplus,
    turn,
    with_requests_of,
)
from kube_rdma.ipam.rules.node_state import (
    NodeAddressState,
    confirmed_bits,
    fence,
    is_lease_rollback,
    is_ours,
    lease_acquisition,
    renewal,
)
from kube_rdma.ipam.rules.subpools import subpools
from kube_rdma.model.ipam import (
    Block,
    BlockKey,
    BorrowQueue,
    BorrowRequest,
    Family,
    IPPool,
    IPRange,
    NodeHolding,
    NodeLease,
    Timing,
)

TIMING = Timing(contact=600.0, margin=60.0, patience=5.0)
IDENTITY = NodeLease("n1", "journal", "boot-2")
KEY0 = BlockKey("default", Family.V4, int(ip_address("10.0.0.0")))
SUBPOOLS = subpools(IPPool("p", (IPRange(ip_network("10.0.0.0/26")),), block_size=4))


def lease(**more):
    return replace(NodeLease("n1", "journal", "boot-1", heartbeat=7, version="70"), **more)


def test_a_node_enters_at_once_where_the_right_is_its_own_or_nobodys():
    """No lease, its own, and a fenced one; the version it saw is the one it replaces."""
    assert lease_acquisition(IDENTITY, None, 0, TIMING, 60) == replace(IDENTITY, heartbeat=1)
    for there in (lease(), lease(fenced=True), lease(journal="other", fenced=True)):
        taken = lease_acquisition(IDENTITY, there, 0, TIMING, 60)
        assert isinstance(taken, NodeLease)
        assert is_ours(taken, "journal")
        assert (taken.heartbeat, taken.version) == (8, "70")


def test_another_journals_right_must_have_ended():
    """T as the other counts it, plus the margin, or the longest cool-down."""
    other = lease(journal="other", duration=100.0)
    assert lease_acquisition(IDENTITY, other, 0, TIMING, 60) == 160
    assert lease_acquisition(IDENTITY, other, 100, TIMING, 60) == 60
    assert lease_acquisition(IDENTITY, other, 0, TIMING, 500) == 500
    assert isinstance(lease_acquisition(IDENTITY, other, 160, TIMING, 60), NodeLease)


def test_a_journal_lost_under_living_pods_is_broken():
    with pytest.raises(Broken, match="drain and restart the node"):
        lease_acquisition(IDENTITY, lease(journal="other", boot="boot-2"), 1e9, TIMING, 60)


def test_a_fence_and_a_renewal_replace_the_same_version():
    """So that only one of them can succeed."""
    there = lease()
    assert fence("n1", there).version == renewal(there).version == "70"
    assert not is_ours(fence("n1", there), "journal")
    assert not is_ours(None, "journal")
    assert fence("n1", None).version is None


def test_a_store_or_a_machine_that_went_back_is_seen_by_the_heartbeat():
    """One write may be unknown; who has the right loses it to nobody before it has ended."""
    last = lease()
    for heartbeat, back in ((6, True), (7, False), (8, False), (9, True)):
        assert is_lease_rollback(last, lease(heartbeat=heartbeat), has_right=True) is back
    fenced, other = lease(heartbeat=9, fenced=True), lease(heartbeat=9, journal="other")
    for there in (fenced, other, None):
        assert is_lease_rollback(last, there, has_right=True)
        assert not is_lease_rollback(last, there, has_right=False)
    assert is_lease_rollback(last, lease(heartbeat=3, journal="other"), has_right=False)


def test_a_block_that_went_back():
    """An older edition or version of it, or none where somebody held some."""
    held_block = Block(KEY0, (NodeHolding("n2", 1),), edition=5, version="50")
    empty = replace(held_block, holdings=(), edition=6, version="60")
    assert is_rollback(held_block, replace(held_block, edition=4, version="90"))
    assert is_rollback(held_block, replace(held_block, edition=9, version="40"))
    assert is_rollback(held_block, None)
    assert is_rollback(empty, replace(empty, edition=5, version="50"))
    for old, new in ((held_block, empty), (empty, None), (None, held_block), (empty, empty)):
        assert not is_rollback(old, new)


def test_an_empty_block_that_was_deleted_and_made_anew_is_no_restore():
    """The controller deletes what nobody holds; the next write begins with edition 1."""
    empty = Block(KEY0, (), edition=6, version="60")
    assert not is_rollback(empty, Block(KEY0, (NodeHolding("n2", 1),), edition=1, version="70"))


def test_what_an_older_store_calls_the_nodes_is_given_back():
    """All but what the node surely held, and what its pods have; that is asked back first."""
    own = state(0b1110)
    kept = replace(own, holdings={KEY0: replace(own.holdings[KEY0], in_use=0b10)})
    older = Block(KEY0, (NodeHolding("n1", 0b11111000),), edition=3, version="9")
    back = recall(kept, {KEY0: older}, confirmed_bits(kept))
    _, written = plan(back, KEY0, older)
    assert written.holdings == (NodeHolding("n1", 0b1010),)
    assert back.term != kept.term


def test_what_another_node_had_by_then_is_not_asked_back_first():
    own = state(0b1110)
    kept = replace(own, holdings={KEY0: replace(own.holdings[KEY0], in_use=0b110)})
    newest = Block(KEY0, (NodeHolding("n1", 0b1010), NodeHolding("n2", 0b100)), version="90")
    lost = after_rollback(kept, {KEY0: newest}, {KEY0: 0b1010})
    back = recall(lost, {}, confirmed_bits(kept))
    _, written = plan(back, KEY0, None)
    assert written.holdings == (NodeHolding("n1", 0b10),)
    _, later = plan(replace(back, taken={}), KEY0, None)
    assert later.holdings == (NodeHolding("n1", 0b110),)


def test_what_the_node_surely_holds_is_asked_back_though_its_blocks_show_the_older_store():
    """A list shows one block after the other; the first may look newer, and a later one tells."""
    own = state(0b1110)
    kept = replace(own, holdings={KEY0: replace(own.holdings[KEY0], in_use=0b110)}, right_until=9.0)
    agent = IpamAgentState(IDENTITY, kept, TIMING)
    agent.observe(KEY0, Block(KEY0, (NodeHolding("n2", 0b100),), edition=48, version="90"))
    agent.note_rollback(5.0)
    assert agent.state.needed(KEY0) == 0b110
    late = IpamAgentState(IDENTITY, kept, TIMING, blocks=dict(agent.blocks))
    late.note_rollback(9.0)  # another node may have got it since the right ended
    assert late.state.needed(KEY0) == 0b10


def test_a_node_without_the_right_writes_no_block():
    """It may have been fenced: what it wrote without a lease, no controller would take back."""
    own = state(0b1110)
    lacking = replace(own.holdings[KEY0], in_use=0b10, uncertain=True)
    agent = IpamAgentState(IDENTITY, replace(own, holdings={KEY0: lacking}, right_until=9.0))
    assert first_request(tick(agent), 8.0) == ReadBlock(KEY0)
    assert first_request(tick(agent), 9.0) is None


def first_request(operation, now):
    """What it asks for first, but the time; None where it ends without."""
    try:
        effect = next(operation)
        while isinstance(effect, Clock):
            effect = operation.send(now)
    except StopIteration:
        return None
    return effect


def watched(*looks):
    """The watch after looks of (now, lease, nodes that serve)."""
    observations = reclaim.EMPTY
    for now, there, serving in looks:
        leases = {"n1": there} if there else {}
        observations = reclaim.observe_leases(
            observations, leases, frozenset({"n1"}), frozenset(serving), now
        )
    return observations


def test_only_a_node_that_is_gone_and_silent_is_fenced():
    """Silent for T plus margin, gone for the longest cool-down, each since it was seen to be so."""
    gone = watched((0, lease(), {"n1"}), (5, lease(), ()))
    assert reclaim.expired(gone, TIMING, 60, 659.9) == ()
    assert reclaim.expired(gone, TIMING, 60, 660) == ("n1",)
    assert reclaim.expired(gone, TIMING, 700, 704) == ()
    assert reclaim.expired(gone, TIMING, 700, 705) == ("n1",)
    assert reclaim.expired(watched((0, lease(), {"n1"})), TIMING, 60, 1e9) == ()
    renewed = watched((0, lease(), ()), (600, lease(heartbeat=8), ()))
    assert reclaim.expired(renewed, TIMING, 60, 1259) == ()
    back = watched((0, lease(), ()), (600, lease(), {"n1"}), (640, lease(), ()))
    assert reclaim.expired(back, TIMING, 60, 699) == ()
    assert reclaim.expired(watched((0, lease(duration=900.0), ())), TIMING, 60, 959) == ()
    assert reclaim.expired(watched((0, lease(fenced=True), ())), TIMING, 60, 1e9) == ()


def test_a_holder_that_never_had_a_lease_here_is_not_fenced():
    """It is another release's; one whose lease was deleted is still the controller's own."""
    foreign = watched((0, None, {"n1"}), (1, None, ()))
    assert reclaim.expired(foreign, TIMING, 60, 1e9) == ()
    assert reclaim.foreign_nodes(foreign) == ("n1",)
    deleted = watched((0, lease(), {"n1"}), (1, None, ()))
    assert reclaim.expired(deleted, TIMING, 60, 661) == ("n1",)
    assert reclaim.foreign_nodes(deleted) == ()


def test_reclaiming_leaves_the_others():
    """The edition goes up; where the node holds nothing, nothing is written."""
    block = Block(KEY0, (NodeHolding("n1", 0b10), NodeHolding("n2", 0b100)), edition=3, version="9")
    left = reclaim.without_holder(block, "n1")
    assert left == replace(block, holdings=(NodeHolding("n2", 0b100),), edition=4)
    assert reclaim.without_holder(left, "n1") is None


def test_status_and_faults_of_blocks():
    """Counts per subpool; two holders and foreign addresses name object, field and addresses."""
    full = Block(KEY0, (NodeHolding("n1", 0b11110), NodeHolding("n2", (1 << 63) - 1 - 0b11111)))
    (seen,) = reclaim.usage(SUBPOOLS, [full])
    assert (seen.size, seen.held, seen.nodes, seen.free) == (62, 62, 2, 0)
    assert reclaim.nearly_full(seen).startswith("62 of 62 IPv4 addresses are held by 2 nodes")
    assert reclaim.nearly_full(replace(seen, held=40)) == ""
    both = Block(KEY0, (NodeHolding("n1", 0b110), NodeHolding("n2", 0b100)))
    (conflict,) = reclaim.conflicts(both)
    assert str(conflict).startswith(
        "IPBlock default.10-0-0-0, spec.holdings: 10.0.0.2 is held by node n1 and node n2"
    )
    assert reclaim.conflicts(full) == ()
    (stray,) = reclaim.outside(Block(KEY0, (NodeHolding("n1", 0b11),)), SUBPOOLS)
    assert "10.0.0.0 is held by node n1, but no IPPool of network default" in str(stray)


def state(bits):
    found, block = plan(NodeAddressState("n1"), KEY0, None, acquire=bits)
    return confirm(found, block)


def wanting(node="n2", count=2, address=None):
    return BorrowRequest(
        node=node, family="IPv4", count=count, address=str(address) if address else None
    )


def test_a_node_gives_what_is_wanted_and_spare():
    """No more than wanted, just the address that is wanted; a waiting node serves those before."""
    held = state(0b11110)
    assert lendable(held, BorrowQueue("p", (wanting(),)), SUBPOOLS, False) == ((KEY0, 0b110),)
    only = wanting(count=1, address=ip_address("10.0.0.4"))
    assert lendable(held, BorrowQueue("p", (only,)), SUBPOOLS, False) == ((KEY0, 0b10000),)
    late = BorrowQueue("p", (wanting("n1"), wanting()))
    assert lendable(held, late, SUBPOOLS, True) == ()
    assert lendable(held, late, SUBPOOLS, False) == ((KEY0, 0b110),)
    others = BorrowQueue("p", (replace(wanting(), family=Family.V6),))
    assert lendable(held, others, SUBPOOLS, False) == ()


def test_what_one_block_gives_the_next_one_keeps():
    key = BlockKey("default", Family.V4, int(ip_address("10.0.0.64")))
    pool = subpools(IPPool("p", (IPRange(ip_network("10.0.0.0/25")),), block_size=4))
    held = confirm(*plan(state(0b11110), key, None, acquire=0b11110))
    lent = lendable(held, BorrowQueue("p", (wanting(count=5),)), pool, False)
    assert lent == ((KEY0, 0b11110), (key, 0b10))


def test_few_of_many_nodes_lend_at_once():
    """One or so in the first turn, twice as many in each of the next; for another node others."""
    many = tuple(NodeHolding(f"o{n}", 1 << n) for n in range(64))
    pool = subpools(IPPool("p", (IPRange(ip_network("10.0.0.0/20")),)))

    def turns(asker):
        queue = BorrowQueue("p", (wanting(asker),))
        seen = {KEY0: Block(KEY0, many)}
        return {n: turn(NodeAddressState(f"n{n}"), queue, pool, seen) for n in range(4000)}

    first = turns("n9999")
    sooner = [sum(one < turn for one in first.values()) for turn in range(1, 13)]
    assert sooner[0] < 8
    assert all(1 < later / earlier < 4 for earlier, later in pairwise(sooner[3:11]))
    assert sooner[-1] > 3000
    assert first != turns("n9998")


def test_borrow_requests_keep_their_place():
    """Written again they stay where they stood; without shortages they are gone."""
    queue = with_requests_of(BorrowQueue("p", (wanting("n0"),)), "n1", [Shortage(SUBPOOLS[0], 2)])
    assert queue is not None
    assert [w.node for w in queue.requests] == ["n0", "n1"]
    assert with_requests_of(queue, "n1", [Shortage(SUBPOOLS[0], 2)]) is None
    more = with_requests_of(queue, "n0", [Shortage(SUBPOOLS[0], 9)])
    assert more is not None
    assert [(w.node, w.count) for w in more.requests] == [("n0", 9), ("n1", 2)]
    assert has_requests_of_others(more, "n1")
    assert not has_requests_of_others(BorrowQueue("p", (wanting("n1"),)), "n1")
    assert with_requests_of(BorrowQueue("p"), "n1", []) is None
    many = with_requests_of(BorrowQueue("p"), "n1", [Shortage(SUBPOOLS[0], 2)] * 99)
    assert len(many.requests) == MOST_REQUESTS


def test_what_a_burst_left_is_given_back():
    """More than three blocks of spare addresses are too many; a stock of two is kept."""
    assert surplus(state(0b1111111111110), SUBPOOLS[0]) == ()
    ((_, bits),) = surplus(state(0b11111111111110), SUBPOOLS[0])
    assert bits.bit_count() == 5


def test_a_forgotten_borrow_request_is_dropped():
    """After six times a request's patience, seen unchanged by the controller."""
    queue = BorrowQueue("p", (wanting(),))
    observations, changed = reclaim.without_stale_requests(reclaim.EMPTY, [queue], TIMING, 100.0)
    assert changed == ()
    observations, changed = reclaim.without_stale_requests(observations, [queue], TIMING, 129.0)
    assert changed == ()
    _, changed = reclaim.without_stale_requests(observations, [queue], TIMING, 130.0)
    assert changed == (replace(queue, requests=()),)
