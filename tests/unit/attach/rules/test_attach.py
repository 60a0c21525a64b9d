"""Plans: each kind of network by example, and what holds for every plan."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.plan import gid_room, soft_name
from kube_rdma.attach.rules.undo import lacks, undo
from kube_rdma.attach.views import describe
from kube_rdma.model.attach.attachment import (
    AskedAddress,
    GidTable,
    HostNetwork,
    InterfaceAddress,
    NetworkKind,
    NetworkRoute,
    PodView,
    SeenLink,
)
from kube_rdma.model.attach.steps import (
    AddAddress,
    AddRoute,
    AddRule,
    Announce,
    AwaitGid,
    AwaitPartition,
    MakeLink,
    MakeRdma,
    MoveRdma,
    Probe,
    SetLink,
    SetSysctl,
    TakeLink,
    VirtualKind,
)
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.pools import Mode
from kube_rdma.model.survey import NamespaceMode
from tests.kit.pod_networks import SANDBOX, card, network, node, planned, pods, share, wish
from tests.kit.pod_networks import given as leased
from tests.unit.attach.rules.pod_world import World


def kinds(plan):
    return [type(step).__name__ for step in plan.steps]


def one(of, mode=Mode.SHARED_MULTI, *, wanted=None, on=None, lease=("10.0.0.7/24",)):
    """The plan of one network on one card."""
    (plan,) = planned([wanted or wish()], [share(of, mode=mode)], on or node(of), [given_to(lease)])
    return plan


def given_to(texts):
    return leased(1, *texts)


def steps_of(plan, kind):
    return [step for step in plan.steps if isinstance(step, kind)]


def test_router_advertisements_are_ignored_unless_asked_for():
    """Before the link is up. A kernel without IPv6 is no fault; what tuning says comes first."""
    path = "net/ipv6/conf/net1/accept_ra"

    def of(**facts):
        (plan,) = planned([wish(of=network(**facts))], [share(card(2))], node(card(2)))
        return [step for step in plan.steps if getattr(step, "path", "") == path]

    assert of() == [SetSysctl(path, "0", optional=True)]
    assert of(accept_ra=True) == []
    assert of(sysctls=(("ipv6/conf", "accept_ra", "2"),)) == [SetSysctl(path, "2")]
    (step,) = of()
    up = SeenLink("net1", 7, "02:00:00:00:00:01", 1500, True)
    assert lacks(step, PodView(links=(up,))) == ""
    assert lacks(step, PodView(sysctls=((path, "1"),))) == "net.ipv6.conf.net1.accept_ra is not 0"


def test_the_network_of_the_operator_document():
    """S3: macvlan on ens2f0 with MTU 9000, an address of 192.168.111.0/24, the shared pool."""
    of = card(2, soft=True)
    net = network("rdma-net-ipam", NetworkKind.MACVLAN, device="ens2f0", mode="bridge", mtu=9000)
    granted = share(of, mode=Mode.HCA)
    (plan,) = planned([wish(of=net)], [granted], node(of), [leased(1, "192.168.111.1/24")])
    address, subnet = ip_address("192.168.111.1"), ip_network("192.168.111.0/24")
    mark = f"kube-rdma {SANDBOX.container}/net1"
    rdma = soft_name("rxe", SANDBOX.container, "net1")
    assert plan.steps == (
        MakeLink(VirtualKind.MACVLAN, PlannedHostLink(18, "ens2f0"), "net1", mark, "bridge", 9000),
        SetSysctl("net/ipv6/conf/net1/accept_ra", "0", optional=True),
        SetLink("net1", 9000),
        AddAddress("net1", address, 24),
        MakeRdma(rdma, "rxe", "net1"),
        AddRoute("net1", subnet, None, address, 101),
        AddRule(address, 101, 20000),
        AwaitGid(rdma, "net1", address),
        Announce("net1", address),
    )
    assert (plan.card, plan.held) == (of.id, granted.held)
    assert [describe(step) for step in plan.steps] == [
        "make net1, macvlan (bridge) on ens2f0, with MTU 9000",
        "set net.ipv6.conf.net1.accept_ra to 0",
        "bring net1 up, with MTU 9000",
        "give net1 the address 192.168.111.1/24",
        f"make the rxe device {rdma} on net1",
        "route 192.168.111.0/24 through net1 as 192.168.111.1, in table 101",
        "look up what comes from 192.168.111.1 in table 101, priority 20000",
        f"wait until {rdma} has a GID for 192.168.111.1 on net1",
        "announce to the neighbours that net1 has 192.168.111.1",
    ]
    assert [describe(act) for act in undo(plan)] == [
        "remove the rule for what comes from 192.168.111.1",
        f"remove the RDMA device {rdma}",
        "remove net1",
    ]


def test_each_address_of_a_pool_that_probes_is_asked_about_before_it_is_there():
    lease = leased(1, "10.0.0.7/24", "fd00::7/64", probe=True)
    of = card(1)
    (plan,) = planned([wish()], [share(of)], node(of), [lease])
    order = [step for step in plan.steps if isinstance(step, SetLink | Probe | AddAddress)]
    v4, v6 = (one.address for one in lease.addresses)
    assert order == [
        SetLink("net1"),
        *(Probe("net1", v4), AddAddress("net1", v4, 24)),
        *(Probe("net1", v6), AddAddress("net1", v6, 64)),
    ]
    assert describe(Probe("net1", v4)) == "ask on net1 whether another machine has 10.0.0.7"


@pytest.mark.parametrize("kind", [NetworkKind.IPVLAN, NetworkKind.IPOIB])
def test_where_no_answer_would_be_heard_nobody_is_asked(kind):
    """An ipvlan gets no ARP answer before it has the address, and InfiniBand has other frames."""
    of = card(1, link_type="infiniband" if kind is NetworkKind.IPOIB else "ether")
    lease = leased(1, "10.0.0.7/24", probe=True)
    (plan,) = planned([wish(of=network(kind=kind))], [share(of)], node(of), [lease])
    assert not steps_of(plan, Probe)


def test_an_exclusive_card_moves_itself():
    """Its own link goes into the pod with what it was; a hard device needs nothing made."""
    of = card(1)
    plan = one(of, Mode.EXCLUSIVE)
    take = TakeLink(PlannedHostLink(17, "ens1f0"), "net1", of.pci, 9000, "02:00:00:00:00:11", True)
    assert plan.steps[0] == take
    assert not steps_of(plan, MakeRdma)
    assert steps_of(plan, AwaitGid) == [AwaitGid("mlx5_1", "net1", ip_address("10.0.0.7"))]


def test_a_soft_card_that_moves_gets_its_device_back():
    """The kernel removes an rxe with the move: one is made in the pod, the node's again after."""
    plan = one(card(1, soft=True), Mode.EXCLUSIVE)
    assert plan.steps[0].soft == (("rxe1", "rxe"),)
    assert steps_of(plan, MakeRdma)
    assert [describe(act) for act in undo(plan)][-2:] == [
        "give net1 back to the node as ens1f0, up, with MTU 9000 and MAC 02:00:00:00:00:11",
        "make the rxe device rxe1 on ens1f0 again",
    ]


