"""What a node grants, keeps and cools down, without any API server."""

from contextlib import suppress
from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Broken, Unavailable
from kube_base.frozen import replace
from kube_rdma.ipam.rules import node_state
from kube_rdma.ipam.rules.agent import tick, write
from kube_rdma.ipam.rules.blocks import (
    ahead_limit,
    choose_addresses,
    confirm,
    forgettable,
    free_of,
    held,
    held_by,
    plan,
    unsettled,
)
from kube_rdma.ipam.rules.effects import Clock, IpamAgentState, ReadBlock, Remove, WriteBlock
from kube_rdma.ipam.rules.grant import GrantedAddresses, LackingAddresses, grant
from kube_rdma.ipam.rules.subpools import subpools
from kube_rdma.model import ipam

POOL = ipam.IPPool("p", (ipam.IPRange(ip_network("10.0.0.0/26")),), cooldown=60.0)
CATALOG = {"p": subpools(POOL)}
OWN = ipam.NodeLease("n1", "journal", "boot")
KEY0 = ipam.BlockKey("default", ipam.Family.V4, int(ip_address("10.0.0.0")))


def holding(bits, node="n1"):
    """A node that has just confirmed these addresses of the only block."""
    state = node_state.extend_right(node_state.NodeAddressState(node), 0.0, 600.0)
    state, block = plan(state, KEY0, None, acquire=bits)
    return confirm(state, block), block


def request(container="c1", *nics):
    return ipam.AddressRequest(
        container, f"pod-{container}", nics or (ipam.NicRequest("net1", "p"),)
    )


def granted(state, wish, now=1.0):
    state, answer = grant(state, wish, CATALOG, now)
    assert isinstance(answer, GrantedAddresses)
    return node_state.with_record(state, answer.record, now), [
        str(allocation.address) for allocation in answer.allocations
    ]


def test_all_nics_or_none():
    """Two NICs and one address: nothing is taken, and the answer says the shortage."""
    state, _ = holding(0b10)
    two = request("c1", ipam.NicRequest("net1", "p"), ipam.NicRequest("net2", "p"))
    after, answer = grant(state, two, CATALOG, 1.0)
    assert isinstance(answer, LackingAddresses)
    assert [shortage.count for shortage in answer.shortages] == [1]
    assert after == state


def test_a_late_del_touches_nothing_of_the_new_sandbox():
    """Released by container: the pod's next sandbox keeps what it has."""
    state, _ = holding(0b1110)
    state, _ = granted(state, request("old"))
    state, fresh = granted(state, replace(request("new"), pod="pod-old"))
    state = node_state.with_record(state, node_state.release(state, "old"), 2.0)
    assert node_state.release(state, "old") is None
    assert node_state.release(state, "unknown") is None
    assert [str(allocation.address) for allocation in state.records["new"].live] == fresh


def test_an_address_cools_down_before_it_is_given_again():
    """Sixty seconds from when the journal has the release, and until the journal lets go."""
    state, _ = holding(0b10)
    state, _ = granted(state, request("c1"))
    assert isinstance(grant(state, request("c2"), CATALOG, 2.0)[1], LackingAddresses)
    state = node_state.with_record(state, node_state.release(state, "c1"), 2.0)
    assert node_state.cooled_down(state, 61.9) == ()
    assert node_state.cooled_down(state, 62.0) == ("c1",)
    assert node_state.end_cooldown(state, "c1").allocations == ()
    assert isinstance(grant(state, request("c2"), CATALOG, 70.0)[1], LackingAddresses)
    _, answer = grant(node_state.without_record(state, "c1"), request("c2"), CATALOG, 70.0)
    assert isinstance(answer, GrantedAddresses)


def test_a_restart_begins_every_cooldown_again_and_holds_nothing():
    """The clock of the process before means nothing; what is used is known, what is held is not."""
    state, block = holding(0b110)
    state, _ = granted(state, request("c1"))
    state, _ = granted(state, request("c2"))
    state = node_state.with_record(state, node_state.release(state, "c1"), 2.0)
    again = node_state.load("n1", state.records.values(), 9000.0)
    assert again.cooldown_ends == {"c1": 9060.0}
    with pytest.raises(Unavailable):
        grant(again, request("c2"), CATALOG, 9001.0)
    assert unsettled(again, {KEY0: block}) == (KEY0,)
    again = node_state.extend_right(again, 9000.0, 600.0)
    with pytest.raises(Unavailable):
        grant(again, request("c2"), CATALOG, 9001.0)
    again, written = plan(again, KEY0, block)
    assert granted(confirm(again, written), request("c2"), 9001.0)[1] == ["10.0.0.2"]


