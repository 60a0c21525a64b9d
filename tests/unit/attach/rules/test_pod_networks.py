"""Blocks against shares, names that are nowhere, and what follows once a block has its card."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.addresses import owner, with_card_addresses, with_default_routes
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import plans
from kube_rdma.attach.rules.requests import is_asking, refuse_count, refuse_traffic, unknown
from kube_rdma.attach.rules.requests import match_entries as met
from kube_rdma.attach.rules.undo import undo
from kube_rdma.model.attach import attachment
from kube_rdma.model.attach.steps import AddRoute, AddRule, GiveBackLink
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import Mode
from kube_rdma.model.survey import NamespaceMode
from tests.kit.pod_networks import RESOURCE, SANDBOX, card, given, link, network, share, wish
from tests.kit.refusals import refusal

ONE, TWO = card(1), card(2)
OWN = network(card_addresses=attachment.CardAddresses.REQUIRED)
TEN = (ip_address("10.0.0.7"), 24)
SIX = (ip_address("fd00::7"), 64)


def on(*cards, addresses=()):
    """The node, each of whose interfaces has these addresses."""
    links = tuple(replace(link(each), addresses=tuple(addresses)) for each in cards)
    return attachment.HostNetwork(links, NamespaceMode.SHARED)


def nics_of(*wishes, addresses=(), mode=Mode.EXCLUSIVE):
    shares = [share(each, mode=mode) for each in (ONE, TWO)[: len(wishes)]]
    return pod_nics(wishes, shares, on(ONE, TWO, addresses=addresses))


@given_by(st.integers(1, 8), st.integers(0, 8), st.booleans())
def test_blocks_and_shares_are_as_many_as_each_other(blocks, held, two_containers):
    """Else both numbers are told; which of the containers holds a share does not matter."""
    wishes = [wish(number) for number in range(blocks)]
    shares = [
        share(ONE, container="b" if two_containers and number % 2 else "a")
        for number in range(held)
    ]
    if blocks == held:
        refuse_count(wishes, shares)
        return
    sentence = f"the annotation has {blocks} blocks? for {RESOURCE}, and .* hold {held} of it"
    with pytest.raises(Refused, match=sentence) as caught:
        refuse_count(wishes, shares)
    assert f"Ask for {RESOURCE}: {blocks}, or " in caught.value.remedy
    assert caught.value.where == "k8s.volcengine.com/pod-networks"


@pytest.mark.parametrize("key", ["pod-networks", "pod-networks-definition"])
def test_a_pod_asks_by_its_blocks_or_by_their_definition(key):
    """Until the blocks are written it is to be waited for; blanks are nothing."""
    pod = PodState("train", "a", "uid-1", ((f"k8s.volcengine.com/{key}", "[{}]"),))
    assert is_asking(pod)
    assert not is_asking(replace(pod, host_network=True))
    assert not is_asking(replace(pod, annotations=((pod.annotations[0][0], " "),)))


def test_resources_are_counted_one_by_one():
    """A share of a pool is many cards, and a network without a resource takes none."""
    other = network("b", resource="rdma/b")
    wishes = [wish(0), wish(1, other), wish(2, network("c", resource=None))]
    refuse_count(wishes, [share(ONE), share(TWO, resource="rdma/b")])
    refuse_count([wish(0), wish(1)], [share(ONE, TWO, mode=Mode.HCA)])
    caught = refusal(refuse_count, wishes, [share(ONE), share(ONE)])
    assert [each.problem.split(",")[0] for each in (caught, *caught.more)] == [
        f"the annotation has 1 block for {RESOURCE}",
        "the annotation has 1 block for rdma/b",
    ]


VKE = "vke.volcengine.com/rdma"
OTHER = network("lan", attachment.NetworkKind.OTHER, resource=None, plugin="bridge")
MACVLAN = network("n", attachment.NetworkKind.MACVLAN, resource=None, device="ens1f0")


@pytest.mark.parametrize("blocks", [[], [wish(of=OTHER)]], ids=["none", "another plugin's"])
@pytest.mark.parametrize(("held", "times"), [(1, "once"), (2, "2 times")])
def test_a_share_for_blocks_needs_one(blocks, held, times):
    shares = [share(ONE, resource=VKE)] * held
    caught = refusal(refuse_count, blocks, shares)
    assert caught.problem == (
        f"the annotation has 0 blocks for {VKE}, and the containers of the pod hold {held} of it"
    )
    block = '{"cniConf": {"name": "rdma"}}'
    assert caught.remedy == f"Ask for no {VKE}, or write {block} {times}"


def test_a_block_that_names_no_resource_may_be_on_a_share():
    """As on an interface that the pod has no share of, and no further."""
    one, two = share(ONE, resource=VKE), share(TWO, resource=VKE)
    for of in (MACVLAN, network("c", resource=None)):
        refuse_count([wish(of=of)], [one])
        refuse_count([wish(of=of)], [])
        refuse_count([wish(0, network(resource=VKE)), wish(1, of)], [one])
        with pytest.raises(Refused, match=f"has 1 block for {VKE}, and .* hold 2 of it"):
            refuse_count([wish(of=of)], [one, two])


def test_shares_of_other_resources_are_not_for_blocks():
    """A container may use a card of the node's without any interface of its own."""
    refuse_count([], [share(ONE, resource="rdma/b")])
    refuse_count([], [share(ONE, TWO, mode=Mode.HCA, resource=VKE)])


