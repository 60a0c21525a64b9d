"""Slices of nodes: their arithmetic against plain lists, and who gets which slice when."""

from ipaddress import ip_address, ip_network
from time import process_time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.ipam.rules import blocks, node_state
from kube_rdma.ipam.rules.blocks import confirm, held_by, plan, recall
from kube_rdma.ipam.rules.grant import LackingAddresses, grant
from kube_rdma.ipam.rules.pools import anchor_in, choose_slice, own_part, strays
from kube_rdma.ipam.rules.reclaim import outside, usage, without_holder
from kube_rdma.ipam.rules.subpools import anchor, key_at, mask, offsets, part, slices_from, subpools
from kube_rdma.model.ipam import (
    AddressRequest,
    Block,
    IPPool,
    IPRange,
    NicRequest,
    NodeSlice,
    PerNode,
    Span,
)


def pool(*per_node, subnet="10.0.0.0/24", **more):
    return IPPool("p", (IPRange(ip_network(subnet), per_node=PerNode(*per_node)),), **more)


def sliced(*per_node, **more):
    (subpool,) = subpools(pool(*per_node, **more))
    return subpool


def test_a_node_without_an_entry_looks_once_at_those_of_others():
    """However many they are, and free all of them: 5,000 nodes are written so."""

    def seconds(length):
        count = 1 << 31 - length
        nodes = tuple(
            NodeSlice(f"n{n}", ip_network((int(ip_address("10.0.0.0")) + 2 * n, 31)))
            for n in range(count)
        )
        subpool = sliced(31, None, nodes, subnet=f"10.0.0.0/{length}")
        fresh = node_state.extend_right(node_state.NodeAddressState("other"), 0.0, 600.0)
        begin = process_time()
        assert choose_slice(fresh, {}, subpool) is None
        return process_time() - begin

    assert min(seconds(19) for _ in range(3)) < 8 * min(seconds(21) for _ in range(3))


def addresses(subpool):
    return {
        key_at(subpool, n).address(offset)
        for n in range(subpool.block_count)
        for offset in offsets(mask(subpool, key_at(subpool, n)))
    }


class Cluster:
    """Blocks, and nodes that acquire and grant without any fault."""

    def __init__(self, subpool):
        self.subpool, self.blocks, self.states = subpool, {}, {}

    def state(self, node):
        fresh = node_state.extend_right(node_state.NodeAddressState(node), 0.0, 600.0)
        return self.states.setdefault(node, fresh)

    def write(self, node, key, acquire=0):
        state, block = plan(self.state(node), key, self.blocks.get(key), acquire=acquire)
        self.blocks[key] = block
        self.states[node] = confirm(state, block)

    def acquire(self, node):
        """The slice that the node gets; None: no slice is free."""
        chosen = choose_slice(self.state(node), self.blocks, self.subpool)
        if chosen:
            self.write(node, *chosen)
        own = own_part(node, self.state(node).holdings, self.subpool)
        return own.node_slice if own else None

    def add(self, node, container):
        """The addresses of a pod that starts; none: the node lacks some."""
        request = AddressRequest(container, f"pod-{container}", (NicRequest("net1", "p"),))
        state, answer = grant(self.state(node), request, {"p": (self.subpool,)}, 1.0)
        if isinstance(answer, LackingAddresses):
            return []
        self.states[node] = node_state.with_record(state, answer.record, 1.0)
        for key in blocks.unsettled(self.states[node], self.blocks):
            self.write(node, key)
        return [allocation.address for allocation in answer.allocations]

    def end(self, node, container):
        """The pod is gone, and its address has cooled down."""
        state = self.states[node]
        state = node_state.with_record(state, node_state.release(state, container), 2.0)
        assert not node_state.end_cooldown(state, container).allocations
        self.states[node] = node_state.without_record(state, container)

    def gone(self, node):
        """The controller takes back what a node held that is gone for good."""
        del self.states[node]
        self.blocks = {k: without_holder(b, node) or b for k, b in self.blocks.items()}


prefixes = st.integers(24, 32)
holes = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 60)).map(
        lambda pair: Span(
            ip_address("10.0.0.0") + pair[0], ip_address("10.0.0.0") + min(255, sum(pair))
        )
    ),
    max_size=3,
)