def test_a_fenced_node_asks_back_and_tells_what_is_gone():
    """What nobody took is held again; what another node took is Broken, never silent."""
    state, block = holding(0b110)
    state, _ = granted(state, request("c1"))
    state, _ = granted(state, request("c2"))
    taken = replace(block, holdings=(ipam.NodeHolding("n2", 0b10),), edition=7)
    state = node_state.extend_right(node_state.suspend_right(state), 1000.0, 600.0)
    state, written = plan(state, KEY0, taken)
    assert (held_by(written, "n1"), held_by(written, "n2")) == (0b100, 0b10)
    state = confirm(state, written)
    assert [(b.container, str(allocation.address)) for b, allocation in node_state.lost(state)] == [
        ("c1", "10.0.0.1")
    ]
    with pytest.raises(Broken, match=r"10\.0\.0\.1 of container c1.*default\.10-0-0-0"):
        grant(state, request("c1"), CATALOG, 1001.0)
    assert granted(state, request("c2"), 1001.0)[1] == ["10.0.0.2"]


def test_what_is_given_back_is_not_granted_until_a_write_says_that_it_stayed():
    """A give-back without an answer keeps the address out of use; use keeps it from leaving."""
    state, block = holding(0b110)
    returning, written = plan(state, KEY0, block, give_back=0b10)
    assert held(written) == 0b100
    returning, first = granted(returning, request("c1"))
    assert first == ["10.0.0.2"]
    assert isinstance(grant(returning, request("c2"), CATALOG, 1.0)[1], LackingAddresses)
    state, _ = granted(state, request("c1"))
    assert held(plan(state, KEY0, block, give_back=0b110)[1]) == 0b10


def test_a_node_pins_nothing_at_an_address_that_another_node_has_by_now():
    """The API server would refuse the whole write, and so each one after it."""
    state, block = holding(0b110)
    state, _ = granted(state, request("c1", ipam.NicRequest("net1", "p", owner="ns/db-0/net1")))
    taken = replace(block, holdings=(ipam.NodeHolding("n2", 0b110),))
    _, written = plan(state, KEY0, taken, acquire=0b1000)
    assert (held_by(written, "n1"), written.pins) == (0b1000, ())
    _, written = plan(state, KEY0, block)
    assert [pin.offset for pin in written.pins] == [1]


def test_an_owner_keeps_its_address():
    """At once during its cool-down on the same node; others take a pinned address last."""
    state, block = holding(0b1110)
    sticky = (ipam.NicRequest("net1", "p", owner="ns/db-0/net1"),)
    state, first = granted(state, request("c1", *sticky))
    state, written = plan(state, KEY0, block)
    assert [(pin.owner, pin.offset) for pin in written.pins] == [("ns/db-0/net1", 1)]
    state = node_state.with_record(confirm(state, written), node_state.release(state, "c1"), 2.0)
    assert granted(state, request("c2", *sticky), 3.0)[1] == first
    state = node_state.without_record(state, "c1")
    state, others = granted(state, request("x"), 70.0)
    state, more = granted(state, request("y"), 70.0)
    assert first[0] not in (*others, *more)
    assert granted(state, request("z"), 70.0)[1] == first


def test_a_choice_in_a_huge_pool_looks_at_few_blocks():
    """A /10 and a /64 are acquired from at the node's own start block."""
    for subnet in ("10.64.0.0/10", "fd00::/64"):
        (subpool,) = subpools(ipam.IPPool("p", (ipam.IPRange(ip_network(subnet)),)))
        ((key, bits),) = choose_addresses(node_state.NodeAddressState("n1"), {}, subpool, 16)
        assert bits.bit_count() == 16
        full = {key: ipam.Block(key, (ipam.NodeHolding("n2", 2**64 - 1),))}
        ((other, _),) = choose_addresses(node_state.NodeAddressState("n1"), full, subpool, 16)
        assert other != key


