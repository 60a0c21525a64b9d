"""Who may grant for a node, what the controller takes away, and what nodes give back."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Broken
from kube_rdma.model.ipam import (
    Block,
    Board,
    Cell,
    CellHolding,
    Family,
    IPPool,
    IPRange,
    NodeLease,
    Timing,
    Want,
)
from kube_rdma.rules.ipam.blocks import confirmed, outdated, plan, recalled, went_back
from kube_rdma.rules.ipam.borrowing import gifts, is_posted, is_wanted, posted, surplus
from kube_rdma.rules.ipam.cells import zones
from kube_rdma.rules.ipam.grant import Lack
from kube_rdma.rules.ipam.node_lease import entry, fence, is_back, is_ours, renewal
from kube_rdma.rules.ipam.node_state import NodeAddressState, trusted
from kube_rdma.rules.ipam.reclaim import (
    EMPTY,
    conflicts,
    ended,
    is_empty,
    look,
    near_dry,
    outside,
    reclaimed,
    stale_wants,
    strangers,
    usage,
)

TIMING = Timing(contact=600.0, margin=60.0, patience=5.0)
MINE = NodeLease("n1", "journal", "boot-2")
CELL0 = Cell("default", Family.V4, int(ip_address("10.0.0.0")))
FULL = {CELL0: Block(CELL0, (CellHolding("n1", 2**64 - 1),))}
ZONES = zones(IPPool("p", (IPRange(ip_network("10.0.0.0/26")),), block_size=4))


def lease(**more):
    return replace(NodeLease("n1", "journal", "boot-1", beat=7, version="70"), **more)


def test_a_node_enters_at_once_where_the_right_is_its_own_or_nobodys():
    """No lease, its own, and a fenced one; the version it saw is the one it replaces."""
    assert entry(MINE, None, 0, TIMING, 60) == replace(MINE, beat=1)
    for there in (lease(), lease(fenced=True), lease(journal="other", fenced=True)):
        taken = entry(MINE, there, 0, TIMING, 60)
        assert isinstance(taken, NodeLease)
        assert is_ours(taken, "journal")
        assert (taken.beat, taken.version) == (8, "70")


def test_another_journals_right_must_have_ended():
    """T as the other counts it, plus the margin, or the longest rest."""
    other = lease(journal="other", duration=100.0)
    assert entry(MINE, other, 0, TIMING, 60) == 160
    assert entry(MINE, other, 100, TIMING, 60) == 60
    assert entry(MINE, other, 0, TIMING, 500) == 500
    assert isinstance(entry(MINE, other, 160, TIMING, 60), NodeLease)


def test_a_journal_lost_under_living_pods_is_broken():
    """The same boot and another journal: nobody knows what lives."""
    with pytest.raises(Broken, match="drain and restart the node"):
        entry(MINE, lease(journal="other", boot="boot-2"), 1e9, TIMING, 60)


def test_a_fence_and_a_renewal_replace_the_same_version():
    """So that only one of them can succeed."""
    there = lease()
    assert fence("n1", there).version == renewal(there).version == "70"
    assert not is_ours(fence("n1", there), "journal")
    assert not is_ours(None, "journal")
    assert fence("n1", None).version is None


def test_a_store_or_a_machine_that_went_back_is_seen_by_the_beat():
    """One write may be unknown; who has the right loses it to nobody before it has ended."""
    last = lease()
    for beat, back in ((6, True), (7, False), (8, False), (9, True)):
        assert is_back(last, lease(beat=beat), has_right=True) is back
    fenced, other = lease(beat=9, fenced=True), lease(beat=9, journal="other")
    for there in (fenced, other, None):
        assert is_back(last, there, has_right=True)
        assert not is_back(last, there, has_right=False)
    assert is_back(last, lease(beat=3, journal="other"), has_right=False)


def test_a_block_that_went_back():
    """An older edition or version of it, or none where somebody held some."""
    held_block = Block(CELL0, (CellHolding("n2", 1),), edition=5, version="50")
    empty = replace(held_block, holdings=(), edition=6, version="60")
    assert went_back(held_block, replace(held_block, edition=4, version="90"))
    assert went_back(held_block, replace(held_block, edition=9, version="40"))
    assert went_back(held_block, None)
    assert went_back(empty, replace(empty, edition=5, version="50"))
    for old, new in ((held_block, empty), (empty, None), (None, held_block), (empty, empty)):
        assert not went_back(old, new)


def test_an_empty_block_that_was_deleted_and_made_anew_is_no_restore():
    """The controller deletes what nobody holds; the next claim begins with edition 1."""
    empty = Block(CELL0, (), edition=6, version="60")
    assert not went_back(empty, Block(CELL0, (CellHolding("n2", 1),), edition=1, version="70"))


def test_what_an_older_store_calls_the_nodes_is_given_back():
    """All but what the node surely held, and what its pods have; that is asked back first."""
    own = state(0b1110)
    kept = replace(own, holds={CELL0: replace(own.holds[CELL0], used=0b10)})
    older = Block(CELL0, (CellHolding("n1", 0b11111000),), edition=3, version="9")
    back = recalled(kept, {CELL0: older}, trusted(kept))
    _, written = plan(back, CELL0, older)
    assert written.holdings == (CellHolding("n1", 0b1010),)
    assert back.term != kept.term


def test_what_another_node_had_by_then_is_not_asked_back_first():
    """Its pod may be gone, and the other's lives."""
    own = state(0b1110)
    kept = replace(own, holds={CELL0: replace(own.holds[CELL0], used=0b110)})
    newest = Block(CELL0, (CellHolding("n1", 0b1010), CellHolding("n2", 0b100)), version="90")
    lost = outdated(kept, {CELL0: newest})
    back = recalled(lost, {}, trusted(kept))
    _, written = plan(back, CELL0, None)
    assert written.holdings == (CellHolding("n1", 0b10),)
    _, later = plan(replace(back, taken={}), CELL0, None)
    assert later.holdings == (CellHolding("n1", 0b110),)