@given(prefixes, st.one_of(st.none(), st.integers(0, 7)), holes)
# Of the first slice only its broadcast address is left.
@example(30, None, [Span(ip_address("10.0.0.0"), ip_address("10.0.0.2"))])
def test_a_part_is_what_its_slice_says(prefix, gateway, excludes):
    """Each slice without its network, broadcast, gateway and excluded addresses; each has its own
    subnet and gateway."""
    size = 1 << (32 - prefix)
    assume(gateway is None or gateway < size)
    gone = {a for s in excludes for a in range(int(s.first), int(s.last) + 1)}
    expected = {}
    for node_slice in ip_network("10.0.0.0/24").subnets(new_prefix=prefix):
        inside = set(node_slice if size < 3 else node_slice.hosts())
        if gateway is not None:
            inside -= {node_slice[gateway]}
        left = {a for a in inside if int(a) not in gone}
        if left:
            expected[node_slice] = left
    wish = pool(prefix, gateway, excludes=tuple(excludes))
    if not any(left for s, left in expected.items()):
        with pytest.raises(Refused, match="nothing is left to give"):
            subpools(wish)
        return
    (subpool,) = subpools(wish)
    whole = ip_network("10.0.0.0/24")
    walked = list(slices_from(whole, prefix, subpool.excluded, int(whole.network_address)))
    parts = {s: part(subpool, s) for s in walked}
    assert {s: addresses(p) for s, p in parts.items() if p} == expected
    for node_slice, own in parts.items():
        for address in expected.get(node_slice, ()):
            found = own.ranges[0]
            assert found.subnet == node_slice
            assert found.gateway == (None if gateway is None else node_slice[gateway])
            assert address in node_slice


@pytest.mark.parametrize("excludes", [(), ("10.0.0.0", "10.0.0.9"), ("10.0.0.0", "10.0.0.255")])
def test_slices_of_nothing_but_a_gateway_are_refused(excludes):
    """The first one that no exclude touches tells it of all, also where no exclude is behind it."""
    spans = (Span(*map(ip_address, excludes)),) if excludes else ()
    with pytest.raises(Refused, match="nothing is left to give"):
        subpools(pool(32, 0, excludes=spans))


@pytest.mark.parametrize("prefix", [30, 31, 32])
@pytest.mark.parametrize("gateway", ["10.0.0.1", "10.0.0.2", None])
def test_slices_of_one_subnet_are_given_behind_those_of_its_reserved_addresses(prefix, gateway):
    per_node = PerNode(prefix, is_one_subnet=True)
    router = gateway and ip_address(gateway)
    whole = IPRange(ip_network("10.0.0.0/29"), gateway=router, per_node=per_node)
    (subpool,) = subpools(IPPool("p", (whole,)))
    walked = [*slices_from(whole.subnet, prefix, (), int(whole.subnet.network_address))]
    given_out = {a for s in walked if (own := part(subpool, s)) for a in addresses(own)}
    ends = {end for s in walked for end in (s[0], s[-1])} if prefix == 30 else set()
    assert given_out == {*whole.subnet.hosts()} - {router} - ends


