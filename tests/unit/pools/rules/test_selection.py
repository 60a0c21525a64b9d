"""Cards of a survey, and the cards that a pool means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Card, CardId, Netdev, Use
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.pools import FunctionRange, Mode, PoolSpec, Selector
from kube_rdma.model.survey import Verdict
from kube_rdma.pools.rules.selection import asked_uses, cards, is_vital, spared, why_not
from tests.kit.nodes import (
    DOWN,
    SELECTORS,
    device,
    function,
    node,
    nodes,
    physical_with_virtual,
    position,
)

WHERE = position(0x81)


@given(nodes())
def test_each_device_and_each_function_is_in_one_card(found):
    known = found.cards
    assert sorted(d.name for c in known for d in c.devices) == sorted(
        d.name for d in found.survey.devices
    )
    functions = [card.function for card in known if card.function]
    assert sorted(f.position.pci for f in functions) == [
        f.position.pci for f in found.survey.functions
    ]
    ids = [card.id for card in known]
    assert ids == sorted(set(ids))
    assert all(card.devices or card.function for card in known)
    for card in known:
        if card.devices:
            ill = [v for v in found.verdicts if v.device in card.devices and not v.usable]
            assert card.usable is (len(ill) < len(card.devices))


@given(nodes(), st.randoms(use_true_random=False))
def test_the_order_of_devices_and_functions_does_not_matter(found, random):
    verdicts, functions = list(found.verdicts), list(found.survey.functions)
    random.shuffle(verdicts)
    random.shuffle(functions)
    assert cards(replace(found.survey, functions=tuple(functions)), verdicts) == found.cards


def test_a_function_joins_the_devices_on_it():
    hard = device(0, WHERE, "eth0")
    soft = device(1, None, "eth0", position=WHERE)
    (card,) = node(function(WHERE, "eth0"), devices=(hard, soft), ill={"mlx5_0"}).cards
    assert (card.id, card.name, card.usable) == ("0000:81:00.0", "mlx5_0+rxe1", True)
    (card,) = node(function(WHERE, "eth0"), devices=(hard, soft), ill={"mlx5_0", "rxe1"}).cards
    assert card.reasons == (DOWN,)


def test_a_sub_function_is_a_card_of_its_own():
    """The function that it lies on keeps its interfaces for itself."""
    sub = device(1, WHERE, auxiliary="mlx5_core.sf.4")
    whole, part = node(function(WHERE, "eth0"), devices=(device(0, WHERE), sub)).cards
    assert (whole.id, part.id) == ("0000:81:00.0", "mlx5_core.sf.4")
    assert part.function is None
    assert (part.pci, part.numa_node) == (WHERE.pci, 0)


def test_a_device_without_a_function_is_a_card_by_its_identity():
    (card,) = node(devices=(device(0, None, "veth0", identity="rxe0@veth0"),)).cards
    assert (card.id, card.position, card.numa_node) == ("rxe0@veth0", None, None)


def test_two_long_names_stay_two_cards():
    """Soft devices may have names as long as the kubelet allows for a whole share."""
    names = ["r" * 62 + end for end in "ab"]
    found = [device(n, None, "eth0", identity=f"{name}@eth0") for n, name in enumerate(names)]
    ids = [card.id for card in node(devices=found).cards]
    assert len(set(ids)) == 2
    assert {len(name) for name in ids} == {54}


def test_a_bare_function_says_what_stands_against_it():
    above, part = physical_with_virtual(0x81, 1, "ens1f0")
    unplugged = replace(above, netdevs=(Netdev("ens1f0", "ether", True, False),))
    whole, virtual = node(unplugged, replace(part, driver=None)).cards
    cable = "ens1f0 has no carrier: check the cable and the switch port behind it"
    assert whole.reasons == (cable,)
    assert virtual.reasons == (
        "no driver is bound to it: load its module, dmesg may say why it did not bind",
        cable,
    )


@pytest.mark.parametrize(("up", "carrier"), [(True, True), (False, None), (False, False)])
def test_an_interface_that_nobody_has_set_up_is_no_fault(up, carrier):
    known = replace(function(WHERE), netdevs=(Netdev("eth0", "ether", up, carrier),))
    assert node(known).cards[0].usable


def test_the_default_route_is_found_on_the_card_that_carries_it():
    used = replace(function(WHERE), netdevs=(Netdev("eth0", "ether", True, True, True),))
    assert is_vital(node(used).cards[0])
    assert not is_vital(node(function(WHERE, "eth0")).cards[0])
    assert not is_vital(node(devices=(device(0, netdev="eth0"),)).cards[0])


def test_a_soft_device_of_a_pod_is_nobody_s_card():
    """One node shows the RDMA devices of all namespaces; those of pods are not to be given away."""
    assert [card.name for card in node(devices=(device(0, netdev="eth0"), device(1))).cards] == [
        "rxe0"
    ]


def test_reasons_of_two_devices_are_said_once():
    first, second = device(0, WHERE), device(1, WHERE)
    found = node(function(WHERE), devices=(first, second))
    verdicts = (Verdict(first, (DOWN, "a")), Verdict(second, (DOWN, "b")))
    assert cards(found.survey, verdicts)[0].reasons == (DOWN, "a", "b")


ABOVE, V0, V1, V2 = physical_with_virtual(0x10, 3, "ens1f0")
FUNCTIONS = {f.position.pci: f for f in (ABOVE, V0, V1, V2)}
KEYED = replace(device(0, position(0x10)).ports[0], pkey=0x8001, link_layer=LinkLayer.INFINIBAND)
PART = device(9, ABOVE.position, auxiliary="mlx5_core.sf.4", subfunction=88, driver="mlx5_core.sf")


def card_of(where, *devices):
    return Card(CardId(where.position.pci), devices, where)


WHOLE = card_of(replace(ABOVE, acpi_index=3), device(0, ABOVE.position, "ens1f0"))
VIRTUAL = card_of(V1, device(2, V1.position, "ens1f0v1"))
SUB = Card(CardId("mlx5_core.sf.4"), (PART,), None)
SOFT = Card(CardId("rxe5@veth0"), (device(5, None, "veth0"),), None)
FABRIC = card_of(ABOVE, replace(device(0, ABOVE.position), ports=(KEYED,)))


def why(card, mode=Mode.HCA, *selectors):
    return why_not(PoolSpec("rdma/a", mode, "c:1", selectors), card, FUNCTIONS)


def ranged(parent, *indexes):
    return FunctionRange(parent, indexes)


@pytest.mark.parametrize(
    ("card", "selector", "expected"),
    [
        (WHOLE, Selector(vendors=("8086", "15b3")), None),
        (WHOLE, Selector(vendors=("8086",)), "vendor 15b3 is not among 8086"),
        (SOFT, Selector(vendors=("15b3",)), "it has no vendor, and one of 15b3 is asked for"),
        (SUB, Selector(vendors=("15b3",), device_ids=("1021",)), None),
        (WHOLE, Selector(device_ids=("101b",)), "device id 1021 is not among 101b"),
        (WHOLE, Selector(drivers=("mlx5_core",)), None),
        (SUB, Selector(drivers=("x",)), "driver mlx5_core and mlx5_core.sf are not among x"),
        (WHOLE, Selector(interfaces=("ens1f0",)), None),
        (SUB, Selector(interfaces=("ens1f0",)), "it has no interface, and one of ens1f0 is asked"),
        (SOFT, Selector(interfaces=("veth0",)), None),
        (WHOLE, Selector(link_types=("ether",)), None),
        (SOFT, Selector(link_types=("infiniband",)), "link type ether is not among infiniband"),
        (
            WHOLE,
            Selector(pci_addresses=(V0.position.pci,)),
            "PCI address 0000:10:00.0 is not among",
        ),
        (WHOLE, Selector(acpi_indexes=(1, 3)), None),
        (VIRTUAL, Selector(acpi_indexes=(3,)), "it has no ACPI index, and one of 3 is asked for"),
        (SUB, Selector(auxiliary_types=("sf",)), None),
        (WHOLE, Selector(auxiliary_types=("sf",)), "it has no auxiliary type, and one of sf"),
        (WHOLE, Selector(rdma_devices=("mlx5_0",)), None),
        (FABRIC, Selector(pkeys=(0x0001,)), None),
        (FABRIC, Selector(pkeys=(0x8002,)), "partition key 0x0001 is not among 0x0002"),
        (WHOLE, Selector(rdma=False), "it has an RDMA device"),
        (VIRTUAL, Selector(physical=(ranged("ens1f0"),)), None),
        (VIRTUAL, Selector(physical=(ranged("ens1f0", (0, 0), (1, 4)),)), None),
        (VIRTUAL, Selector(roots=(ranged("0000:10:00.0", (1, 1)),)), None),
        (
            VIRTUAL,
            Selector(physical=(ranged("ens1f0", (0, 0), (2, 4)), ranged("ens2f0"))),
            "it is not among ens1f0#0,2-4, ens2f0",
        ),
        (WHOLE, Selector(physical=(ranged("ens1f0", (0, 9)),)), "it is not among ens1f0#0-9"),
        (WHOLE, Selector(physical=(ranged("ens1f0"),)), None),
        (SUB, Selector(physical=(ranged("ens1f0", (88, 88)),)), None),
        (SUB, Selector(physical=(ranged("ens1f0", (0, 5)),)), "it is not among ens1f0#0-5"),
        (SOFT, Selector(physical=(ranged("veth0"),)), "it is not among veth0"),
        (WHOLE, Selector(vendors=("15b3",), drivers=("ice",)), "driver mlx5_core is not among"),
    ],
)
def test_each_field_of_a_selector(card, selector, expected):
    found = why(card, Mode.HCA, selector)
    assert found == expected or (expected and found and found.startswith(expected))


def test_any_of_several_selectors_is_enough():
    other, third = Selector(vendors=("8086",)), Selector(vendors=("8086",), rdma=True)
    assert why(WHOLE, Mode.HCA, other, Selector(rdma=True)) is None
    assert why(WHOLE, Mode.HCA, other, third) == "vendor 15b3 is not among 8086"
    assert why(WHOLE, Mode.HCA, other, Selector(rdma=False)) == (
        "vendor 15b3 is not among 8086; it has an RDMA device"
    )


PLAIN = card_of(function(position(0x20), "eth0"), device(1, position(0x20), "eth0"))
BARE = card_of(function(position(0x20), "eth0"))
ROUTED = card_of(
    replace(PLAIN.function, netdevs=(Netdev("eth0", "ether", True, True, True),)), *PLAIN.devices
)
ROUTE = "the node's default route leads through it, as far as the kernel shows"


@pytest.mark.parametrize(
    ("card", "mode", "expected"),
    [
        (PLAIN, Mode.HCA, None),
        (ROUTED, Mode.HCA, None),
        (VIRTUAL, Mode.HCA, None),
        (SOFT, Mode.HCA, None),
        (BARE, Mode.HCA, "it has no RDMA device"),
        (PLAIN, Mode.SHARED, None),
        (ROUTED, Mode.SHARED_MULTI, None),
        (SOFT, Mode.SHARED_MULTI, None),
        (VIRTUAL, Mode.SHARED, "it is a virtual function, and mode shared takes physical cards"),
        (SUB, Mode.SHARED, "it is a sub-function, and mode shared takes physical cards"),
        (PLAIN, Mode.EXCLUSIVE, None),
        (WHOLE, Mode.EXCLUSIVE, None),
        (ROUTED, Mode.EXCLUSIVE, ROUTE),
        (
            SOFT,
            Mode.EXCLUSIVE,
            "it is not a PCI function, and mode exclusive moves one into the pod",
        ),
        (BARE, Mode.SRIOV, None),
        (VIRTUAL, Mode.SRIOV, None),
        (ROUTED, Mode.SRIOV, ROUTE),
        (WHOLE, Mode.SRIOV, "it has virtual functions, which pods get instead of it"),
        (SUB, Mode.SRIOV, "it is not a PCI function"),
    ],
)
def test_what_each_mode_takes(card, mode, expected):
    assert why(card, mode) == expected


def test_sub_functions_are_given_away_by_those_who_name_them():
    assert why(SUB, Mode.SRIOV, Selector(auxiliary_types=("sf",))) is None


@given(nodes(), SELECTORS, SELECTORS, st.sampled_from(Mode))
def test_a_second_selector_never_takes_a_card_away(found, first, second, mode):
    functions = {f.position.pci: f for f in found.survey.functions}
    for card in found.cards:
        one = why_not(PoolSpec("rdma/a", mode, "c", (first,)), card, functions)
        two = why_not(PoolSpec("rdma/a", mode, "c", (first, second)), card, functions)
        # Naming sub-functions is a permission, so the first alone decides only what it refuses.
        assert two is None or one is not None


@given(nodes(), SELECTORS, st.sampled_from(Mode))
def test_a_selector_never_brings_a_card_that_the_mode_cannot_take(found, selector, mode):
    functions = {f.position.pci: f for f in found.survey.functions}
    for card in found.cards:
        if card.function and why_not(PoolSpec("rdma/a", mode, "c"), card, functions):
            assert why_not(PoolSpec("rdma/a", mode, "c", (selector,)), card, functions)


@given(nodes(), st.lists(SELECTORS, max_size=2), st.sampled_from(Mode))
def test_a_reason_is_a_clause(found, selectors, mode):
    functions = {f.position.pci: f for f in found.survey.functions}
    for card in found.cards:
        reason = why_not(PoolSpec("rdma/a", mode, "c", tuple(selectors)), card, functions)
        assert reason is None or (reason and not reason.endswith("."))


def test_a_physical_function_inside_a_pod_is_still_known_by_its_address():
    """Its interface is out of sight, so a range by address goes on where one by name does not."""
    away = replace(ABOVE, netdevs=())
    spec = PoolSpec("rdma/a", Mode.SRIOV, "c", (Selector(roots=(ranged("0000:10:00.0"),)),))
    assert why_not(spec, VIRTUAL, {away.position.pci: away}) is None
    spec = replace(spec, selectors=(Selector(physical=(ranged("ens1f0"),)),))
    assert why_not(spec, VIRTUAL, {away.position.pci: away}) == "it is not among ens1f0"


USED = "name the card in a selector to give it away all the same"


def with_netdev(card, **facts):
    (netdev,) = card.function.netdevs
    return replace(card, function=replace(card.function, netdevs=(replace(netdev, **facts),)))


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SRIOV])
@pytest.mark.parametrize("selectors", [(), (Selector(interfaces=("eth0",)),)])
def test_nothing_with_a_master_moves_even_if_it_is_named(mode, selectors):
    slave = with_netdev(PLAIN, master="bond0", bonded=True)
    refusal = "eth0 is enslaved to bond0, which would not get it back"
    assert why(slave, mode, *selectors) == refusal
    assert why(slave, Mode.HCA) is None
    assert why(slave, Mode.SHARED) is None


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (None, None),
        (Use(), None),
        (Use(addresses=("10.9.0.1/24",), routes=("10.9.0.0/24",)), None),
        (Use(above=("eth0.7",)), f"eth0.7 stands on eth0: {USED}"),
        (Use(beyond=("10.0.0.0/8",)), f"the node's routes to 10.0.0.0/8 lead through eth0: {USED}"),
        (Use(storage=("NFS of ::1",)), f"eth0 leads to storage, NFS of ::1: {USED}"),
    ],
)
@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SRIOV])
def test_what_the_node_uses_is_taken_only_by_name(use, expected, mode):
    """A kind of card is no name; nor is a selector that names another card."""
    card = with_netdev(PLAIN, use=use)
    assert why(card, mode) == expected
    assert why(card, mode, Selector(vendors=("15b3",))) == expected
    assert why(card, mode, Selector(interfaces=("eth9",)), Selector(rdma=True)) == expected
    assert why(card, mode, Selector(rdma_devices=("mlx5_1",))) is None
    assert why(card, mode, Selector(interfaces=("eth0",))) is None
    assert why(card, Mode.HCA) is None


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SRIOV])
@pytest.mark.parametrize("selectors", [(), (Selector(interfaces=("eth0",)),)])
def test_what_carries_the_node_s_own_address_never_moves(mode, selectors):
    """With its subnet's route alone, whoever names it: the kubelet would be off the network."""
    use = Use(addresses=("10.1.0.5/24",), routes=("10.1.0.0/24",))
    card = with_netdev(PLAIN, use=use, needed="the node's InternalIP 10.1.0.5")
    sentence = "eth0 carries the node's InternalIP 10.1.0.5, without which the node is cut off"
    assert why(card, mode, *selectors) == sentence
    assert why(card, Mode.HCA) is None
    assert why(card, Mode.SHARED) is None


