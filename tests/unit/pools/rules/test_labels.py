"""The table of node labels, their values, and whose they are."""

import re
from pathlib import Path

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
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Mode
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.operator.rules import placement
from kube_rdma.pools.rules import labels as table
from kube_rdma.pools.rules.labels import (
    MOST_VENDORS,
    NFD_LIST,
    REMEMBERED,
    TABLE,
    VALUE,
    VENDOR,
    HostRelease,
    LabelFacts,
    WantedLabels,
    is_nfd,
    label_change,
    nfd_labels,
    remembered,
    wanted_labels,
    writes,
)
from tests.kit.policies import agents_keys

ROOT = Path(__file__).parents[4]
KEYS = [row.key.replace(VENDOR, "15b3") for row in TABLE if row.by_agent]
OTHERS = [row.key for row in TABLE if not row.by_agent] + [
    "feature.node.kubernetes.io/pci-15b3.sriov",
    "feature.node.kubernetes.io/pci-15B3.present",
    "feature.node.kubernetes.io/pci-0207_15b3.present",
    "feature.node.kubernetes.io/pci-VENDOR.present",
    "feature.node.kubernetes.io/kernel-versionXfull",
    "example.org/pci-15b3.present",
    "kube-rdma.io/agent",
    "kube-rdma.io/ports-",
    "x.kube-rdma.io/ports",
    "node-role.kubernetes.io/control-plane",
    "",
]


@pytest.mark.parametrize("key", KEYS)
def test_an_agent_may_write_each_of_its_labels(key):
    assert writes(key)
    assert re.search(agents_keys("label")["nodes"], key)


@pytest.mark.parametrize("key", OTHERS)
def test_an_agent_may_write_no_other(key):
    assert not writes(key)
    assert not re.search(agents_keys("label")["nodes"], key)


def test_an_agent_may_remember_them():
    assert re.search(agents_keys("annotation")["nodes"], REMEMBERED)


def test_the_page_shows_the_table():
    """To accept a change of the table, change the page. It has labels of NFD in a sentence."""
    lines = (ROOT / "docs/config.md").read_text().splitlines()
    first = lines.index("| label | values | meaning |") + 2
    own = [row for row in TABLE if not is_nfd(row.key)]
    assert lines[first : first + len(own)] == [
        f"| `{row.key}` | {row.values} | {row.meaning} |" for row in own
    ]
    assert not lines[first + len(own)]
    assert own[-4:] == [row for row in TABLE if not row.by_agent]
    names = (row.key.removeprefix(f"{table.FEATURE}/") for row in TABLE if is_nfd(row.key))
    assert not [name for name in names if f"`{name}`" not in " ".join(lines)]


def test_the_operator_selects_by_labels_of_the_table():
    selected = (
        placement.CARDS_LABEL,
        placement.GPUS_LABEL,
        placement.KERNEL_LABEL,
        placement.DISTRIBUTION_LABEL,
        placement.RELEASE_LABEL,
    )
    assert all(map(writes, selected))


UBUNTU = HostRelease("6.8.0-45-generic", (("ID", "ubuntu"), ("VERSION_ID", "24.04")))
PRESENT = f"{table.FEATURE}/pci-15b3.present"
PREFIX = "fec0:0000:0000:0001"


def position(number, root="pci0000:80", physical=None):
    pci = PciAddress(f"0000:{number:02x}:00.0")
    return PciPosition(pci, root, (pci,), 0, physical_function=physical)


def port(
    state=PortState.ACTIVE, rate=400.0, layer=LinkLayer.INFINIBAND, prefix="fe80:0000:0000:0000"
):
    gid = Gid(0, f"{prefix}:0002:c903:0000:0001", GidType.IB_OR_ROCE_V1, None)
    return Port(1, state, PhysicalState.LINK_UP, layer, rate, None, (gid,))


def device(number, *ports, at=None):
    at = at or position(number)
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
    return Function(at or position(number), vendor, 0x1017, driver, netdevs)


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
    gpu = Gpu(position(50), 0x030200, 0x10DE, 0x2330, "nvidia")
    shown = labels_of(survey(device(0), functions=(*others, function(0)), gpus=(gpu,)))
    present = [key for key in shown if key.endswith(".present")]
    assert len(present) == MOST_VENDORS
    assert {PRESENT, f"{table.FEATURE}/pci-10de.present"} <= {*present}