def test_a_virtual_function_without_a_device_gets_a_soft_one():
    """Where the node is to make soft links; else the function is a plain interface."""
    of = card(1, rdma=False)
    assert steps_of(one(of, Mode.SRIOV, on=node(of, soft="rxe")), MakeRdma)
    plain = one(of, Mode.SRIOV)
    assert not steps_of(plain, MakeRdma)
    assert not steps_of(plain, AwaitGid)


def test_iwarp_has_no_gids_to_wait_for():
    """siw takes no GID from an address, so a wait would never end."""
    of = card(1, rdma=False)
    plan = one(of, Mode.SRIOV, on=node(of, soft="siw"))
    assert steps_of(plan, MakeRdma)[0].kind == "siw"
    assert not steps_of(plan, AwaitGid)


@pytest.mark.parametrize(
    ("link_type", "first"),
    [("infiniband", ["MoveRdma", "TakeLink"]), ("ether", ["TakeLink", "MoveRdma"])],
)
def test_rdma_namespace_mode_exclusive(link_type, first):
    """The device moves too, on InfiniBand before its link; it comes back before it on both."""
    of = card(1, link_type=link_type)
    plan = one(of, Mode.EXCLUSIVE, on=node(of, mode=NamespaceMode.EXCLUSIVE))
    assert kinds(plan)[:2] == first
    assert steps_of(plan, MoveRdma) == [MoveRdma("mlx5_1", of.pci)]
    assert [type(act).__name__ for act in undo(plan)] == [
        "GiveBackRdma",
        "RemoveRule",
        "GiveBackLink",
    ]


