"""What the labels of a node say: legal and bounded whatever the node has, and right where known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import (
    Device,
    Gid,
    GidType,
    Gpu,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.pools import Mode
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.operator.rules import placement
from kube_rdma.pools.rules import labels as table
from kube_rdma.pools.rules.labels import MOST_VENDORS, VALUE, HostRelease, LabelFacts, wanted_labels

UBUNTU = HostRelease("6.8.0-45-generic", (("ID", "ubuntu"), ("VERSION_ID", "24.04")))
PRESENT = f"{table.FEATURE}/pci-15b3.present"
PREFIX = "fec0:0000:0000:0001"


def seat(number, root="pci0000:80", physical=None):
    pci = PciAddress(f"0000:{number:02x}:00.0")
    return PciPosition(pci, root, (pci,), 0, physical_function=physical)


def port(
    state=PortState.ACTIVE, rate=400.0, layer=LinkLayer.INFINIBAND, prefix="fe80:0000:0000:0000"
):
    gid = Gid(0, f"{prefix}:0002:c903:0000:0001", GidType.IB_OR_ROCE_V1, None)
    return Port(1, state, PhysicalState.LINK_UP, layer, rate, None, (gid,))


def device(number, *ports, at=None):
    at = at or seat(number)
    return Device(
        f"mlx5_{number}",
        at.pci,
        None,
        "CA",
        "mlx5_core",
        None,
        at.pci,
        0,
        ports or (port(),),
        (),
        at,
    )


def function(number, vendor=0x15B3, driver="mlx5_core", *, up=True, at=None):
    netdevs = (Netdev(f"eth{number}", "ether", up=True, carrier=True),) if up else ()
    return Function(at or seat(number), vendor, 0x1017, driver, netdevs)


def survey(*devices, functions=None, gpus=(), mode=NamespaceMode.SHARED):
    if functions is None:
        functions = tuple(function(n) for n, _ in enumerate(devices))
    return Survey(devices, None, mode, gpus=gpus, functions=functions)


def labels_of(survey, host=UBUNTU, **more):
    return wanted_labels(LabelFacts(survey, host, **more)).labels


NUMBERS = st.integers(0, 60)
PORTS = st.builds(
    port,
    st.sampled_from(PortState),
    st.one_of(st.none(), st.floats(0, 1e6)),
    st.sampled_from(LinkLayer),
    st.sampled_from((PREFIX, "fe80:0000:0000:0000", "fec0:0000:0000:00ff", "0000:0000:0000:0003")),
)
DEVICES = st.lists(st.builds(device, NUMBERS, PORTS, PORTS), max_size=9)
FUNCTIONS = st.lists(st.builds(function, NUMBERS, st.integers(0, 0xFFFF)), max_size=40)
HOSTS = st.builds(
    HostRelease,
    st.text(max_size=90),
    st.one_of(
        st.none(),
        st.tuples(
            st.tuples(st.just("ID"), st.text(max_size=70)),
            st.tuples(st.just("VERSION_ID"), st.from_regex(r"[0-9٣.]{0,70}", fullmatch=True)),
        ),
    ),
)


@given(DEVICES, FUNCTIONS, HOSTS, st.frozensets(st.sampled_from(Mode)), st.integers(0, 99))
def test_whatever_a_node_has_its_labels_are_legal_and_few(devices, functions, host, modes, rails):
    """By the API's rule for values; every key is in the table."""
    node = survey(*devices, functions=tuple(functions))
    labels = wanted_labels(LabelFacts(node, host, modes, rails)).labels
    rows = [row.key for row in table.TABLE if row.by_agent]
    assert len(labels) < len(rows) + MOST_VENDORS
    assert all(table.writes(key) for key in labels)
    assert all(len(value) <= 63 and VALUE.fullmatch(value) for value in labels.values())


@given(DEVICES, FUNCTIONS, st.frozensets(st.sampled_from(Mode)), st.integers(0, 99))
def test_of_others_names_none_is_wanted_where_nobody_asks_for_it(devices, functions, modes, rails):
    node = survey(*devices, functions=tuple(functions))
    own, all_labels = (
        wanted_labels(LabelFacts(node, host, modes, rails)) for host in (None, UBUNTU)
    )
    expected = {k: v for k, v in all_labels.labels.items() if k.startswith("kube-rdma.io/")}
    assert (own.labels, own.kept) == (expected, all_labels.kept)
    assert (own.leaves_nfd, all_labels.leaves_nfd) == (True, False)


