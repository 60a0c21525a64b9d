"""Only cards that pods may get are judged, and only those of one kind are compared.

Cases are from nodes that people posted: storage beside compute cards (infra-controller#3624,
gpud#989), and the fast path of a virtual machine (node_exporter#3810).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import CHECKS, diagnose, diagnose_fleet
from kube_rdma.doctor.rules.errors import FEWEST, SHARE
from kube_rdma.model.card import Function
from kube_rdma.model.device import LinkLayer, PhysicalState, PortState
from kube_rdma.model.doctor import (
    NodeAnswer,
    ObservedFlowControl,
    ObservedLimit,
    ObservedLink,
    ObservedRoute,
)
from kube_rdma.model.pools import CharKind, Mode, Selector
from kube_rdma.model.survey import NamespaceMode
from tests.kit.nodes import device, position
from tests.unit.doctor.rules.healthy import (
    CLAIMING,
    DEVICES,
    FUNCTIONS,
    HEALTHY,
    LINKS,
    RESOURCE,
    ROUTES,
    SPEC,
    SURVEY,
    WITH_POD,
    below_a_switch,
    card,
    codes,
    flow_control,
    four_ports,
    rising,
    with_device,
)
from tests.unit.doctor.rules.test_faults import DOWN, EXCLUSIVE, POLLING, limited, routed, setting

STORAGE = 0x101D  # a ConnectX-6 Dx beside ConnectX-7
OUT = {"port": POLLING, "netdev": {"carrier": False}}


def of_nodes(*rates, functions=(), ports=(), specs=(SPEC,), **facts):
    """A node of whole cards with these rates; what is otherwise stands by the card's number."""
    cards = [card(number, 0x81 + number) for number in range(len(rates))]
    made = [replace(one, **dict(functions).get(n, {})) for n, (one, _) in enumerate(cards)]
    devices = [
        replace(
            one,
            position=made[n].position,
            ports=(replace(one.ports[0], rate_gbps=rates[n], **dict(ports).get(n, {})),),
        )
        for n, (_, one) in enumerate(cards)
    ]
    survey = replace(SURVEY, functions=tuple(made), devices=tuple(devices), gpus=())
    count = ((RESOURCE, len(rates)),)
    kubelet = replace(HEALTHY.kubelet, allocatable=count if specs else ())
    bare = {"pcie": (), "rails": (), "links": (), "routes": (), "flow_control": ()}
    return replace(HEALTHY, survey=survey, specs=specs, kubelet=kubelet, **(bare | facts))


EIGHT = (400.0,) * 8
PART = position(0x81, 1, physical=FUNCTIONS[0].position.pci)


@pytest.mark.parametrize("specs", [(SPEC,), None])
@pytest.mark.parametrize(
    ("otherwise", "found"),
    [
        ({}, ["KR124"]),
        ({"functions": {8: {"device": STORAGE}}}, []),
        ({"functions": {8: {"vendor": 0x14E4}}}, []),
        (
            {"functions": {8: {"position": position(0x81, 1)}}},
            [],
        ),  # the second port of the first card
        ({"ports": {8: {"link_layer": LinkLayer.INFINIBAND}}}, []),
        ({"ports": {8: {"number": 2}}}, []),
    ],
)
def test_a_rate_is_compared_with_that_of_cards_of_its_kind(otherwise, found, specs):
    assert codes(of_nodes(*EIGHT, 100.0, **otherwise, specs=specs)) == found


@pytest.mark.parametrize(
    "positions",
    [
        (position(0x89), position(0x89, 1)),  # a card with two ports, for storage
        (PART, position(0x81, 2, physical=PART.physical_function)),  # a rate that somebody gave it
    ],
)
def test_cards_with_more_ports_and_parts_of_cards_are_of_no_kind_of_the_others(positions):
    functions = {8 + number: {"position": one} for number, one in enumerate(positions)}
    assert codes(of_nodes(*EIGHT, 100.0, 100.0, functions=functions, specs=None)) == []