def test_a_name_that_is_nowhere_is_told_with_what_is_there():
    asks = [wish(0, network("rmda")).ask, wish(1, network("fabric")).ask]
    error = unknown(asks, ("cbr0", "rdma"), ("default", "kube-system"), apart=False)
    assert str(error) == (
        "networks[0].cniConf.name: there is no network rmda: known are cbr0, rdma, and no "
        "NetworkAttachmentDefinition of this name is in namespace default or kube-system. Did you "
        "mean rdma? Name one of these, install a CNI configuration of this name on every node, or "
        "create the NetworkAttachmentDefinition.\n"
        "networks[1].cniConf.name: there is no network fabric: known are cbr0, rdma, and no "
        "NetworkAttachmentDefinition of this name is in namespace default or kube-system. Name one "
        "of these, install a CNI configuration of this name on every node, or create the "
        "NetworkAttachmentDefinition."
    )


def test_a_card_brings_its_addresses_along():
    """The first of each family, with the gateway that host-local would take."""
    more = (ip_address("10.0.0.8"), 24)
    placed = nics_of(wish(of=OWN), addresses=[TEN, more, SIX])
    assert with_card_addresses(placed, ()) == (
        attachment.AssignedAddresses(
            placed[0].entry.ask.interface,
            (
                attachment.InterfaceAddress(*TEN, ip_address("10.0.0.1")),
                attachment.InterfaceAddress(*SIX, ip_address("fd00::1")),
            ),
        ),
    )


@pytest.mark.parametrize("text", ["10.0.0.1/24", "10.0.0.7/32"])
def test_a_subnet_without_room_for_a_gateway_has_none(text):
    """Neither has one whose first address is the card's own."""
    address, _, prefix = text.partition("/")
    placed = nics_of(wish(of=OWN), addresses=[(ip_address(address), int(prefix))])
    ((one,),) = (each.addresses for each in with_card_addresses(placed, ()))
    assert one.gateway is None


def carried(address, *routes, rules=(), **asked):
    """The plan of a card that goes with this address and the node's routes over it."""
    text, _, prefix = address.partition("/")
    own = ip_address(text)
    ways = attachment.LinkWays(
        "ens1f0",
        tuple(
            AddRoute("ens1f0", ip_network(to), ip_address(via) if via else None, None, table)
            for to, via, table in routes
        ),
        tuple(AddRule(own, table, 100) for table in rules),
    )
    host = on(ONE, addresses=[(own, int(prefix))])
    host = replace(host, links=tuple(replace(one, ways=ways) for one in host.links))
    placed = pod_nics([wish(0, OWN, **asked)], [share(ONE, mode=Mode.EXCLUSIVE)], host)
    brought = with_card_addresses(placed, ())
    placed = with_default_routes(placed, brought)
    (plan,) = plans(SANDBOX, placed, brought, host)
    return ways, plan


