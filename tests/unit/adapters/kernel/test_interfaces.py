"""Which interface belongs to which RDMA device and port, by sysfs and by RDMA netlink."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.adapters.kernel import link_view
from kube_rdma.adapters.kernel.interfaces import as_named, is_representor, of_ports
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.attach.rules.placement import link_of
from kube_rdma.attach.rules.settings import known_devices, settings_files
from kube_rdma.hardware.machines import machine
from kube_rdma.hardware.machines import text_of as machine_text
from kube_rdma.hardware.rules.node_picture import node_topology
from kube_rdma.hardware.views.topology import topology_svg
from kube_rdma.model.attach.attachment import HostLink, HostNetwork
from kube_rdma.model.card import Netdev
from kube_rdma.model.device import CharKind, Gid, GidType, LinkLayer, PhysicalState, Port, PortState
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.allocation import grant
from kube_rdma.pools.rules.condition import CardsState
from kube_rdma.pools.rules.discovery import judge, notes
from kube_rdma.pools.rules.labels import LabelFacts, wanted_labels
from kube_rdma.pools.rules.node_health import NodeFacts, evaluate, node_cards
from kube_rdma.reports.rules.node_report import AgentLook, node_report

ROOT = Path(__file__).parents[3]
CASES = ROOT / "data/cases"
PORT = Port(1, PortState.ACTIVE, PhysicalState.LINK_UP, LinkLayer.ETHERNET, 100.0, None, ())


def case(path: str) -> Survey:
    return read_survey(RecordedText(path, (CASES / f"{path}.txt").read_text()))


def netdev(name: str, *, representor: bool = False, up: bool = True, **more: object) -> Netdev:
    return replace(Netdev(name, "ether", up, up, representor=representor), **more)


def ports(*active: bool) -> list[Port]:
    states = [PortState.ACTIVE if is_up else PortState.DOWN for is_up in active]
    return [replace(PORT, number=at, state=state) for at, state in enumerate(states, 1)]


def names(found: dict[int, Netdev]) -> dict[int, str]:
    return {number: one.name for number, one in found.items()}


def placed(ports, beside, merged, dev_port) -> dict[int, Netdev]:
    """As the survey asks: representors show switchdev mode."""
    mode = any(one.representor for one in beside)
    return of_ports(ports, beside, merged, dev_port, switchdev=mode)


def at_zero(_: str) -> int:
    return 0


@pytest.mark.parametrize("name", ["pf0vf0", "pf1vf12", "pf0sf88", "pf0", "pf0hpf", "c1pf0vf3"])
def test_a_function_behind_the_switch_has_a_representor(name):
    assert is_representor(name, None)


@pytest.mark.parametrize("name", ["p0", "p0s1", "", None, "pf", "xpf0vf0", "pf0vf", "0"])
def test_a_physical_port_is_no_representor(name):
    assert not is_representor(name, None)


def test_a_bare_number_is_a_representor_where_the_interface_is_of_a_switch():
    """As mlx5 called them before Linux 5.1."""
    assert is_representor("0", "501c0a0003f6ceb8")
    assert not is_representor("p0", "501c0a0003f6ceb8")


def test_one_port_has_the_uplink_and_its_gids_name_the_right_one():
    """An IPoIB child or a representor may come first by name."""
    beside = [netdev("a_child"), netdev("ens1f0np0"), netdev("eth0", representor=True)]
    assert names(placed([PORT], beside, [], at_zero)) == {1: "a_child"}
    gid = Gid(0, "fe80", GidType.ROCE_V2, "ens1f0np0")
    assert names(placed([replace(PORT, gids=(gid,))], beside, [], at_zero)) == {1: "ens1f0np0"}
    assert placed([PORT], beside[2:], [], at_zero) == {}


UPLINK, BEHIND = netdev("p0"), netdev("pf0vf0", representor=True)


@pytest.mark.parametrize(
    ("state", "uplink", "others", "found"),
    [
        # Its own vport, a virtual function, the uplink; the last is it in newer kernels.
        ((False, True, True), UPLINK, [], {3: "p0"}),
        ((True, True, True), UPLINK, [], {3: "p0"}),
        # Before Linux 5.9 the first: its state is that of the uplink's carrier, the last's is not.
        ((True, False, False), UPLINK, [], {1: "p0"}),
        ((False, True, True), netdev("p0", up=False), [], {1: "p0"}),
        ((True, True, False), netdev("p0", up=False), [], {3: "p0"}),
        # A multiport eswitch: all vports of each function; VF-LAG: without further uplinks.
        ((False, True, True) * 2, UPLINK, [netdev("p1")], {3: "p0", 6: "p1"}),
        ((False, True, True, False, True), UPLINK, [netdev("p1")], {3: "p0"}),
    ],
)
def test_the_uplink_is_the_last_vport_of_its_function(state, uplink, others, found):
    assert names(placed(ports(*state), [uplink, BEHIND], others, at_zero)) == found


@given(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=6),
    st.integers(0, 3),
)
def test_a_port_gets_no_representor_and_no_interface_twice(states, beside, merged):
    own = [netdev(f"n{at}", representor=behind) for at, (behind, _) in enumerate(beside)]
    places = {f"n{at}": port for at, (_, port) in enumerate(beside)}
    others = [netdev(f"m{at}") for at in range(merged)]
    found = placed(ports(*states), own, others, lambda name: places.get(name, 0))
    assert not any(one.representor for one in found.values())
    assert len(set(names(found).values())) == len(found)
    assert found.keys() <= set(range(1, len(states) + 1))


def device_on(port: Port):
    (device, *_) = read_survey(machine("mlx5-dual-port")).devices
    return replace(device, ports=(port,))


@pytest.mark.parametrize("named", ["bond0", "ens1f1np1"])
def test_a_bond_that_netlink_names_keeps_the_interface(named):
    """Of a bond it names the bond itself or the slave that is active, of the other function too."""
    known = {name: netdev(name, master="bond0", bonded=True) for name in ("ens1f0np0", "ens1f1np1")}
    port = replace(PORT, netdev="ens1f0np0", bond="bond0")
    assert as_named(device_on(port), {1: named}, known) == (port,)


def test_a_bond_that_sysfs_did_not_show_is_that_of_the_named_interface():
    known = {"ens1f0np0": netdev("ens1f0np0", master="bond0", bonded=True)}
    (port,) = as_named(device_on(replace(PORT, netdev="old")), {1: "ens1f0np0"}, known)
    assert (port.netdev, port.bond) == ("ens1f0np0", "bond0")


def test_an_interface_that_netlink_gives_to_another_port_is_taken_from_this_one():
    device = replace(
        device_on(PORT),
        switchdev=True,
        ports=(replace(PORT, netdev=None), replace(PORT, number=2, netdev="p0")),
    )
    first, second = as_named(device, {1: "p0"}, {"p0": UPLINK})
    assert [(one.netdev, one.representor) for one in (first, second)] == [
        ("p0", False),
        (None, True),
    ]


def test_a_bridge_or_vrf_of_both_interfaces_says_nothing_of_their_ports():
    """All of a node's cards may be in one VRF, and representors are in a bridge with the uplink."""
    known = {name: netdev(name, master="vrf-rdma") for name in ("p0", "p1")}
    (port,) = as_named(device_on(replace(PORT, netdev="p0")), {1: "p1"}, known)
    assert (port.netdev, port.bond) == ("p1", None)