def watched(*looks):
    """The watch after looks of (now, lease, nodes that serve)."""
    watch = EMPTY
    for now, there, serving in looks:
        leases = {"n1": there} if there else {}
        watch = look(watch, leases, frozenset({"n1"}), frozenset(serving), now)
    return watch


def test_only_a_node_that_is_gone_and_silent_is_fenced():
    """Silent for T plus margin, gone for the longest rest, each since it was seen to be so."""
    gone = watched((0, lease(), {"n1"}), (5, lease(), ()))
    assert ended(gone, TIMING, 60, 659.9) == ()
    assert ended(gone, TIMING, 60, 660) == ("n1",)
    assert ended(gone, TIMING, 700, 704) == ()
    assert ended(watched((0, lease(), {"n1"})), TIMING, 60, 1e9) == ()
    renewed = watched((0, lease(), ()), (600, lease(beat=8), ()))
    assert ended(renewed, TIMING, 60, 1259) == ()
    back = watched((0, lease(), ()), (600, lease(), {"n1"}), (640, lease(), ()))
    assert ended(back, TIMING, 60, 699) == ()
    assert ended(watched((0, lease(duration=900.0), ())), TIMING, 60, 959) == ()
    assert ended(watched((0, lease(fenced=True), ())), TIMING, 60, 1e9) == ()


def test_a_holder_that_never_had_a_lease_here_is_not_fenced():
    """It is another release's; one whose lease was deleted is still the controller's own."""
    foreign = watched((0, None, {"n1"}), (1, None, ()))
    assert ended(foreign, TIMING, 60, 1e9) == ()
    assert strangers(foreign) == ("n1",)
    deleted = watched((0, lease(), {"n1"}), (1, None, ()))
    assert ended(deleted, TIMING, 60, 661) == ("n1",)
    assert strangers(deleted) == ()


def test_reclaiming_leaves_the_others():
    """The edition goes up; where the node holds nothing, nothing is written."""
    block = Block(
        CELL0, (CellHolding("n1", 0b10), CellHolding("n2", 0b100)), edition=3, version="9"
    )
    left = reclaimed(block, "n1")
    assert left == replace(block, holdings=(CellHolding("n2", 0b100),), edition=4)
    assert reclaimed(left, "n1") is None
    assert not is_empty(left)
    assert is_empty(Block(CELL0))


