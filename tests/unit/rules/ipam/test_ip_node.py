"""What a node grants, keeps and lets rest, without any API server."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma.model.ipam import Ask, Block, Cell, CellHolding, Family, IPPool, IPRange, NicAsk, Pin
from kube_rdma.rules.ipam.blocks import (
    choose,
    confirmed,
    forgettable,
    free_of,
    held,
    holds_of,
    plan,
    portion,
    unsettled,
)
from kube_rdma.rules.ipam.cells import zones
from kube_rdma.rules.ipam.grant import Granted, Short, ask
from kube_rdma.rules.ipam.node_state import (
    NodeAddressState,
    abandoned,
    cut,
    due,
    load,
    lost,
    release,
    removed,
    renewed,
    retire,
    stored,
)

POOL = IPPool("p", (IPRange(ip_network("10.0.0.0/26")),), rest=60.0)
CATALOG = {"p": zones(POOL)}
CELL0 = Cell("default", Family.V4, int(ip_address("10.0.0.0")))


def holding(bits, node="n1"):
    """A node that has just confirmed these places of the only cell."""
    state = renewed(NodeAddressState(node), 0.0, 600.0)
    state, block = plan(state, CELL0, None, add=bits)
    return confirmed(state, block), block


def request(container="c1", *nics):
    return Ask(container, f"pod-{container}", nics or (NicAsk("net1", "p"),))


def granted(state, wish, now=1.0):
    state, answer = ask(state, wish, CATALOG, now)
    assert isinstance(answer, Granted)
    return stored(state, answer.booking, now), [str(lease.address) for lease in answer.leases]


def test_all_nics_or_none():
    """Two NICs and one address: nothing is taken, and the lack is told."""
    state, _ = holding(0b10)
    two = request("c1", NicAsk("net1", "p"), NicAsk("net2", "p"))
    after, answer = ask(state, two, CATALOG, 1.0)
    assert isinstance(answer, Short)
    assert [lack.count for lack in answer.lacks] == [1]
    assert after == state


def test_the_same_key_gets_the_same_addresses():
    """Asked again, with one NIC more: the first keeps its address, only the new one is granted."""
    state, _ = holding(0b1110)
    state, first = granted(state, request())
    state, again = granted(state, request("c1", NicAsk("net1", "p"), NicAsk("net2", "p")))
    assert again[:1] == first
    assert len(set(again)) == 2


def test_a_late_del_touches_nothing_of_the_new_sandbox():
    """Released by container: the pod's next sandbox keeps what it has."""
    state, _ = holding(0b1110)
    state, _ = granted(state, request("old"))
    state, fresh = granted(state, replace(request("new"), pod="pod-old"))
    state = stored(state, release(state, "old"), 2.0)
    assert release(state, "old") is None
    assert release(state, "unknown") is None
    assert [str(lease.address) for lease in state.bookings["new"].live] == fresh


def test_an_address_rests_before_it_is_given_again():
    """Sixty seconds from when the journal has the release, and until the journal lets go."""
    state, _ = holding(0b10)
    state, _ = granted(state, request("c1"))
    assert isinstance(ask(state, request("c2"), CATALOG, 2.0)[1], Short)
    state = stored(state, release(state, "c1"), 2.0)
    assert due(state, 61.9) == ()
    assert due(state, 62.0) == ("c1",)
    assert retire(state, "c1").leases == ()
    assert isinstance(ask(state, request("c2"), CATALOG, 70.0)[1], Short)
    _, answer = ask(removed(state, "c1"), request("c2"), CATALOG, 70.0)
    assert isinstance(answer, Granted)


def test_a_restart_begins_every_rest_anew_and_holds_nothing():
    """The clock of the process before means nothing; what is used is known, what is held is not."""
    state, block = holding(0b110)
    state, _ = granted(state, request("c1"))
    state, _ = granted(state, request("c2"))
    state = stored(state, release(state, "c1"), 2.0)
    again = load("n1", state.bookings.values(), 9000.0)
    assert again.ends == {"c1": 9060.0}
    with pytest.raises(Unavailable):
        ask(again, request("c2"), CATALOG, 9001.0)
    assert unsettled(again, {CELL0: block}) == (CELL0,)
    again = renewed(again, 9000.0, 600.0)
    with pytest.raises(Unavailable):
        ask(again, request("c2"), CATALOG, 9001.0)
    again, written = plan(again, CELL0, block)
    assert granted(confirmed(again, written), request("c2"), 9001.0)[1] == ["10.0.0.2"]


def test_without_contact_nothing_is_granted():
    """The right ends T after the renewal was sent."""
    state, _ = holding(0b110)
    granted(state, request(), 599.9)
    with pytest.raises(Unavailable, match="no contact with the API server"):
        ask(state, request(), CATALOG, 600.0)


def test_a_fenced_node_asks_back_and_tells_what_is_gone():
    """What nobody took is held again; what another node took is Broken, never silent."""
    state, block = holding(0b110)
    state, _ = granted(state, request("c1"))
    state, _ = granted(state, request("c2"))
    taken = replace(block, holdings=(CellHolding("n2", 0b10),), edition=7)
    state = renewed(cut(state), 1000.0, 600.0)
    state, written = plan(state, CELL0, taken)
    assert (holds_of(written, "n1"), holds_of(written, "n2")) == (0b100, 0b10)
    state = confirmed(state, written)
    assert [(b.container, str(lease.address)) for b, lease in lost(state)] == [("c1", "10.0.0.1")]
    with pytest.raises(Broken, match=r"10\.0\.0\.1 of container c1.*default\.10-0-0-0"):
        ask(state, request("c1"), CATALOG, 1001.0)
    assert granted(state, request("c2"), 1001.0)[1] == ["10.0.0.2"]