AZURE = card_of(PLAIN.function, replace(PLAIN.devices[0], name="mlx5_an0"))
NAMED = (Selector(rdma_devices=("mlx5_an0",)), Selector(interfaces=("eth0",)))


@pytest.mark.parametrize("mode", [Mode.HCA, Mode.SHARED, Mode.SHARED_MULTI, Mode.EXCLUSIVE])
def test_what_accelerates_a_virtual_machine_s_own_interface_is_no_card_by_itself(mode):
    """Neither of mode hca, which takes every other device; whoever names it has it."""
    sentence = f"mlx5_an0 accelerates the virtual machine's own interface: {USED}"
    assert why(AZURE, mode) == sentence
    assert why(AZURE, mode, Selector(vendors=("15b3",))) == sentence
    assert [why(AZURE, mode, named) for named in NAMED] == [None, None]
    fabric = card_of(PLAIN.function, replace(PLAIN.devices[0], name="mlx5_ib0"))
    assert why(fabric, mode) is None


def test_a_fast_path_is_known_by_its_master_under_any_name():
    card = with_netdev(PLAIN, master="eth1", fast_path=True)
    sentence = f"it carries the traffic of eth1, the virtual machine's own interface: {USED}"
    assert why(card, Mode.HCA) == sentence
    for mode in (Mode.HCA, Mode.EXCLUSIVE):  # every such node has one: nothing is in the way
        assert spared(PoolSpec("rdma/a", mode, "c:1"), card, FUNCTIONS) is None
    assert why(card, Mode.HCA, Selector(interfaces=("eth0",))) is None
    assert why(with_netdev(PLAIN, master="br0"), Mode.HCA) is None


def test_an_rdma_function_beside_its_interface_s_is_judged_by_that_one():
    """eRDMA: the device is a function of its own, the interface with the route another's."""
    bare = function(position(0x21))
    card = card_of(bare, device(1, bare.position, "eth0"))
    functions = {f.position.pci: f for f in (bare, ROUTED.function)}
    spec = PoolSpec("rdma/a", Mode.EXCLUSIVE, "c:1")
    assert why_not(spec, card, functions) == ROUTE
    assert why_not(spec, card, {bare.position.pci: bare}) is None


def test_uses_are_asked_for_only_where_cards_move():
    named, kind = Selector(interfaces=("eth0",)), Selector(vendors=("15b3",))

    def asked(mode, *selectors):
        return asked_uses([PoolSpec("rdma/a", mode, "c:1", selectors)])

    assert asked(Mode.EXCLUSIVE)
    assert asked(Mode.SRIOV, kind)
    assert asked(Mode.EXCLUSIVE, named, kind)
    assert asked(Mode.EXCLUSIVE, named)
    assert not asked(Mode.HCA)
    assert not asked(Mode.SHARED, kind)