@pytest.mark.parametrize(
    ("kernel", "labels"),
    [
        ("6.8.0-45-generic", ("6.8.0-45-generic", "6", "8", "0")),
        ("5.14.0-427.el9.x86_64", ("5.14.0-427.el9.x86_64", "5", "14", "0")),
        ("6.1.0+custom~1", ("6.1.0_custom_1", None, None, None)),
        ("6.6.0+", ("6.6.0", "6", "6", "0")),
        ("x" * 64, (None, None, None, None)),
    ],
)
def test_a_kernel_is_spelled_as_node_feature_discovery_does(kernel, labels):
    """Facts of its source/kernel/version.go; what is too long to be a value has no label."""
    shown = labels_of(survey(), HostRelease(kernel))
    names = ("full", "major", "minor", "revision")
    assert tuple(shown.get(f"{table.KERNEL}.{name}") for name in names) == labels


def test_the_distribution_has_the_operator_s_labels():
    shown = labels_of(survey(device(0)))
    node = placement.policy_node("n", {**shown, "kubernetes.io/arch": "amd64"})
    (group,) = placement.driver_groups([node]).groups
    assert group.tag == "amd64-ubuntu24.04-kver6.8.0-45-generic"
    assert shown[f"{table.RELEASE}.VERSION_ID.minor"] == "04"


def test_without_os_release_its_labels_alone_are_missing():
    shown = labels_of(survey(device(0)), HostRelease("6.8.0"))
    assert not [key for key in shown if key.startswith(table.RELEASE)]
    assert shown[f"{table.KERNEL}.full"] == "6.8.0"
    assert shown[PRESENT] == "true"


def test_a_card_without_a_driver_is_present_and_says_no_more():
    shown = labels_of(survey(functions=(function(0, driver=None, up=False),)))
    assert shown[PRESENT] == "true"
    assert not [key for key in shown if key.startswith("kube-rdma.io/")]


def test_cards_and_gpus_come_before_other_vendors_where_there_are_too_many():
    others = tuple(function(n, vendor=n, up=True) for n in range(1, 30))
    gpu = Gpu(seat(50), 0x030200, 0x10DE, 0x2330, "nvidia")
    shown = labels_of(survey(device(0), functions=(*others, function(0)), gpus=(gpu,)))
    present = [key for key in shown if key.endswith(".present")]
    assert len(present) == MOST_VENDORS
    assert {PRESENT, f"{table.FEATURE}/pci-10de.present"} <= {*present}


def test_what_the_ports_say():
    """Virtual functions are no cards of the node; a port that is down has no rate."""
    virtual = device(3, port(rate=800.0), at=seat(3, physical=PciAddress("0000:00:00.0")))
    gpus = tuple(
        Gpu(seat(40 + n, root), 0x030200, 0x10DE, 0x2330, None)
        for n, root in enumerate(("pci0000:80", "pci0000:c0"))
    )
    devices = (device(0, port(prefix=PREFIX)), device(1, port(PortState.DOWN, 10000.0)), virtual)
    shown = labels_of(survey(*devices, gpus=gpus), modes=frozenset({Mode.SHARED}), rails=2)
    assert {k: v for k, v in shown.items() if k.startswith("kube-rdma.io/")} == {
        table.LINK_LAYER: "infiniband",
        table.RATE: "400",
        table.PORTS: "2",
        table.GPUS_NEAR: "1",
        table.MODE: "shared",
        table.NAMESPACES: "shared",
        table.RAILS: "2",
        table.FABRIC: "fec0000000000001",
    }


def test_several_modes_and_link_layers_are_mixed():
    node = survey(device(0), device(1, port(layer=LinkLayer.ETHERNET)))
    shown = labels_of(node, modes=frozenset({Mode.SHARED, Mode.HCA}))
    assert (shown[table.MODE], shown[table.LINK_LAYER]) == ("mixed", "mixed")


def test_a_rate_is_kept_while_no_port_is_active():
    down = wanted_labels(LabelFacts(survey(device(0, port(PortState.DOWN))), UBUNTU))
    assert table.RATE not in down.labels
    assert down.kept == {table.RATE}
    assert wanted_labels(LabelFacts(survey(), UBUNTU)).kept == frozenset()


def test_what_ports_say_is_kept_while_a_card_is_in_a_pod():
    """Then its function has a driver, and neither interface nor device; not so a virtual one."""
    functions = (function(0), function(1, up=False))
    inside = survey(device(0), functions=functions)
    assert {table.PORTS, table.GPUS_NEAR} <= wanted_labels(LabelFacts(inside, UBUNTU)).kept
    virtual = function(1, up=False, at=seat(1, physical=PciAddress("0000:00:00.0")))
    for other in (function(1), replace(functions[1], driver="vfio-pci"), virtual):
        node = survey(device(0), functions=(functions[0], other))
        assert not wanted_labels(LabelFacts(node, UBUNTU)).kept