def test_what_leaves_is_not_granted_until_a_write_says_that_it_stayed():
    """A give-back without an answer keeps the address out of use; use keeps it from leaving."""
    state, block = holding(0b110)
    leaving, written = plan(state, CELL0, block, give=0b10)
    assert held(written) == 0b100
    leaving, first = granted(leaving, request("c1"))
    assert first == ["10.0.0.2"]
    assert isinstance(ask(leaving, request("c2"), CATALOG, 1.0)[1], Short)
    state, _ = granted(state, request("c1"))
    assert held(plan(state, CELL0, block, give=0b110)[1]) == 0b10


def test_static_addresses():
    """Given when spare, lacking when not held, refused outside of the pool."""
    state, _ = holding(0b110)
    wish = request("c1", NicAsk("net1", "p", addresses=(ip_address("10.0.0.2"),)))
    assert granted(state, wish)[1] == ["10.0.0.2"]
    far = request("c1", NicAsk("net1", "p", addresses=(ip_address("10.0.0.9"),)))
    _, answer = ask(state, far, CATALOG, 1.0)
    assert isinstance(answer, Short)
    assert answer.lacks[0].must
    wrong = request("c1", NicAsk("net1", "p", addresses=(ip_address("10.0.0.63"),)))
    with pytest.raises(Refused, match=r"IPPool p does not give 10\.0\.0\.63"):
        ask(state, wrong, CATALOG, 1.0)


def test_an_owner_keeps_its_address():
    """At once while it rests on the same node; others take a pinned address last."""
    state, block = holding(0b1110)
    sticky = (NicAsk("net1", "p", owner="ns/db-0/net1"),)
    state, first = granted(state, request("c1", *sticky))
    state, written = plan(state, CELL0, block)
    assert [(pin.owner, pin.place) for pin in written.pins] == [("ns/db-0/net1", 1)]
    state = stored(confirmed(state, written), release(state, "c1"), 2.0)
    assert granted(state, request("c2", *sticky), 3.0)[1] == first
    state = removed(state, "c1")
    state, others = granted(state, request("x"), 70.0)
    state, more = granted(state, request("y"), 70.0)
    assert first[0] not in (*others, *more)
    assert granted(state, request("z"), 70.0)[1] == first


def test_what_no_sandbox_has_is_collected():
    """Only what was granted before the runtime was asked."""
    state, _ = holding(0b1110)
    state, _ = granted(state, request("c1"), 1.0)
    state, _ = granted(state, request("c2"), 5.0)
    assert abandoned(state, frozenset(), 5.0) == ("c1",)
    assert abandoned(state, frozenset({"c1"}), 6.0) == ("c2",)


def test_a_claim_in_a_huge_pool_looks_at_few_cells():
    """A /10 and a /64 are claimed from at the node's own place."""
    for subnet in ("10.64.0.0/10", "fd00::/64"):
        (zone,) = zones(IPPool("p", (IPRange(ip_network(subnet)),)))
        ((cell, bits),) = choose(NodeAddressState("n1"), {}, zone, 16)
        assert bits.bit_count() == 16
        full = {cell: Block(cell, (CellHolding("n2", 2**64 - 1),))}
        ((other, _),) = choose(NodeAddressState("n1"), full, zone, 16)
        assert other != cell


def test_a_node_claims_ahead_what_the_pool_has_for_each():
    """All of a block in a wide pool, little at first in a small one, nothing of the last ones."""
    (wide,) = zones(IPPool("p", (IPRange(ip_network("10.0.0.0/10")),)))
    assert portion(NodeAddressState("n1"), {}, wide) == wide.block_size
    (small,) = CATALOG["p"]
    assert portion(NodeAddressState("n1"), {}, small) == 4
    held_by = {
        CELL0: Block(CELL0, tuple(CellHolding(f"n{n}", 0b111111 << 6 * n) for n in range(1, 9)))
    }
    assert portion(NodeAddressState("n1"), held_by, small) == 0
    state = holding(0b1111110)[0]
    for number in range(4):
        state, _ = granted(state, request(f"c{number}"))
    assert portion(state, {}, small) == 8


def test_a_claim_takes_what_is_free_by_now():
    """Where another node was first, others of the same cell do as well; old pins come last."""
    (zone,) = CATALOG["p"]
    assert free_of(None, zone, CELL0, 2) == 0b110
    taken = Block(CELL0, (CellHolding("n2", 0b110),), (Pin("ns/db-0/net1", 3),))
    assert free_of(taken, zone, CELL0, 2) == 0b110000
    last = Block(CELL0, (CellHolding("n2", 2**64 - 1 - 0b1000),), taken.pins)
    assert free_of(last, zone, CELL0, 2) == 0b1000


def test_a_doubt_is_forgotten_only_where_the_node_has_nothing():
    """Neither by what it believes, nor by what the block says."""
    doubted, _ = plan(NodeAddressState("n1"), CELL0, None, add=0b110)
    assert forgettable(doubted, CELL0, Block(CELL0, (CellHolding("n2", 0b110),)))
    assert not forgettable(doubted, CELL0, Block(CELL0, (CellHolding("n1", 0b110),)))
    state, block = holding(0b110)
    leaving, _ = plan(state, CELL0, block, give=0b110)
    assert not forgettable(leaving, CELL0, Block(CELL0, ()))