# Case 01: an XDR card's device for the subnet manager.


def smi_view(survey: Survey, *, smi: bool) -> link_view.LinkView:
    devices = (*survey.devices, *survey.management)
    links = (
        link_view.LinkDevice(at, one.name, None, smi=smi and one.name == "smi1")
        for at, one in enumerate(devices)
    )
    return link_view.LinkView(tuple(links), NamespaceMode.SHARED)


def test_a_device_of_the_subnet_manager_is_none_that_programs_open():
    survey = case("01-xdr-smi-device/tree")
    assert [one.name for one in survey.devices] == ["mlx5_0"]
    assert [one.name for one in survey.management] == ["smi1"]
    (card,) = node_cards(survey)
    assert (card.name, card.usable) == ("mlx5_0", True)
    assert "NCCL_IB_HCA==mlx5_0:1\n" in settings_files(known_devices([card]))["nccl.conf"]
    assert notes(survey) == ("smi1 is for the subnet manager alone, so no program opens it",)


@pytest.mark.parametrize("smi", [True, False])
def test_netlink_knows_it_by_its_type_and_its_silence_changes_nothing(smi):
    """Linux before 6.11 tells no type."""
    survey = case("01-xdr-smi-device/tree")
    merged = link_view.merge(survey, smi_view(survey, smi=smi))
    assert [one.name for one in merged.management] == ["smi1"]
    assert merged.faults == ()


def test_where_no_module_gives_uverbs_netlink_alone_knows_it():
    survey = case("01-xdr-smi-device/tree")
    every = tuple(
        replace(
            one, char_devices=tuple(c for c in one.char_devices if c.kind is not CharKind.UVERBS)
        )
        for one in (*survey.devices, *survey.management)
    )
    bare = replace(survey, devices=every, management=())
    merged = link_view.merge(bare, smi_view(bare, smi=True))
    assert [one.name for one in merged.devices] == ["mlx5_0"]
    assert [one.name for one in merged.management] == ["smi1"]


def test_a_share_that_opens_umad_has_the_files_of_the_subnet_manager_s_device():
    """A pod that runs a subnet manager needs the planes."""
    survey = case("01-xdr-smi-device/tree")
    spec = PoolSpec("rdma/sm", Mode.HCA, "a test", device_files=(CharKind.UMAD, CharKind.ISSM))
    (pool,) = evaluate(NodeFacts(survey, node_cards(survey), (spec,))).pools
    given = grant(pool, pool.shares[:1])
    assert {"/dev/infiniband/umad0", "/dev/infiniband/umad4", "/dev/infiniband/issm1"} <= set(
        given.char_paths
    )