@pytest.mark.parametrize(
    ("rates", "specs", "slow"),
    [
        ((400.0, 100.0), (SPEC,), ["mlx5_1"]),  # a pod gets the one or the other
        ((400.0, 100.0), None, []),  # nobody knows what the two are for
        ((400.0, 400.0, 100.0, 100.0), (SPEC,), []),
        ((400.0, 400.0, 400.0, 100.0), None, ["mlx5_3"]),
        ((100.0, 100.0, 100.0, 400.0), None, []),  # one that is faster makes no other one slow
        ((400.0, 400.0, 400.0, None, 0.0), (SPEC,), []),  # MANA, and a driver that says 0 Gb/sec
    ],
)
def test_most_of_a_kind_say_what_its_rate_is(rates, specs, slow):
    found = diagnose(of_nodes(*rates, specs=specs)).findings
    assert [one.subject for one in found if one.code == "KR124"] == slow


def test_cards_of_two_pools_are_not_compared():
    pools = [
        replace(SPEC, resource=f"rdma/{n}", selectors=(Selector(interfaces=names),))
        for n, names in enumerate([("eth0", "eth1", "eth2"), ("eth3",)])
    ]
    for specs in (pools, pools[:1]):
        assert "KR124" not in codes(of_nodes(400.0, 400.0, 400.0, 100.0, specs=tuple(specs)))


NODES = st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([25.0, 100.0, 400.0])))


@given(NODES, st.sampled_from([(SPEC,), None]))
def test_a_port_that_is_slow_has_faster_ones_of_its_own_kind(ports, specs):
    functions = {n: {"device": model} for n, (model, _) in enumerate(ports)}
    rates = [rate for _, rate in ports]
    found = diagnose(of_nodes(*rates, functions=functions, specs=specs)).findings
    for one in (one for one in found if one.code == "KR124"):
        number = int(one.subject.removeprefix("mlx5_"))
        model, rate = ports[number]
        alike = [other for kind, other in ports if kind == model]
        most = max(alike.count(other) for other in alike if other > rate)
        assert most >= len(alike) * SHARE or (specs and len(alike) < FEWEST)
        assert f"See ethtool eth{number}; " in one.remedy


def test_flow_control_and_mtu_are_compared_within_a_kind():
    """The same nine cards: the last one is for storage, or one like the others."""
    controls = [ObservedFlowControl(f"eth{n}", (3,) if n < 8 else (), "dscp") for n in range(9)]
    links = [ObservedLink(f"eth{n}", 9000 if n < 8 else 1500, True, True) for n in range(9)]
    facts = {"flow_control": tuple(controls), "links": tuple(links)}
    storage = {8: {"device": STORAGE}}
    assert codes(of_nodes(*EIGHT, 400.0, functions=storage, **facts)) == []
    found = diagnose(of_nodes(*EIGHT, 400.0, **facts)).findings
    assert [(one.code, one.subject) for one in found] == [("KR126", "mlx5_8"), ("KR301", "eth8")]
    assert found[0].remedy.startswith("dcb pfc set dev eth8 prio-pfc ")
    assert "ip link set eth8 mtu 9000" in found[1].remedy


@pytest.mark.parametrize("layer", [LinkLayer.ETHERNET, LinkLayer.INFINIBAND])
def test_nodes_are_compared_by_ports_of_one_kind(layer):
    """A VPI card may be of the one kind here and of the other there."""
    answers = [NodeAnswer(f"n{n}", replace(HEALTHY, node=f"n{n}")) for n in range(5)]
    port = {"rate_gbps": 25.0, "link_layer": layer}
    odd = replace(with_device(port=port), node="odd")
    found = diagnose_fleet([*answers, NodeAnswer("odd", odd)]).findings
    (row, *_) = [one for one in found if one.code == "KR128"] or [None]
    assert (row is not None) is (layer is LinkLayer.ETHERNET)
    if row:
        assert row.places[0].finding.remedy.startswith("ethtool eth0 here and")


# What pools leave out by rule.

SLAVE = {"master": "eth9", "fast_path": True}


def fast_path(port, netdev=None, **facts):
    """The first card carries the traffic of the virtual machine."""
    seen = with_device(port=port, netdev=SLAVE | (netdev or {}))
    kubelet = replace(HEALTHY.kubelet, allocatable=((RESOURCE, 1),))
    return replace(seen, kubelet=kubelet, **facts)


@pytest.mark.parametrize("specs", [(SPEC,), None, ()])
@pytest.mark.parametrize(
    ("port", "netdev"),
    [
        ({"gids": ()}, {}),
        (DOWN, {"up": False, "carrier": None}),
        (POLLING, {"carrier": False}),
        ({"rate_gbps": 25.0}, {}),
    ],
)
def test_the_fast_path_of_a_virtual_machine_is_not_judged(port, netdev, specs):
    seen = fast_path(port, netdev, specs=specs)
    assert "mlx5_0" not in {one.subject for one in diagnose(seen).findings}