def test_a_shared_infiniband_card_gets_an_ipoib_child():
    """With its partition; InfiniBand has no GID for an address."""
    of = card(1, link_type="infiniband")
    plan = one(of, wanted=wish(of=network(pkey=0x12)))
    waits, makes = plan.steps[:2]
    assert waits == AwaitPartition(of.pci, 0x12)
    assert makes.kind is VirtualKind.IPOIB
    assert "partition 0x0012" in describe(makes)
    assert not steps_of(plan, AwaitGid)


def test_an_interface_without_a_share_has_no_rdma_device():
    """The pod holds no device node of one, so nobody could use it."""
    of = card(1, soft=True)
    net = network(kind=NetworkKind.IPVLAN, device="ens1f0", resource=None, mode="l2")
    (plan,) = planned([wish(of=net)], [], node(of), [leased(1, "10.0.0.7/24")])
    assert (plan.card, plan.held, plan.steps[0].kind) == (None, None, VirtualKind.IPVLAN)
    assert not steps_of(plan, (MakeRdma, AwaitGid))
    assert not steps_of(one(of, wanted=wish(of=network(rdma=False))), MakeRdma)


def test_all_sources_of_addresses_and_routes():
    """Pool, document and annotation; a route without its hop takes the gateway of its family."""
    of = card(1)
    net = network(
        static=(InterfaceAddress(ip_address("fd00::5"), 64, ip_address("fd00::1")),),
        routes=(NetworkRoute(ip_network("10.8.0.0/16")), NetworkRoute(ip_network("fd08::/16"))),
    )
    asked = (AskedAddress(ip_address("10.0.9.9"), 24),)
    wanted = wish(of=net, addresses=asked, default_routes=(ip_address("10.0.0.1"),))
    lease = leased(1, "10.0.0.7/24", gateway="10.0.0.1")
    (plan,) = planned([wanted], [share(of)], node(of), [lease])
    assert [str(one.address) for one in plan.addresses] == ["10.0.0.7", "fd00::5", "10.0.9.9"]
    main = [step for step in steps_of(plan, AddRoute) if step.table is None]
    assert [(str(step.to), str(step.via)) for step in main] == [
        ("10.8.0.0/16", "10.0.0.1"),
        ("fd08::/16", "fd00::1"),
        ("0.0.0.0/0", "10.0.0.1"),
    ]
    own = [str(step.to) for step in steps_of(plan, AddRoute) if step.table == 101]
    assert own == [
        *("10.0.0.0/24", "fd00::/64", "10.0.9.0/24"),
        *("0.0.0.0/0", "::/0", "10.8.0.0/16", "fd08::/16"),
    ]
    assert SetSysctl("net/ipv6/conf/net1/disable_ipv6", "0") in plan.steps


@given(pods(), st.data())
def test_no_network_takes_the_pod_s_default_route_away(scene, data):
    """Whatever gateways its routes name; nothing here asks for it."""
    wishes, shares, _, on, leases = scene
    hops = (None, ip_address("10.0.0.1"), ip_address("fd00::1"), ip_address("10.99.0.1"))
    texts = st.sampled_from(["0.0.0.0/0", "::/0", "10.8.0.0/16"])
    wanted = []
    for each in wishes:
        routes = [
            NetworkRoute(to, via if via and via.version == to.version else None)
            for to in map(ip_network, data.draw(st.lists(texts, unique=True)))
            for via in [data.draw(st.sampled_from(hops))]
        ]
        wanted.append(replace(each, network=replace(each.network, routes=tuple(routes))))
    try:
        made = planned(wanted, shares, on, leases)
    except Refused:
        return
    for plan in made:
        for step in steps_of(plan, AddRoute):
            assert step.table or step.to.prefixlen