def shown(plan, table=None):
    """Destination, next hop and whether that is on the link, of a table."""
    routes = (step for step in plan.steps if isinstance(step, AddRoute) and step.table == table)
    return [(str(one.to), str(one.via or ""), one.onlink) for one in routes]


CLOUD = (("10.0.5.1/32", "", None), ("10.0.5.0/24", "10.0.5.1", None))


def test_a_card_with_a_32_brings_the_way_to_its_router_along():
    """As a cloud gives it (dranet, pkg/driver/netnamespace.go): without it nobody is reached."""
    _, plan = carried("10.0.5.8/32", *CLOUD)
    routes = [("10.0.5.1/32", "", False), ("10.0.5.0/24", "10.0.5.1", True)]
    assert shown(plan) == routes
    assert shown(plan, 101) == [("0.0.0.0/0", "10.0.5.1", True), *routes]
    assert AddRule(ip_address("10.0.5.8"), 101, 20000) in plan.steps
    _, plan = carried("10.0.5.8/32", *CLOUD, default=True)
    assert ("0.0.0.0/0", "10.0.5.1", True) in shown(plan)


def test_the_other_address_of_a_31_is_the_router():
    """RFC 3021; what the node's own routes say comes first."""
    _, plan = carried("10.0.0.6/31", default=True)
    assert shown(plan) == [("0.0.0.0/0", "10.0.0.7", False)]
    assert ("0.0.0.0/0", "10.0.0.7", False) in shown(plan, 101)


def test_a_card_s_own_table_is_carried_and_the_node_s_tables_are_not():
    """A rule for its address looks that table up; other tables are given back alone."""
    ways, plan = carried(
        "10.0.1.7/24",
        ("0.0.0.0/0", "10.0.1.254", 201),
        ("10.0.0.0/16", "10.0.1.254", 201),
        ("172.16.0.0/12", "10.0.1.253", 55),
        rules=(201,),
    )
    assert shown(plan) == [("10.0.0.0/16", "10.0.1.254", False)]
    assert ("0.0.0.0/0", "10.0.1.254", False) in shown(plan, 101)
    assert not any("172.16" in to for to, _, _ in (*shown(plan), *shown(plan, 101)))
    (back,) = (act for act in undo(plan) if isinstance(act, GiveBackLink))
    assert (back.routes, back.rules) == (ways.routes, ways.rules)


def test_a_card_that_stays_or_gets_a_pool_s_address_gives_its_routes_back_all_the_same():
    """They are the node's: the kernel drops them when the link moves."""
    ways = attachment.LinkWays("ens1f0", (AddRoute("ens1f0", ip_network("10.8.0.0/16"), None),))
    host = on(ONE, addresses=[TEN])
    host = replace(host, links=tuple(replace(one, ways=ways) for one in host.links))
    placed = pod_nics([wish()], [share(ONE, mode=Mode.EXCLUSIVE)], host)
    (plan,) = plans(SANDBOX, placed, (given(1, "10.9.0.2/24"),), host)
    assert not any("10.8" in to for to, _, _ in shown(plan))
    (back,) = (act for act in undo(plan) if isinstance(act, GiveBackLink))
    assert back.routes == ways.routes


@pytest.mark.parametrize("label", ["apps.kubernetes.io/pod-index", "app"])
def test_the_pods_of_a_statefulset_alone_own_their_addresses(label):
    found = owner(PodState("team", "db-0", "uid", labels=((label, "0"), ("b", "c"))), "net1")
    assert found == ("team/db-0/net1" if label != "app" else None)


def test_addresses_of_a_card_stand_behind_those_of_a_pool():
    pooled = given(2, "10.9.0.1/24")
    placed = nics_of(wish(0, OWN), wish(1), addresses=[TEN])
    first, second = with_card_addresses(placed, (given(1, "10.9.0.2/24"), pooled))
    assert [str(one.address) for one in first.addresses] == ["10.9.0.2", "10.0.0.7"]
    assert second == pooled