# Cases 05 and 06: switchdev mode, without and with a bond.


def test_in_switchdev_mode_the_reason_is_the_mode_and_names_no_interface():
    card, virtual = judge(case("05-switchdev-pf-without-gids/tree"))
    assert card.device.ports[0].netdev == "ens1f1np1"
    (reason,) = card.reasons
    assert "switchdev mode, where RoCE is on virtual functions" in reason
    assert "ens1f1" not in reason
    assert virtual.usable


def test_ports_of_representors_are_not_told_to_get_addresses():
    survey = case("05-switchdev-pf-without-gids/tree-uplink-down")
    (card,) = judge(survey)
    assert [port.netdev for port in card.device.ports] == ["ens1f0np0", None, None]
    assert card.reasons == (
        "no port is ACTIVE; port 1 is DOWN (Disabled): ip link set ens1f0np0 up",
    )


def test_the_uplink_alone_tells_the_mode_where_no_representor_is_to_be_seen():
    """As before the virtual functions are made: mlx5 has a port for each that there may be."""
    lines = (ROOT / "data/trees/cx5-dual/tree.txt").read_text().splitlines()
    text = "\n".join(one for one in lines if not re.search(r"ens1f\dnp\dr\d", one))
    for verdict in judge(read_survey(RecordedText("tree", f"{text}\n")))[:2]:
        assert [port.representor for port in verdict.device.ports] == [True, True, True, False]
        assert verdict.device.ports[3].netdev in ("ens1f0np0", "ens1f1np1")
        (reason,) = verdict.reasons
        assert "switchdev mode, where RoCE is on virtual functions" in reason


def test_a_representor_that_netlink_names_is_no_interface_of_the_card():
    """It names those of all ports, the uplink's last (mlx5_ib_vport_rep_load)."""
    survey = read_survey(machine("cx5-dual"))
    netdevs = ["ens1f0np0r0", "ens1f0np0r1", None, "ens1f0np0"]
    answers = (link_view.LinkPort(at, None, None, name) for at, name in enumerate(netdevs, 1))
    link = link_view.LinkDevice(0, "mlx5_0", None, tuple(answers))
    survey = link_view.merge(survey, link_view.LinkView((link,), NamespaceMode.SHARED))
    cards = node_cards(survey)
    assert [port.netdev for port in cards[0].devices[0].ports] == netdevs
    links = (HostLink(1, name, 1500, "", True, None, "ether") for name in netdevs if name)
    found = link_of(cards[0], HostNetwork(tuple(links), NamespaceMode.SHARED))
    assert found.name == "ens1f0np0"
    verdict = evaluate(NodeFacts(survey, cards, (PoolSpec("rdma/hca", Mode.HCA, "a test"),)))
    (reported, *_) = node_report(AgentLook("1", survey, verdict, CardsState())).cards
    assert [(port.number, port.netdev) for port in reported.ports] == [(4, "ens1f0np0")]
    assert wanted_labels(LabelFacts(survey)).labels["kube-rdma.io/ports"] == "2"
    picture = topology_svg(node_topology(survey), "a")
    assert "on ens1f0np0<" in picture
    assert "ens1f0np0r" not in picture


@pytest.mark.parametrize(
    ("tree", "uplink"), [("tree", "enp7s0f0np0"), ("tree-renamed-uplink", "rdma0")]
)
@pytest.mark.parametrize("named", [None, "uplink", "bond0"])
def test_under_vf_lag_the_port_has_the_uplink_and_the_bond(tree, uplink, named):
    survey = case(f"06-vf-lag-representor/{tree}")
    if named:
        port = link_view.LinkPort(1, None, None, uplink if named == "uplink" else named)
        view = link_view.LinkView(
            (link_view.LinkDevice(0, "mlx5_bond_0", None, (port,)),), NamespaceMode.SHARED
        )
        survey = link_view.merge(survey, view)
    (device,) = survey.devices
    assert [(port.netdev, port.bond) for port in device.ports] == [(uplink, "bond0")]


SECOND_PORT = """
[devices/pci0000:00/0000:00:03.1/0000:07:00.3/infiniband/mlx5_1/ports/2]
state: 4: ACTIVE
phys_state: 5: LinkUp
link_layer: Ethernet
rate: 100 Gb/sec (4X EDR)
/class/net/rep0 -> /devices/pci0000:00/0000:00:03.1/0000:07:00.3/net/rep0
[devices/pci0000:00/0000:00:03.1/0000:07:00.3/net/rep0]
type: 1
phys_port_name: pf0vf9
"""


def test_a_virtual_function_never_has_the_uplinks_of_its_card():
    """Those of functions without an RDMA device are its physical function's, in VF-LAG."""
    text = machine_text("mlx5-vf-lag") + SECOND_PORT
    survey = read_survey(RecordedText("x", text))
    device = next(one for one in survey.devices if one.name == "mlx5_1")
    assert len(device.ports) == 2
    assert {port.netdev for port in device.ports} <= {"enp7s0f0v1", None}
