"""Network functions of a tree, and which of them the node itself is reached through."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.link_view import ROUTES_FILE, merge_holders, merge_routes
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.survey import Fault
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.tree import write_tree

TREES = Path(__file__).parents[4] / "data/trees"
PF, VF0, VF1 = (PciAddress(f"0000:81:00.{number}") for number in (0, 2, 3))
BUS = "devices/pci0000:80/0000:80:01.0"


def position(pci, **more):
    return PciPosition(pci, "pci0000:80", (PciAddress("0000:80:01.0"), pci), 1, **more)


ETH = Netdev("eth0", "ether", up=True, carrier=True)
CARD = Function(
    position(PF, virtual_functions=(VF0, VF1), sriov_total=8),
    0x15B3,
    0x101D,
    "mlx5_core",
    (ETH,),
    7,
)
VIRTUAL = tuple(
    Function(position(pci, physical_function=PF), 0x15B3, 0x101E, "mlx5_core", vf_index=number)
    for number, pci in enumerate((VF0, VF1))
)


@pytest.fixture
def root(tmp_path):
    write_tree(tmp_path, [], functions=[CARD, *VIRTUAL])
    return tmp_path


def tree(name, root):
    unpack((TREES / name / "tree.txt").read_text(), root)
    return root


def by_address(survey):
    return {function.position.pci: function for function in survey.functions}


def test_a_virtual_function_is_bound_to_its_own_driver(root):
    (root / f"{BUS}/{VF1}/driver").unlink()
    survey = read_survey(root)
    assert (by_address(survey)[VF0].driver, by_address(survey)[VF1].driver) == ("mlx5_core", None)
    assert survey.faults == ()


def test_a_function_without_vendor_is_a_fault_and_no_function(root):
    (root / f"{BUS}/{PF}/vendor").unlink()
    survey = read_survey(root)
    assert PF not in by_address(survey)
    assert [fault.path for fault in survey.faults] == [f"{BUS}/{PF}/vendor"]


@pytest.mark.parametrize(
    ("file", "text"), [("acpi_index", "-1"), ("net/eth0/flags", "up"), ("net/eth0/carrier", "2")]
)
def test_a_garbled_file_is_a_fault_that_names_it(root, file, text):
    (root / f"{BUS}/{PF}/{file}").write_text(f"{text}\n")
    survey = read_survey(root)
    assert [fault.path.rpartition("/")[2] for fault in survey.faults] == [file.rpartition("/")[2]]
    assert len(survey.functions) == 3


def test_a_tree_without_flags_tells_by_the_carrier_that_an_interface_is_up(root):
    for name in ("flags", "acpi_index"):
        (root / f"{BUS}/{PF}").joinpath(
            name if name == "acpi_index" else f"net/eth0/{name}"
        ).unlink()
    assert by_address(read_survey(root))[PF] == replace(CARD, acpi_index=None)
    (root / f"{BUS}/{PF}/net/eth0/carrier").unlink()
    (netdev,) = by_address(read_survey(root))[PF].netdevs
    assert (netdev.up, netdev.carrier) == (False, None)


def test_a_function_that_is_found_before_its_card_has_its_number(root):
    """Nothing forbids a virtual function an address below that of its card."""
    low = PciAddress("0000:80:00.7")
    (root / f"{BUS}/{PF}/virtfn1").unlink()
    (root / f"{BUS}/{PF}/virtfn1").symlink_to(f"../{low}")
    (root / f"{BUS}/{VF1}").rename(root / f"{BUS}/{low}")
    (root / f"bus/pci/devices/{VF1}").unlink()
    (root / f"bus/pci/devices/{low}").symlink_to(f"../../../{BUS}/{low}")
    for file, text in (("class", "0x020000"), ("vendor", "0x15b3"), ("device", "0x101e")):
        (root / f"{BUS}/{low}/{file}").write_text(f"{text}\n")
    assert by_address(read_survey(root))[low].vf_index == 1


def test_the_interface_of_a_virtio_card_lies_below_its_virtio_device(tmp_path):
    functions = by_address(read_survey(tree("lab-node", tmp_path)))
    assert [n.name for n in functions["0000:25:00.0"].netdevs] == ["ens2f0"]


def test_the_interface_of_a_subfunction_is_not_its_cards(tmp_path):
    survey = read_survey(tree("mlx5-subfunction", tmp_path))
    part = next(device for device in survey.devices if device.subfunction is not None)
    names = [n.name for function in survey.functions for n in function.netdevs]
    assert part.ports[0].netdev not in names


def test_a_partition_key_belongs_to_infiniband_and_may_be_missing(tmp_path):
    root = tree("mlx5-ib-pf-vfs", tmp_path)
    assert {d.ports[0].pkey for d in read_survey(root).devices} == {None}
    keys = root / "class/infiniband/mlx5_2/ports/1/pkeys"
    keys.mkdir()
    (keys / "0").write_text("0x8001\n")
    survey = read_survey(root)
    assert [d.ports[0].pkey for d in survey.devices] == [None, None, 0x8001, None]
    assert survey.faults == ()
    (keys / "0").write_text("8001\n")
    assert [f.path for f in read_survey(root).faults] == ["class/infiniband/mlx5_2/ports/1/pkeys/0"]


def test_a_soft_device_on_a_vlan_sits_on_the_only_function_below(tmp_path):
    root = tree("rxe-two", tmp_path)
    vlan = root / "devices/virtual/net/eth0.5"
    vlan.mkdir(parents=True)
    (root / "class/net/eth0.5").symlink_to("../../devices/virtual/net/eth0.5")
    (vlan / "lower_eth0").symlink_to("../../../pci0000:00/0000:00:03.0/virtio0/net/eth0")
    (root / "devices/virtual/infiniband/rxe0/parent").write_text("eth0.5\n")
    device = read_survey(root).devices[0]
    assert (device.identity, device.pci, device.position.pci) == (
        "rxe0@eth0.5",
        None,
        "0000:00:03.0",
    )
    (vlan / "lower_eth1").symlink_to("../../../../class/net/eth1")
    assert read_survey(root).devices[0].position is None


def routed(survey):
    return {n.name for f in survey.functions for n in f.netdevs if n.default_route}


def test_a_default_route_over_a_bond_counts_for_every_slave(tmp_path):
    root = tree("mlx5-bond", tmp_path)
    survey = read_survey(root)
    assert routed(merge_routes(survey, root, ["bond0"])) == {"ens1f0np0", "ens1f1np1"}
    assert merge_routes(survey, root, ["lo"]).functions == survey.functions
    both = {"ens1f0np0", "ens1f1np1"}
    assert merge_routes(survey, root, ["bond0"]).routed == ("bond0", *sorted(both))


def test_an_address_of_the_node_on_a_bond_counts_for_every_slave(tmp_path):
    root = tree("mlx5-bond", tmp_path)
    survey = merge_holders(read_survey(root), root, {"bond0": "the node's InternalIP 10.1.0.5"})
    netdevs = [netdev for function in survey.functions for netdev in function.netdevs]
    needed = {netdev.name for netdev in netdevs if netdev.needed}
    assert needed == {"ens1f0np0", "ens1f1np1"} == {one.name for one in netdevs if one.vital}
    assert survey.routed == ("bond0", *sorted(needed))


def test_interfaces_that_stand_on_each_other_in_a_circle_end(tmp_path):
    root = tree("mlx5-bond", tmp_path)
    (root / "class/net/ens1f0np0/lower_bond0").symlink_to("nowhere")
    assert "ens1f0np0" in routed(merge_routes(read_survey(root), root, ["ens1f0np0"]))


def test_a_route_over_an_interface_that_does_not_show_is_a_fault(root):
    (fault,) = merge_routes(read_survey(root), root, ["eth9"]).faults
    assert fault.path == "class/net/eth9"
    assert "another network namespace" in fault.reason


def test_a_recorded_tree_says_which_card_has_the_default_route(tmp_path):
    card = replace(CARD, netdevs=(replace(ETH, default_route=True),))
    write_tree(tmp_path, [], functions=[card, *VIRTUAL])
    assert survey_at(tmp_path).functions == (card, *VIRTUAL)


def test_routes_that_could_not_be_asked_for_are_a_fault(root):
    """Then nobody knows whether the node needs a card, and none is moved away from it."""
    (root / ROUTES_FILE).write_text('{"unavailable": "no routing netlink"}')
    survey = survey_at(root)
    assert survey.faults == (Fault("default routes", "no routing netlink"),)
    netdevs = [netdev for function in survey.functions for netdev in function.netdevs]
    assert netdevs
    assert all(netdev.default_route is None for netdev in netdevs)


def test_an_interface_that_moves_into_a_pod_while_it_is_read_is_no_fault(root):
    class Moving(SysfsTree):
        """eth0 is gone after its place was found; what is left of its files cannot be read."""

        def text(self, path, *, required=True):
            if path == "class/net/eth0/carrier":
                (root / "class/net/eth0").unlink()
                self.blame(path, "No such device")
            return super().text(path, required=required)

    survey = read_survey(Moving(root))
    assert (by_address(survey)[PF].netdevs, survey.faults) == ((), ())


def netdev(**changes):
    return replace(CARD, netdevs=(replace(ETH, **changes),))


IMPOSSIBLE = {
    "have 16 bits": [replace(CARD, vendor=1 << 16), *VIRTUAL],
    "has 32 bits": [replace(CARD, acpi_index=-1), *VIRTUAL],
    "comes with a driver": [replace(CARD, driver=None), *VIRTUAL],
    "by name": [replace(CARD, netdevs=(ETH, replace(ETH, name="eno1"))), *VIRTUAL],
    "is not a name of an interface": [netdev(name="a/b"), *VIRTUAL],
    "no link type": [netdev(link_type="wifi"), *VIRTUAL],
    "exactly when it is up": [netdev(up=False), *VIRTUAL],
    "routes go with the interface": [netdev(up=False, carrier=None, default_route=True), *VIRTUAL],
    "is of class 02 as well": [CARD, VIRTUAL[0]],
    "its card 0000:81:00.0 is of class 02": list(VIRTUAL),
    "one device id": [CARD, VIRTUAL[0], replace(VIRTUAL[1], device=1)],
    "it is number 1": [CARD, VIRTUAL[0], replace(VIRTUAL[1], vf_index=0)],
    "only virtual functions are numbered": [replace(CARD, vf_index=0), *VIRTUAL],
    "numbers no virtual functions": [CARD, VIRTUAL[0], replace(VIRTUAL[1], acpi_index=1)],
    "by address": [*VIRTUAL, CARD],
    "is there 2 times": [CARD, replace(VIRTUAL[0], netdevs=(ETH,)), VIRTUAL[1]],
}


@pytest.mark.parametrize("sentence", IMPOSSIBLE)
def test_an_impossible_function_is_refused_with_the_reason(tmp_path, sentence):
    with pytest.raises(ValueError, match=sentence):
        write_tree(tmp_path / "fake", [], functions=IMPOSSIBLE[sentence])


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("has other interfaces", {"netdevs": ()}),
        ("has the driver igb", {"driver": "igb"}),
        ("no interfaces beside", {"more": "zzz"}),
        ("of another link layer", {"link_type": "infiniband"}),
    ],
)
def test_a_device_and_its_function_agree(tmp_path, sentence, changes):
    survey = read_survey(tree("mlx5-dual-port", tmp_path / "tree"))
    device = survey.devices[0]
    position = device.position
    mine = Netdev(device.ports[0].netdev, changes.pop("link_type", "ether"), True, True)
    more = (replace(mine, name=changes.pop("more")),) if "more" in changes else ()
    function = Function(position, 0x15B3, 0x1017, device.driver, (mine, *more))
    with pytest.raises(ValueError, match=sentence):
        write_tree(tmp_path / "fake", [device], functions=[replace(function, **changes)])


def test_a_fast_path_of_a_virtual_machine_is_told_from_a_port_of_a_bridge(tmp_path):
    """Azure's virtual functions look like whole cards: only their master tells."""
    below = Netdev("enp1", "ether", up=True, carrier=True, master="eth0", fast_path=True)
    bridged = replace(below, name="enp2", master="br0", fast_path=False)
    cards = [
        Function(position(pci), 0x15B3, 0x101A, "mlx5_core", (netdev,))
        for pci, netdev in ((PF, below), (VF0, bridged))
    ]
    write_tree(tmp_path, [], functions=cards)
    survey = read_survey(tmp_path)
    assert [one.netdevs for one in survey.functions] == [(below,), (bridged,)]
    assert survey.faults == ()