def test_a_card_brings_no_addresses_where_others_were_given():
    """It takes the place of a pool that has none; where they are required it brings its own too."""
    leased = (given(1, "10.0.0.7/24"),)
    lenient = nics_of(
        wish(of=network(card_addresses=attachment.CardAddresses.MOVE)), addresses=[TEN]
    )
    assert with_card_addresses(lenient, leased) == leased
    (both,) = with_card_addresses(nics_of(wish(of=OWN), addresses=[TEN]), leased)
    assert [one.address for one in both.addresses] == [leased[0].addresses[0].address, TEN[0]]


@pytest.mark.parametrize(
    ("mode", "addresses", "sentence"),
    [
        (Mode.SHARED, [TEN], "ens1f0 stays on the node with its addresses: its card is shared"),
        (Mode.EXCLUSIVE, [], "ens1f0 has no address on the node that could go into the pod"),
    ],
)
def test_addresses_that_are_required_and_cannot_come(mode, addresses, sentence):
    placed = nics_of(wish(of=OWN), addresses=addresses, mode=mode)
    with pytest.raises(Refused, match=sentence) as caught:
        with_card_addresses(placed, ())
    assert caught.value.where == "networks[0] (default/rdma-net): meta.ipRangesSource"
    lenient = network(card_addresses=attachment.CardAddresses.MOVE)
    placed = [replace(one, roce=False) for one in nics_of(wish(of=lenient), mode=mode)]
    assert with_card_addresses(placed, ()) == ()


@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.EXCLUSIVE])
def test_roce_without_any_address_is_refused(mode):
    """It would have no GID; an address of the entry is one."""
    built_in = network("rdma", card_addresses=attachment.CardAddresses.MOVE)
    (nic,) = nics_of(wish(of=built_in), mode=mode)
    nic = replace(nic, roce=True)
    with pytest.raises(Refused, match="no IPPool rdma is there to give net1 an address"):
        with_card_addresses([nic], ())
    asked = replace(nic.entry.ask, addresses=(attachment.AskedAddress(TEN[0], TEN[1]),))
    own = replace(nic, entry=replace(nic.entry, ask=asked))
    assert with_card_addresses([own], ()) == ()


def test_a_default_route_leads_to_the_gateways_of_the_interface():
    """One of each family, and nothing for entries that want none."""
    leased = (given(1, "10.0.0.7/24", gateway="10.0.0.1"), given(2, "10.0.1.7/24"))
    placed = nics_of(wish(0, default=True), wish(1))
    first, second = with_default_routes(placed, leased)
    assert first.entry.ask.default_routes == (ip_address("10.0.0.1"),)
    assert second == placed[1]
    routes = [step for plan in plans(SANDBOX, (first, second), leased, on()) for step in plan.steps]
    assert sum(getattr(step, "to", None) == ip_network("0.0.0.0/0") for step in routes) == 2


def test_a_gateway_of_the_document_will_do():
    static = attachment.InterfaceAddress(ip_address("10.0.0.7"), 24, ip_address("10.0.0.1"))
    placed = nics_of(wish(of=network(static=(static,)), default=True))
    (found,) = with_default_routes(placed, ())
    assert found.entry.ask.default_routes == (static.gateway,)


def test_a_default_route_without_a_gateway_is_refused():
    placed = nics_of(wish(default=True))
    with pytest.raises(Refused, match="no address of net1 has a gateway") as caught:
        with_default_routes(placed, (given(1, "10.0.0.7/24"),))
    assert caught.value.where == "networks[0] (default/rdma-net): traffic.routes.default"


def test_routes_of_an_entry_come_before_those_of_its_network():
    to, other = ip_network("10.8.0.0/16"), ip_network("10.9.0.0/16")
    of = network(routes=(attachment.NetworkRoute(to), attachment.NetworkRoute(other)))
    asked = wish(of=of, routes=(attachment.NetworkRoute(to, ip_address("10.0.0.1")),)).ask
    (found,) = met([asked], [of])
    assert found.network.routes == (*asked.routes, attachment.NetworkRoute(other))


def test_routes_on_an_interface_of_another_plugin_are_refused():
    of = network("b", attachment.NetworkKind.OTHER, plugin="ovs")
    refuse_traffic([wish(0, of), wish(1, default=True)])
    with pytest.raises(Refused, match="networks of type ovs are made and routed") as caught:
        refuse_traffic([wish(0, of, default=True)])
    assert caught.value.where == "networks[0] (default/b): traffic"