@given(st.integers(26, 31), st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_no_two_nodes_share_a_slice(prefix, nodes):
    """Whoever comes in whatever order; and a node that asks again has what it had."""
    cluster = Cluster(sliced(prefix, 0 if prefix == 31 else 1))
    owners = {}
    for number in nodes:
        node = f"n{number}"
        got = cluster.acquire(node)
        if got is None:
            assert len(set(owners.values())) == 1 << (prefix - 24)
            continue
        assert owners.setdefault(node, got) == got
        assert [n for n, taken in owners.items() if taken == got] == [node]
        (address,) = cluster.add(node, f"c{len(owners)}-{node}") or [got[-1]]
        assert address in got


def test_every_slice_of_several_ranges_is_given():
    both = tuple(IPRange(ip_network(f"10.0.{n}.0/30"), per_node=PerNode(31, None)) for n in (0, 1))
    (subpool,) = subpools(IPPool("p", both))
    cluster = Cluster(subpool)
    assert len({cluster.acquire(f"n{number}") for number in range(4)} - {None}) == 4


def test_any_size_costs_the_same():
    """A /64 of each node in a /32 of IPv6: nothing is enumerated, and its gateway is the first."""
    cluster = Cluster(sliced(64, 1, subnet="fd00::/32"))
    got = cluster.acquire("n1")
    assert got.prefixlen == 64
    (address,) = cluster.add("n1", "c1")
    assert address in got
    assert address != got[1]
    assert cluster.acquire("n2") != got


@given(st.integers(26, 31), st.integers(0, 3))
def test_a_node_that_was_gone_gets_its_slice_again(prefix, others):
    """The controller freed it; as long as other slices are free, other nodes leave it alone."""
    cluster = Cluster(sliced(prefix, 0 if prefix == 31 else 1))
    mine = cluster.acquire("n1")
    cluster.add("n1", "c1")
    early = [cluster.acquire(f"early-{number}") for number in range(others)]
    cluster.gone("n1")
    late = [cluster.acquire(f"late-{number}") for number in range(3 - others)]
    assert None not in early + late
    assert mine not in late
    assert cluster.acquire("n1") == mine


def test_a_slice_of_a_node_that_is_gone_serves_another_when_no_other_is_left():
    """Pins are a preference: with one slice for two nodes the second gets it."""
    cluster = Cluster(sliced(31, 0, subnet="10.0.0.0/31"))
    mine = cluster.acquire("n1")
    cluster.add("n1", "c1")
    assert cluster.acquire("n2") is None
    cluster.gone("n1")
    assert cluster.acquire("n2") == mine
    assert cluster.acquire("n1") is None


def test_a_node_keeps_its_slice_when_its_last_pod_ends():
    """Routers know where it is: it is given back with the node alone."""
    cluster = Cluster(sliced(30, 1))
    mine = cluster.acquire("n1")
    cluster.add("n1", "c1")
    cluster.end("n1", "c1")
    assert own_part("n1", cluster.states["n1"].holdings, cluster.subpool).node_slice == mine
    assert not strays("n1", cluster.states["n1"].holdings, cluster.subpool)


def test_chosen_slices_are_their_nodes():
    """A node gets the slice and the gateway that people chose, and no other node gets either."""
    chosen = NodeSlice("n1", ip_network("10.0.0.8/31"), ip_address("10.0.0.9"))
    cluster = Cluster(sliced(31, 0, (chosen,), subnet="10.0.0.8/30"))
    assert cluster.acquire("n2") == ip_network("10.0.0.10/31")
    assert cluster.acquire("n3") is None
    assert cluster.acquire("n1") == chosen.subnet
    assert cluster.add("n1", "c1") == [ip_address("10.0.0.8")]
    own = own_part("n1", cluster.states["n1"].holdings, cluster.subpool)
    assert own.ranges[0].gateway == chosen.gateway


def test_slices_of_one_subnet_keep_its_length():
    """As whereabouts slices a range: each node has its part, and all have one subnet."""
    cluster = Cluster(sliced(28, None, (), True))
    mine = cluster.acquire("n1")
    cluster.add("n1", "c1")
    (record,) = cluster.states["n1"].records.values()
    (allocation,) = record.allocations
    assert (allocation.subnet, allocation.node_slice) == (ip_network("10.0.0.0/24"), mine)


def test_a_static_address_of_another_nodes_slice_is_refused():
    cluster = Cluster(sliced(30, 1))
    mine, other = cluster.acquire("n1"), cluster.acquire("n2")
    nic = NicRequest("net1", "p", addresses=(other[2],))
    with pytest.raises(Refused, match=f"{other[2]} is outside of {mine}, which node n1 has"):
        grant(
            cluster.states["n1"], AddressRequest("c", "u", (nic,)), {"p": (cluster.subpool,)}, 1.0
        )


def test_a_slice_of_which_another_node_holds_an_address_is_nobodys():
    """A pool that was shared before: the address stays, and the slice waits until it is free."""
    subpool = sliced(31, 0, subnet="10.0.0.0/31")
    cluster = Cluster(subpool)
    key, bits = anchor("default", ip_network("10.0.0.0/31"))
    cluster.write("n1", key, 0b10)
    assert cluster.acquire("n2") is None
    assert own_part("n1", cluster.states["n1"].holdings, subpool) is None
    assert strays("n1", cluster.states["n1"].holdings, subpool) == ((key, 0b10),)
    assert bits == 0b11


def test_a_slice_of_two_blocks_is_its_node_s_with_a_stray_address_further_on():
    """Only addresses that other nodes hold in a later block of the slice keep it from a node."""
    subpool = sliced(25, None, subnet="10.0.0.0/25")
    cluster = Cluster(subpool)
    cluster.write("n1", key_at(subpool, 1), 0b10)
    assert cluster.acquire("n2") is None
    assert cluster.acquire("n1") == ip_network("10.0.0.0/25")


def test_a_node_chooses_again_in_the_block_as_it_was_just_read():
    """Another node was first: the next slice of the block, or none."""
    subpool = sliced(31, 0, subnet="10.0.0.0/30")
    cluster = Cluster(subpool)
    first = choose_slice(cluster.state("n1"), {}, subpool)
    cluster.write("n2", *first)
    key = first[0]
    again = anchor_in(cluster.state("n1"), {}, subpool, key, cluster.blocks[key])
    assert again
    assert not again & first[1]
    cluster.write("n3", key, again)
    assert not anchor_in(cluster.state("n1"), {}, subpool, key, cluster.blocks[key])


def test_after_a_restore_a_node_asks_back_its_slice_and_gives_nothing_before():
    """The store forgot it: one write asks back the whole anchor, though one address is in use."""
    cluster = Cluster(sliced(28, 1))
    mine = cluster.acquire("n1")
    cluster.add("n1", "c1")
    key, bits = anchor("default", mine)
    state = recall(cluster.states["n1"], {}, {})
    state = node_state.extend_right(state, 0.0, 600.0)
    assert own_part("n1", state.holdings, cluster.subpool) is None
    assert blocks.unsettled(state, {}) == (key,)
    state, block = plan(state, key, Block(key))
    assert held_by(block, "n1") == bits
    state = confirm(state, block)
    assert own_part("n1", state.holdings, cluster.subpool).node_slice == mine


def test_a_slice_that_another_node_got_is_not_asked_back_in_part():
    """A node that was declared dead and lives: its pod keeps its address at risk, as ever, and the
    node gives nothing more from the slice."""
    cluster = Cluster(sliced(28, 1, subnet="10.0.0.0/28"))
    mine = cluster.acquire("n1")
    cluster.add("n1", "c1")
    old = cluster.states["n1"]
    cluster.gone("n1")
    assert cluster.acquire("n2") == mine
    key, _ = anchor("default", mine)
    state, block = plan(recall(old, cluster.blocks, {}), key, cluster.blocks[key])
    assert held_by(block, "n1") == 0
    state = node_state.extend_right(confirm(state, block), 0.0, 600.0)
    request = AddressRequest("c2", "u", (NicRequest("net1", "p"),))
    _, answer = grant(state, request, {"p": (cluster.subpool,)}, 1.0)
    assert isinstance(answer, LackingAddresses)


def test_held_slices_are_in_the_pool():
    """A gateway that a node holds with its slice is nothing that was edited by hand."""
    cluster = Cluster(sliced(31, 0))
    cluster.acquire("n1")
    (block,) = cluster.blocks.values()
    assert outside(block, (cluster.subpool,)) == ()
    (full,) = usage((cluster.subpool,), (block,))
    assert (full.size, full.held, full.nodes) == (256, 2, 1)
    own = own_part("n1", cluster.states["n1"].holdings, cluster.subpool)
    assert node_state.spare(cluster.states["n1"], own) == 1


def test_ranges_of_one_rail_agree_about_their_slices():
    ranges = (
        IPRange(ip_network("10.0.0.0/24"), per_node=PerNode(31, 0), source="ranges[0]"),
        IPRange(ip_network("10.0.1.0/24"), source="ranges[1]"),
    )
    with pytest.raises(Refused, match="ranges"):
        subpools(IPPool("p", ranges))
    fine = replace(ranges[1], per_node=PerNode(31, 0))
    assert subpools(IPPool("p", (ranges[0], fine)))[0].size == 512