def test_a_node_acquires_ahead_what_the_pool_has_for_each():
    """All of a block in a wide pool, little at first in a small one, nothing of the last ones."""
    (wide,) = subpools(ipam.IPPool("p", (ipam.IPRange(ip_network("10.0.0.0/10")),)))
    empty = node_state.NodeAddressState("n1"), {}
    assert ahead_limit(*empty, wide, sees_all=False) == wide.block_size
    (small,) = CATALOG["p"]
    assert ahead_limit(*empty, small, sees_all=False) == 4
    held_by = {
        KEY0: ipam.Block(
            KEY0, tuple(ipam.NodeHolding(f"n{n}", 0b111111 << 6 * n) for n in range(1, 9))
        )
    }
    seen = node_state.NodeAddressState("n1"), held_by, small
    assert ahead_limit(*seen, sees_all=True) == ahead_limit(*seen, sees_all=False) == 0
    state = holding(0b1111110)[0]
    for number in range(4):
        state, _ = granted(state, request(f"c{number}"))
    assert ahead_limit(state, {}, small, sees_all=False) == 8


def test_a_write_takes_what_is_free_by_now():
    """Where another node was first, others of the same block do as well; old pins come last."""
    (subpool,) = CATALOG["p"]
    assert free_of(None, subpool, KEY0, 2) == 0b110
    taken = ipam.Block(KEY0, (ipam.NodeHolding("n2", 0b110),), (ipam.Pin("ns/db-0/net1", 3),))
    assert free_of(taken, subpool, KEY0, 2) == 0b110000
    last = ipam.Block(KEY0, (ipam.NodeHolding("n2", 2**64 - 1 - 0b1000),), taken.pins)
    assert free_of(last, subpool, KEY0, 2) == 0b1000


def test_an_uncertain_block_is_forgotten_only_where_the_node_has_nothing():
    """Neither by what it believes, nor by what the block says."""
    uncertain, _ = plan(node_state.NodeAddressState("n1"), KEY0, None, acquire=0b110)
    assert forgettable(uncertain, KEY0, ipam.Block(KEY0, (ipam.NodeHolding("n2", 0b110),)))
    assert not forgettable(uncertain, KEY0, ipam.Block(KEY0, (ipam.NodeHolding("n1", 0b110),)))
    state, block = holding(0b110)
    returning, _ = plan(state, KEY0, block, give_back=0b110)
    assert not forgettable(returning, KEY0, ipam.Block(KEY0, ()))


def test_a_write_whose_block_is_read_in_an_outage_ends():
    """The store that answers may have gone back, and show addresses of others as free."""
    state = node_state.extend_right(node_state.NodeAddressState("n1"), 0.0, 600.0)
    node = IpamAgentState(OWN, state)
    acquiring = write(node, KEY0, acquire=lambda block: 0b10)
    assert isinstance(next(acquiring), WriteBlock)
    node.is_watch_interrupted = lambda: True
    assert isinstance(acquiring.send(None), ReadBlock)
    with pytest.raises(StopIteration) as ended:
        acquiring.send(None)
    assert ended.value.value is False
    assert not node.busy


@pytest.mark.parametrize("shown", [None, ipam.Block(KEY0, (), version="3")], ids=["gone", "older"])
def test_a_write_that_finds_an_older_store_is_the_last_before_the_node_has_its_lease(shown):
    state, block = holding(0b110)
    state = replace(state, holdings={KEY0: replace(state.holdings[KEY0], uncertain=True)})
    node = IpamAgentState(OWN, state, blocks={KEY0: replace(block, version="9")})
    effect, writing = None, write(node, KEY0)
    with suppress(StopIteration):
        while True:
            answers = {ReadBlock: shown, Clock: 1.0, WriteBlock: block}
            effect = writing.send(answers.get(type(effect)))
    assert node.is_rolled_back


def test_a_cooldown_ends_unless_the_container_is_served_or_has_none_any_more():
    state, _ = holding(0b1110)
    for name in ("served", "over", "gone"):
        state, _ = granted(state, request(name))
        state = node_state.with_record(state, node_state.release(state, name), 2.0)
    node = IpamAgentState(OWN, state)
    node.serving.add("served")
    ticking = tick(node)
    assert isinstance(next(ticking), Clock)
    assert ticking.send(70.0) == Remove("over")
    assert node.serving == {"served", "over"}
    node.state = node_state.without_record(node.state, "gone")
    assert isinstance(ticking.send(None), Clock)
    assert node.serving == {"served"}