@pytest.mark.parametrize("specs", [(SPEC,), None])
def test_a_device_named_for_accelerated_networking_is_not_judged(specs):
    seen = with_device(name="mlx5_an0", port={"gids": ()})
    assert "KR123" not in codes(replace(seen, specs=specs))


def test_a_fast_path_that_a_selector_names_is_judged():
    named = replace(SPEC, selectors=(Selector(interfaces=("eth0", "eth1")),))
    assert codes(fast_path({"gids": ()}, specs=(named,)))[0] == "KR123"


@pytest.mark.parametrize("facts", [OUT, {"port": DOWN, "netdev": {"up": False, "carrier": None}}])
def test_a_card_that_no_pool_means_may_be_down(facts):
    other = replace(SPEC, selectors=(Selector(interfaces=("eth1",)),))
    seen = replace(with_device(**facts), specs=(other,))
    assert codes(replace(seen, kubelet=fast_path({}).kubelet)) == []
    assert codes(with_device(**facts))[0] in ("KR120", "KR121")


def test_rails_that_no_pool_means_may_share_a_subnet():
    loose = dict(HEALTHY.settings) | {"net/ipv4/conf/eth1/arp_ignore": "0"}
    links = tuple(replace(one, addresses=("10.0.0.9/16",)) for one in LINKS)
    routes = tuple(replace(one, to="10.0.0.0/16") for one in ROUTES)
    seen = replace(HEALTHY, links=links, routes=routes, settings=tuple(loose.items()))
    assert "KR302" in codes(seen)
    other = replace(SPEC, selectors=(Selector(interfaces=("eth1",)),))
    assert "KR302" not in codes(replace(seen, specs=(other,)))


def bare(*broken, model=0x1021, specs=None):
    """Four cards, of which these have no cable; `model` is that of the first."""
    seen = of_nodes(*(100.0,) * 4, functions={0: {"device": model}}, specs=specs)
    for number in broken:
        seen = with_device(number, base=seen, **OUT)
    return seen


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (bare(0), ["KR121"]),
        (bare(0, model=STORAGE), []),
        (bare(0, 1, 2, 3), ["KR121"] * 4),
        (bare(1, 2, 3, model=STORAGE), []),
    ],
)
def test_without_pools_a_card_is_missed_where_one_of_its_kind_is_in_use(seen, found):
    assert codes(seen) == found


def test_a_soft_device_that_is_down_is_missed_beside_cards():
    """Somebody made it to be used."""
    soft = replace(device(0, None, "eth0"), ports=(replace(DEVICES[0].ports[0], **DOWN),))
    seen = replace(HEALTHY, specs=None, survey=replace(SURVEY, devices=(*DEVICES, soft)))
    assert "rxe0" in {one.subject for one in diagnose(seen).findings}


def test_the_first_port_of_a_switchdev_card_may_be_another_function_s():
    own = replace(DEVICES[0].ports[0], number=2, **POLLING)
    other = replace(own, number=1, representor=True, physical_state=PhysicalState.DISABLED)
    seen = with_device(netdev={"carrier": False}, ports=(replace(other, netdev=None), own))
    assert codes(seen)[0] == "KR121"
    ports = [replace(DEVICES[0].ports[0], number=2, representor=True, rate_gbps=n) for n in (1, 9)]
    seen = with_device(ports=(*DEVICES[0].ports, ports[0]))
    assert codes(with_device(1, base=seen, ports=(*DEVICES[1].ports, ports[1]))) == []


@pytest.mark.parametrize("state", [PortState.DOWN, PortState.INIT])
def test_without_pools_a_part_of_a_card_waits_for_a_pod(state):
    """One that is past DOWN was given a link, and does not come up."""
    seen = of_nodes(*EIGHT, 400.0, functions={8: {"position": PART}}, specs=None)
    port = {"state": state, "physical_state": PhysicalState.LINK_UP}
    seen = with_device(8, base=seen, port=port | {"link_layer": LinkLayer.INFINIBAND})
    assert codes(seen) == (["KR122"] if state is PortState.INIT else [])