def test_status_and_faults_of_blocks():
    """Counts per zone; two holders and foreign addresses name object, field and addresses."""
    full = Block(CELL0, (CellHolding("n1", 0b11110), CellHolding("n2", (1 << 63) - 1 - 0b11111)))
    (seen,) = usage(ZONES, [full])
    assert (seen.size, seen.held, seen.nodes, seen.free) == (62, 62, 2, 0)
    assert near_dry(seen).startswith("62 of 62 IPv4 addresses are held by 2 nodes")
    assert near_dry(replace(seen, held=40)) == ""
    both = Block(CELL0, (CellHolding("n1", 0b110), CellHolding("n2", 0b100)))
    (conflict,) = conflicts(both)
    assert str(conflict).startswith(
        "IPBlock default.10-0-0-0, spec.holdings: 10.0.0.2 is held by node n1 and node n2"
    )
    assert conflicts(full) == ()
    (stray,) = outside(Block(CELL0, (CellHolding("n1", 0b11),)), ZONES)
    assert "10.0.0.0 is held by node n1, but no IPPool of network default" in str(stray)


def state(bits):
    found, block = plan(NodeAddressState("n1"), CELL0, None, add=bits)
    return confirmed(found, block)


def want(node="n2", count=2, address=None):
    return Want(node, Family.V4, None, count, address)


def test_a_node_gives_what_is_wanted_and_spare():
    """No more than wanted, just the address that is wanted; a waiting node serves those before."""
    held = state(0b11110)
    assert gifts(held, Board("p", (want(),)), ZONES, False, FULL) == ((CELL0, 0b110),)
    only = want(count=1, address=ip_address("10.0.0.4"))
    assert gifts(held, Board("p", (only,)), ZONES, False, FULL) == ((CELL0, 0b10000),)
    late = Board("p", (want("n1"), want()))
    assert gifts(held, late, ZONES, True, FULL) == ()
    assert gifts(held, late, ZONES, False, FULL) == ((CELL0, 0b110),)
    assert gifts(held, Board("p", (replace(want(), family=Family.V6),)), ZONES, False, FULL) == ()


def test_what_nobody_holds_serves_wants_first():
    """Each node that has spare addresses sees a want; what others gave back is not given twice."""
    held = state(0b11110)
    taken = 2**64 - 1 - 0b11110
    for vacant, given in ((0, 0b1110), (1 << 8, 0b110), (3 << 8, 0b10), (7 << 8, 0)):
        block = Block(CELL0, (CellHolding("n1", 0b11110), CellHolding("n3", taken & ~vacant)))
        gift = gifts(held, Board("p", (want(), want(count=1))), ZONES, False, {CELL0: block})
        assert gift == (((CELL0, given),) if given else ())


def test_wants_keep_their_place():
    """Posted again they stay where they stood; without lacks they are gone."""
    board = posted(Board("p", (want("n0"),)), "n1", [Lack(ZONES[0], 2)])
    assert board is not None
    assert [w.node for w in board.wants] == ["n0", "n1"]
    assert posted(board, "n1", [Lack(ZONES[0], 2)]) is None
    more = posted(board, "n0", [Lack(ZONES[0], 9)])
    assert more is not None
    assert [(w.node, w.count) for w in more.wants] == [("n0", 9), ("n1", 2)]
    assert is_posted(more, "n1")
    assert is_wanted(more, "n1")
    assert not is_wanted(Board("p", (want("n1"),)), "n1")
    assert posted(Board("p"), "n1", []) is None


def test_what_a_burst_left_is_given_back():
    """More than three blocks of spare addresses are too many; a stock of two is kept."""
    assert surplus(state(0b1111111111110), ZONES[0]) == ()
    ((_, bits),) = surplus(state(0b11111111111110), ZONES[0])
    assert bits.bit_count() == 5


def test_a_forgotten_want_is_taken_down():
    """After six times a request's patience, seen unchanged by the controller."""
    board = Board("p", (want(),))
    watch, changed = stale_wants(EMPTY, [board], TIMING, 100.0)
    assert changed == ()
    watch, changed = stale_wants(watch, [board], TIMING, 129.0)
    assert changed == ()
    _, changed = stale_wants(watch, [board], TIMING, 130.0)
    assert changed == (replace(board, wants=()),)