def test_a_route_of_a_family_that_the_interface_has_no_address_of_is_absent():
    """Its pod runs: ::/0 without a gateway would lead nowhere."""
    of = card(1)
    net = network(routes=(NetworkRoute(ip_network("::/0")), NetworkRoute(ip_network("0.0.0.0/0"))))
    lease = leased(1, "10.0.0.7/24", gateway="10.0.0.1")
    (plan,) = planned([wish(of=net)], [share(of)], node(of), [lease])
    found = [(str(step.to), str(step.via), step.table) for step in steps_of(plan, AddRoute)]
    assert found == [("10.0.0.0/24", "None", 101), ("0.0.0.0/0", "10.0.0.1", 101)]


def test_a_gateway_may_be_on_the_link_and_in_no_subnet():
    """Where the entry says so, and only of those that are in none."""
    inside, outside = ip_address("10.0.0.1"), ip_address("192.168.1.1")
    near, far = ip_network("10.8.0.0/16"), ip_network("10.9.0.0/16")
    routes = (NetworkRoute(near, inside, onlink=True), NetworkRoute(far, outside, onlink=True))
    of = card(1)
    (plan,) = planned(
        [wish(of=network(routes=routes))], [share(of)], node(of), [leased(1, "10.0.0.7/24")]
    )
    found = [step for step in steps_of(plan, AddRoute) if step.via]
    assert [(step.to, step.table, step.onlink) for step in found] == [
        *((near, 101, False), (far, 101, True)),
        *((near, None, False), (far, None, True)),
    ]
    assert describe(found[3]) == "route 10.9.0.0/16 through net1 by 192.168.1.1 on-link"
    World(node(of), [of]).run_all(plan)


def test_an_address_that_the_pool_gave_is_not_added_again():
    """Asked for with its length or without, it is IPAM's to give where there is a pool."""
    of, asked = card(1), (AskedAddress(ip_address("10.0.0.7"), 24),)
    plan = one(of, wanted=wish(of=network(pools=("rail-0",)), addresses=asked))
    assert steps_of(plan, AddAddress) == [AddAddress("net1", ip_address("10.0.0.7"), 24)]


def test_a_sub_function_is_known_by_its_name():
    """Its device and link have no PCI address of their own, only that of the whole card."""
    of = card(1)
    (device,) = of.devices
    name = "mlx5_core.sf.4"
    sub = replace(device, identity=name, auxiliary=name, pci=None)
    of = Card(CardId(name), (sub,), None)
    link = replace(node(card(1)).links[0], pci=None)
    on = HostNetwork((link,), NamespaceMode.EXCLUSIVE)
    plan = one(of, Mode.EXCLUSIVE, on=on)
    assert steps_of(plan, TakeLink)[0].pci is None
    assert steps_of(plan, MoveRdma) == [MoveRdma("mlx5_1", None)]


def test_the_nth_network_gets_the_nth_share():
    """In the order of the containers, so that each keeps the card that is near to its GPU."""
    cards = [card(3), card(1), card(2)]
    shares = [share(each, container=f"c{n}") for n, each in enumerate(cards)]
    plans = planned([wish(number) for number in range(3)], shares, node(*cards))
    assert [plan.card for plan in plans] == [each.id for each in cards]
    assert [plan.held for plan in plans] == [each.held for each in shares]


def test_a_network_that_names_its_card_gets_that_share():
    cards = [card(1), card(2), card(3)]
    wishes = [
        wish(0),
        wish(1, network("second", NetworkKind.MACVLAN, device="ens1f0")),
        wish(2, device_id=cards[2].pci),
    ]
    plans = planned(wishes, [share(each) for each in cards], node(*cards))
    assert [plan.card for plan in plans] == [cards[1].id, cards[0].id, cards[2].id]