@pytest.mark.parametrize("specs", [None, (replace(SPEC, selectors=(Selector(vendors=("1",)),)),)])
def test_a_bond_of_the_node_itself_is_no_matter_of_pods(specs):
    """A slave that is not active has no GID, nor a bond's one where the card has no LAG.

    bond_delete_netdev_default_gids, drivers/infiniband/core/roce_gid_mgmt.c.
    """
    bond = {"master": "bond0", "bonded": True}
    seen = with_device(port={"bond": "bond0", "gids": ()}, netdev=bond)
    assert not {"KR115", "KR123"} & set(codes(replace(seen, specs=specs)))


def test_what_is_beside_working_cards_may_have_no_driver_and_no_module():
    """An onboard card that nobody uses for RDMA; one like the others is missed."""
    plain = replace(FUNCTIONS[0], position=position(0x90), device=0x1572, driver=None, netdevs=())
    netdevs = (replace(FUNCTIONS[0].netdevs[0], name="eno1"),)
    ice = Function(position(0x91), 0x8086, 0x1593, "ice", netdevs)
    for one, found in ((plain, []), (ice, []), (replace(plain, device=0x1021), ["KR101"])):
        assert codes(replace(HEALTHY, survey=replace(SURVEY, functions=(*FUNCTIONS, one)))) == found
    empty = replace(SPEC, selectors=(Selector(vendors=("8086",)),))
    seen = replace(HEALTHY, survey=replace(SURVEY, functions=(*FUNCTIONS, ice)), specs=(empty,))
    assert {"KR102", "KR132"} <= set(codes(seen))


# Each check has an example that is well: where it can, one that has what the check looks for.

OTHER_POOL = replace(SPEC, resource="rdma/other", selectors=(Selector(interfaces=("eth9",)),))
WELL = {
    "KR104": with_device(char_devices=(), base=replace(HEALTHY, specs=(OTHER_POOL,))),
    "KR110": replace(
        HEALTHY, specs=(EXCLUSIVE,), survey=replace(SURVEY, namespace_mode=NamespaceMode.EXCLUSIVE)
    ),
    "KR115": replace(
        with_device(port={"bond": "bond0"}, netdev={"master": "bond0", "bonded": True}), specs=None
    ),
    "KR120": replace(with_device(port=DOWN, netdev={"up": False}), specs=(OTHER_POOL,)),
    "KR121": replace(with_device(**OUT), specs=(OTHER_POOL,)),
    "KR122": with_device(port={"link_layer": LinkLayer.INFINIBAND, "gids": ()}),
    "KR123": with_device(port={"gids": ()}, node_type="RNIC"),
    "KR124": of_nodes(*EIGHT, 100.0, functions={8: {"device": STORAGE}}),
    "KR125": replace(HEALTHY, pcie=(replace(HEALTHY.pcie[0], width=4, most_width=4),)),
    "KR126": four_ports(),
    "KR127": rising("out_of_sequence", flow_control=flow_control(pfc=tuple(range(8)))),
    "KR129": rising("rx_pause_ctrl_phy", "np_cnp_sent"),
    "KR131": replace(
        HEALTHY,
        specs=(replace(OTHER_POOL, selectors=(Selector(interfaces=("eth1",)),)), OTHER_POOL),
    ),
    "KR134": replace(HEALTHY, specs=(EXCLUSIVE,)),
    "KR136": replace(
        HEALTHY, specs=(replace(SPEC, device_files=(CharKind.UVERBS, CharKind.UMAD)),)
    ),
    "KR137": replace(HEALTHY, specs=(replace(SPEC, selectors=(Selector(interfaces=("eth0",)),)),)),
    "KR141": below_a_switch((0x53, 0x53)),
    "KR303": setting("eth1", "rp_filter", "2"),
    "KR304": replace(HEALTHY, routes=(*ROUTES, ObservedRoute("eth0", "10.7.0.0/16", "10.0.0.1"))),
    "KR320": replace(HEALTHY, uses=(*HEALTHY.uses, HEALTHY.uses[0])),
    "KR413": routed("0.0.0.0/0", table=101),
    "KR414": replace(WITH_POD, specs=(replace(SPEC, mode=Mode.SHARED),)),
    "KR432": limited(*(ObservedLimit(f"mlx5_{n}", 1, 2, 4, 100) for n in range(2))),
    **dict.fromkeys(("KR441", "KR442", "KR443"), CLAIMING),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.code)
def test_each_check_has_an_example_that_is_well(check):
    """The check is made there, and finds nothing; most look at what the whole node has."""
    seen = WELL.get(check.code, WITH_POD)
    assert check.missing(seen) == ()
    assert list(check.findings(seen)) == []