def test_what_the_ports_say():
    """Virtual functions are no cards of the node; a port that is down has no rate."""
    virtual = device(3, port(rate=800.0), at=position(3, physical=PciAddress("0000:00:00.0")))
    gpus = tuple(
        Gpu(position(40 + n, root), 0x030200, 0x10DE, 0x2330, None)
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
    virtual = function(1, up=False, at=position(1, physical=PciAddress("0000:00:00.0")))
    for other in (function(1), replace(functions[1], driver="vfio-pci"), virtual):
        node = survey(device(0), functions=(functions[0], other))
        assert not wanted_labels(LabelFacts(node, UBUNTU)).kept


VENDOR_LABEL = f"{table.FEATURE}/pci-15b3.present"
KERNEL = f"{table.KERNEL}.full"
OWN_KEYS = (VENDOR_LABEL, KERNEL, table.MODE, table.RATE, "example.org/a", "kube-rdma.io/agent")
VALUES = st.sampled_from(("true", "shared", "6.8.0"))
LABELS = st.dictionaries(st.sampled_from(OWN_KEYS), VALUES)
OURS = LABELS.map(lambda labels: {k: v for k, v in labels.items() if table.writes(k)})


def node(labels, memory=(), nfd=(), **annotations):
    if memory:
        annotations[table.REMEMBERED] = ",".join(f"{k}={v}" for k, v in dict(memory).items())
    if nfd:
        annotations[NFD_LIST] = ",".join(nfd)
    return NodeState(
        "n", labels=tuple(labels.items()), annotations=tuple(sorted(annotations.items()))
    )


def after(before, written):
    if written is None:
        return before

    def merged(pairs, changes):
        both = {**dict(pairs), **changes}
        return tuple(sorted((k, v) for k, v in both.items() if v is not None))

    return NodeState(
        "n",
        labels=merged(before.labels, written.labels),
        annotations=merged(before.annotations, written.annotations),
    )


@given(LABELS, OURS, LABELS, st.frozensets(st.sampled_from(OWN_KEYS)))
def test_what_others_wrote_stays_and_one_patch_is_enough(has, memory, labels, nfd):
    names = [key.removeprefix(f"{table.FEATURE}/") for key in nfd]
    before = node(has, memory, names)
    wanted = WantedLabels(labels, frozenset({table.RATE}))
    now = after(before, label_change(before, wanted))
    ours = {k for k, v in memory.items() if has.get(k) == v} - nfd_labels(before)
    for key, value in has.items():
        assert key in ours or dict(now.labels)[key] == value
    for key in ours - labels.keys() - wanted.kept:
        assert key not in dict(now.labels)
    for key, value in labels.items():
        if table.writes(key) and key not in nfd_labels(before) and key not in has:
            assert dict(now.labels)[key] == value
    assert label_change(now, wanted) is None
    gone = after(now, label_change(now, WantedLabels()))
    assert dict(gone.labels) == {k: v for k, v in has.items() if k not in ours}
    assert table.REMEMBERED not in dict(gone.annotations)


@given(LABELS, OURS, LABELS, st.frozensets(st.sampled_from(OWN_KEYS)))
def test_no_label_of_others_is_written_where_none_is_wanted(has, memory, labels, nfd):
    names = [key.removeprefix(f"{table.FEATURE}/") for key in nfd]
    before = node(has, memory, names)
    now = after(before, label_change(before, WantedLabels(labels, leaves_nfd=True)))
    others = {k: v for k, v in has.items() if not k.startswith("kube-rdma.io/")}
    assert others == {k: v for k, v in now.labels if not k.startswith("kube-rdma.io/")}
    ours = {k for k in others if memory.get(k) == has[k]} - nfd_labels(before)
    assert ours == {k for k in remembered(now) if k in others}
    gone = after(now, label_change(now, WantedLabels()))
    assert ours == others.keys() - dict(gone.labels).keys()


def test_a_label_that_somebody_changed_is_theirs():
    mine = {VENDOR_LABEL: "true"}
    written = label_change(node({VENDOR_LABEL: "false"}, mine), WantedLabels(mine))
    assert (written.labels, written.annotations) == ({}, {table.REMEMBERED: None})


def test_a_label_that_somebody_removed_comes_back():
    mine = {VENDOR_LABEL: "true"}
    assert label_change(node({}, mine), WantedLabels(mine)).labels == mine


def test_node_feature_discovery_takes_a_label_over():
    has = {VENDOR_LABEL: "true"}
    written = label_change(node(has, has, ["pci-15b3.present"]), WantedLabels())
    assert (written.labels, written.annotations) == ({}, {table.REMEMBERED: None})


def test_a_second_instance_of_node_feature_discovery_has_a_list_too():
    lists = {NFD_LIST: "kernel-version.full, example.org/a", f"b.{NFD_LIST}": "pci-15b3.present"}
    assert nfd_labels(node({}, **lists)) == {KERNEL, "example.org/a", VENDOR_LABEL}


def test_what_no_agent_can_have_written_is_not_remembered():
    """The annotation is anybody's to change: it gives no right to labels of others."""
    text = f"node-role.kubernetes.io/worker=a,{VENDOR_LABEL}=true,{KERNEL}=,x,=,{table.MODE}=a b"
    assert remembered(node({}, **{table.REMEMBERED: text})) == {VENDOR_LABEL: "true"}
