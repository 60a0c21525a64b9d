"""How near functions are, and the tree of a node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.hardware import machines
from kube_rdma.hardware.rules.node_picture import matrix, node_topology
from kube_rdma.model.device import (
    Device,
    Gpu,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.nearness import Nearness, nearness
from kube_rdma.pools.rules.node_health import node_cards

SELF, PIX, PXB, PHB, NODE, SYS = Nearness


def position(path, root="pci0000:00", numa=0):
    """A position by the buses of its path: "00 01 05" has three functions."""
    addresses = tuple(PciAddress(f"0000:{name}") for name in path.split())
    return PciPosition(addresses[-1], root, addresses, numa)


# One root complex: a big switch (01:00.0) with a switch below its first port, and a card beside.
NIC = position("00:01.0 01:00.0 02:00.0 03:00.0 04:00.0 05:00.0")
NIC_PORT_2 = position("00:01.0 01:00.0 02:00.0 03:00.0 04:00.0 05:00.1")
GPU = position("00:01.0 01:00.0 02:00.0 03:00.0 04:01.0 06:00.0")
GPU_ABOVE = position("00:01.0 01:00.0 02:01.0 07:00.0")
BESIDE = position("00:02.0 08:00.0")
ON_BOARD = position("00:03.0")
OTHER_ROOT = position("20:01.0 21:00.0", "pci0000:20")
OTHER_NODE = position("80:01.0 81:00.0", "pci0000:80", numa=1)
NO_NODE = position("80:01.0 81:00.0", "pci0000:80", numa=None)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (NIC, SELF),
        (NIC_PORT_2, PIX),
        (GPU, PIX),
        (GPU_ABOVE, PXB),
        (BESIDE, PHB),
        (ON_BOARD, PHB),
        (OTHER_ROOT, NODE),
        (OTHER_NODE, SYS),
        (NO_NODE, SYS),
    ],
)
def test_each_class(other, expected):
    assert nearness(NIC, other) is expected


def test_without_numa_everything_is_on_one_node():
    assert nearness(NO_NODE, replace(OTHER_ROOT, numa_node=None)) is NODE


def test_functions_of_two_domains_are_not_confused():
    here, there = position("00:01.0 05:00.0"), position("00:01.0 05:00.0")
    there = replace(
        there,
        root="pci0001:00",
        pci=PciAddress("0001:05:00.0"),
        path=(PciAddress("0001:00:01.0"), PciAddress("0001:05:00.0")),
    )
    assert nearness(here, there) is NODE


def test_the_order_is_from_near_to_far():
    assert [n.distance for n in (SELF, PIX, PXB, PHB, NODE, SYS)] == [0, 1, 2, 3, 4, 5]


@st.composite
def positions(draw, length=None):
    bus = draw(st.integers(0, 3))
    count = draw(st.integers(1, 6)) if length is None else length
    names = [draw(st.integers(0, 1)) for _ in range(count)]
    steps = range(count)
    # The name of a bridge holds the way to it, as bus numbers do in a real machine.
    path = tuple(
        PciAddress(f"000{bus}:{int('1' + ''.join(map(str, names[: i + 1])), 2):02x}:{i:02x}.0")
        for i in steps
    )
    return PciPosition(path[-1], f"pci000{bus}:00", path, bus // 2)


@given(positions(), positions())
def test_it_is_symmetric(a, b):
    assert nearness(a, b) is nearness(b, a)


@given(positions())
def test_a_position_is_itself(a):
    assert nearness(a, a) is SELF
    assert nearness(a, replace(a, numa_node=None, virtual_functions=(a.pci,))) is SELF


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(positions(n), positions(n), positions(n))))
def test_more_of_the_way_in_common_is_never_farther(three):
    a, b, c = three

    def common(other):
        if a.root != other.root:
            return -1
        return next((i for i, (x, y) in enumerate(zip(a.path, other.path, strict=True)) if x != y))

    if a.pci in {b.pci, c.pci} or common(b) <= common(c):
        return
    assert nearness(a, b).distance <= nearness(a, c).distance


@given(positions(), positions())
def test_only_functions_below_one_host_bridge_avoid_it(a, b):
    below = {SELF, PIX, PXB}
    assert (nearness(a, b) in below) == (a.root == b.root and a.path[0] == b.path[0])
    assert (nearness(a, b) is SYS) == (a.numa_node != b.numa_node)


def device(name, position=None, numa=None):
    port = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, None, ())
    pci = position.pci if position else None
    numa = position.numa_node if position else numa
    return Device(name, name, None, "CA", None, None, pci, numa, (port,), (), position)


def test_the_matrix_has_gpus_first_and_is_symmetric():
    gpu = Gpu(GPU, 0x030200, 0x10DE, 0x2330, None)
    survey = Survey(
        (device("mlx5_0", NIC), device("mlx5_1", OTHER_NODE)),
        None,
        NamespaceMode.UNKNOWN,
        (),
        (gpu,),
    )
    assert matrix(survey) == ((SELF, PIX, SYS), (PIX, SELF, SYS), (SYS, SYS, SELF))


def test_a_soft_device_is_near_to_the_gpus_of_the_card_below_its_interface():
    gpu = Gpu(GPU, 0x030200, 0x10DE, 0x2330, None)
    soft = replace(device("rxe0", NIC), identity="rxe0@eth0", pci=None)
    devices = (device("mlx5_0", NIC), device("mlx5_1", BESIDE), soft)
    survey = Survey(devices, None, NamespaceMode.UNKNOWN, (), (gpu,))
    assert matrix(survey)[3] == (PIX, SELF, PHB, SELF)


def test_without_a_position_only_another_numa_node_is_known():
    survey = Survey(
        (device("mlx5_0", NIC), device("rxe0", numa=0), device("rxe1", numa=1), device("siw0")),
        None,
        NamespaceMode.UNKNOWN,
    )
    assert matrix(survey)[0] == (SELF, None, SYS, None)
    assert matrix(survey)[3] == (None, None, None, SELF)


def test_nothing_has_an_empty_matrix():
    assert matrix(Survey((), None, NamespaceMode.UNKNOWN)) == ()


def groups(topology):
    return [
        (socket.numa_node, bridge.root, group)
        for socket in topology
        for bridge in socket.bridges
        for group in bridge.groups
    ]


def topology_of(name):
    return node_topology(read_survey(machines.machine(name)))


def test_a_machine_of_eight_gpus_and_cards():
    found = groups(topology_of("dgx-like"))
    assert [(numa, root, group.switch) for numa, root, group in found] == [
        (0, "pci0000:00", "0000:01:00.0"),
        (0, "pci0000:20", "0000:21:00.0"),
        (1, "pci0000:80", "0000:81:00.0"),
        (1, "pci0000:a0", "0000:a1:00.0"),
    ]
    assert [[gpu.number for gpu in group.gpus] for *_, group in found] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    rails = [(card.card.name, card.rail) for *_, group in found for card in group.cards]
    assert rails == [(f"mlx5_{number}", number) for number in range(8)]


def test_virtual_functions_and_sub_functions_are_parts_of_their_card():
    ((_, _, group),) = groups(topology_of("mlx5-ib-pf-vfs"))
    first, second = group.cards
    assert (first.card.name, first.functions, len(first.parts)) == ("mlx5_0", 4, 2)
    assert (second.card.name, second.functions, second.rail) == ("mlx5_1", 0, 1)
    ((_, _, group),) = groups(topology_of("mlx5-subfunction"))
    (card,) = group.cards
    assert [one.name for one in card.parts] == ["mlx5_1"]
    assert card.functions == 0


def test_a_card_without_an_rdma_device_has_no_rail():
    cards = [card for *_, group in groups(topology_of("lab-node")) for card in group.cards]
    rails = {card.card.name: card.rail for card in cards}
    assert rails == {"rxe0": 0, "rxe1": 1, "ens4f0": None, "eth0": None}


@pytest.mark.parametrize("name", machines.names())
def test_each_gpu_and_card_has_one_place_and_one_switch_means_near(name):
    survey = read_survey(machines.machine(name))
    found = groups(node_topology(survey))
    gpus = [one.gpu for *_, group in found for one in group.gpus]
    assert sorted(gpu.position.pci for gpu in gpus) == [gpu.position.pci for gpu in survey.gpus]
    whole = [one.card for *_, group in found for one in group.cards]
    parts = [part for *_, group in found for one in group.cards for part in one.parts]
    drawn = sorted(card.id for card in (*whole, *parts) if card.devices)
    assert drawn == sorted(card.id for card in node_cards(survey) if card.devices)
    for numa, root, group in found:
        positions = [one.gpu.position for one in group.gpus] + [
            one.card.position for one in group.cards if one.card.position
        ]
        assert {(position.numa_node, position.root) for position in positions} <= {(numa, root)}
        if group.switch:
            near = {nearness(positions[0], position) for position in positions}
            assert near <= {Nearness.SELF, Nearness.PIX}