def test_one_share_of_a_pool_serves_all_of_its_cards():
    """Mode hca: `rdma/hca: 1` opens every card, so each network gets the next one."""
    cards = [card(1), card(2)]
    granted = [share(*cards, mode=Mode.HCA)]
    plans = planned([wish(0), wish(1)], granted, node(*cards))
    assert [plan.card for plan in plans] == [each.id for each in cards]
    net = network("again", NetworkKind.MACVLAN, device="ens1f0")
    plans = planned([wish(0, net), wish(1, net)], granted, node(*cards))
    assert [plan.card for plan in plans] == [cards[0].id] * 2


def test_networks_of_other_plugins_are_left_to_them():
    """They have no plan of ours, and the tables of ours still follow the annotation."""
    other = network("vlan", NetworkKind.OTHER, resource=None)
    of = card(1)
    (plan,) = planned([wish(0, other), wish(1)], [share(of)], node(of), [leased(2, "10.0.0.7/24")])
    assert plan.interface == "net2"
    assert steps_of(plan, AddRule)[0].table == 102


def test_a_gid_table_has_room_until_it_is_full():
    """Refused exactly when the entries of all addresses do not fit any more."""
    gid_room(GidTable("mlx5_0", 256, 252), 2)
    with pytest.raises(Refused, match=r"253 of 256 entries are in use, and 2 addresses need 4"):
        gid_room(GidTable("mlx5_0", 256, 253), 2)
    gid_room(GidTable("rxe0", 1024, 1023, versions=1), 1)


def test_names_of_soft_links_differ():
    """Every sandbox and interface has its own, short and without signs that lists give meaning."""
    names = {soft_name("rxe", f"c{n}", f"net{m}") for n in range(50) for m in range(8)}
    assert len(names) == 400
    assert all(len(name) <= 15 and name.replace("-", "").isalnum() for name in names)


def made_inside(plans):
    """What stands on an interface of a card that is in the pod too."""
    steps = [step for plan in plans for step in plan.steps if isinstance(step, MakeLink)]
    return [step for step in steps if step.inside]


@given(pods())
def test_every_plan_runs(case):
    """From beginning to end in a world that refuses what the kernel refuses; and again."""
    wishes, shares, cards, on, leases = case
    plans = planned(wishes, shares, on, leases)
    world = World(on, cards)
    for plan in plans:
        for step in (*plan.steps, *plan.steps):
            world.run(step)
    parents = [step.parent.name for step in made_inside(plans)]
    assert sorted(world.names()) == sorted((*parents, *(plan.interface for plan in plans)))
    assert len({plan.card for plan in plans}) == len(plans)
    for plan in plans:
        found = [link for link in world.within(world.pod) if link.name == plan.interface]
        assert [set(link.addresses) for link in found] == [
            {(each.address, each.prefix) for each in plan.addresses}
        ]


@given(pods())
def test_every_plan_is_in_a_safe_order(case):
    """No name twice, no address before its link is up, sysctls before that, waiting last."""
    wishes, shares, _, on, leases = case
    plans = planned(wishes, shares, on, leases)
    made = [
        step.name for plan in plans for step in plan.steps if type(step) in (MakeLink, TakeLink)
    ]
    assert len(set(made)) == len(made) == len(plans) + len(made_inside(plans))
    soft = [step.name for plan in plans for step in steps_of(plan, MakeRdma)]
    assert len(set(soft)) == len(soft)
    for plan in plans:
        order = kinds(plan)
        up = max(at for at, each in enumerate(order) if each == "SetLink")
        assert all(order.index(each) > up for each in set(order) & LATER)
        assert all(at < up for at, each in enumerate(order) if each == "SetSysctl")
        waits = [at for at, each in enumerate(order) if each in ("AwaitGid", "Announce")]
        assert not waits or waits == list(range(waits[0], len(order)))
        assert len(set(plan.steps)) == len(plan.steps)
        assert all(map(describe, (*plan.steps, *undo(plan))))
        asked = steps_of(plan, Probe)
        addresses = [(one.name, one.address) for one in steps_of(plan, AddAddress)]
        assert not asked or [(one.name, one.address) for one in asked] == addresses
        for probe in asked:
            after = plan.steps[plan.steps.index(probe) + 1]
            assert (type(after), after.address) == (AddAddress, probe.address)


LATER = {"Probe", "AddAddress", "AddRoute", "AddRule", "MakeRdma", "AwaitGid", "Announce"}
