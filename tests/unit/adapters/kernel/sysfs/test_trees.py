"""Every tree gives the picture that its SOURCE.md promises."""

from __future__ import annotations

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.link_view import NETLINK_FILE, recorded_links
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.pci import PciTree
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.device import PciAddress
from kube_rdma_lab.native.tree_text import unpack
from tests.unit.adapters.kernel.sysfs.picture import TREES, picture, promised

NAMES = sorted(folder.name for folder in TREES.iterdir())


@pytest.fixture(scope="module")
def surveys(tmp_path_factory):
    """The survey of each tree, by the tree's name."""
    found = {}
    for name in NAMES:
        root = tmp_path_factory.mktemp(name)
        unpack((TREES / name / "tree.txt").read_text(), root)
        found[name] = survey_at(root)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_shows_what_its_source_promises(surveys, name):
    assert picture(surveys[name]) == promised(TREES / name)


@pytest.mark.parametrize("name", NAMES)
def test_an_intact_tree_has_no_faults(surveys, name):
    assert surveys[name].faults == ()


@pytest.mark.parametrize(
    "name", [n for n in NAMES if NETLINK_FILE in (TREES / n / "tree.txt").read_text()]
)
def test_what_sysfs_tells_of_a_port_is_what_netlink_says(name, tmp_path):
    """An uplink is the same by both; sysfs names no interface where netlink has another or none."""
    unpack((TREES / name / "tree.txt").read_text(), tmp_path)
    told = {(d.name, p.number): p.netdev for d in recorded_links(tmp_path).devices for p in d.ports}
    shown = {(d.name, p.number): p.netdev for d in read_survey(tmp_path).devices for p in d.ports}
    assert shown.keys() == told.keys()
    assert {
        port: netdev for port, netdev in shown.items() if netdev not in {None, told[port]}
    } == {}


def test_every_kind_of_card_is_among_the_trees():
    """The set that the survey is held to; a new tree needs no line here."""
    assert {
        "bnxt-re",
        "dgx-like",
        "efa",
        "irdma-iwarp",
        "mlx5-bond",
        "mlx5-dual-port",
        "mlx5-ib-pf-vfs",
        "mlx5-subfunction",
        "rxe-two",
    } <= set(NAMES)


def test_a_virtual_function_without_a_device_is_seen_through_its_physical_one(surveys):
    survey = surveys["mlx5-ib-pf-vfs"]
    physical = survey.devices[0].position
    with_device = {device.pci for device in survey.devices}
    assert PciAddress("0000:41:00.5") in set(physical.virtual_functions) - with_device


def test_a_gpu_and_a_card_of_one_switch_have_it_in_common(surveys):
    survey = surveys["dgx-like"]
    assert (len(survey.devices), len(survey.gpus)) == (8, 8)
    for device, gpu in zip(survey.devices, survey.gpus, strict=True):
        common = [a for a, b in zip(device.position.path, gpu.position.path, strict=True) if a == b]
        assert len(common) == 2  # the root port and the upper side of the switch
        assert device.numa_node == gpu.position.numa_node


def test_the_recorded_igb_card_and_its_functions_name_each_other(tmp_path):
    """A card without an RDMA device is in no survey; its position is read all the same."""
    unpack((TREES / "lab-node" / "tree.txt").read_text(), tmp_path)
    tree = SysfsTree(tmp_path)
    pci = PciTree(tree)
    card = pci.position("devices/pci0000:40/0000:40:02.0/0000:46:00.0")
    functions = [f"0000:46:10.{number}" for number in (0, 2, 4, 6)]
    assert (list(card.virtual_functions), card.sriov_total) == (functions, 7)
    for function in functions:
        position = pci.position(f"devices/pci0000:40/0000:40:02.0/{function}")
        assert (position.physical_function, position.numa_node) == (card.pci, 1)
    pci.check_relations()
    assert tree.faults == []


@pytest.mark.parametrize("name", NAMES)
def test_a_brief_survey_differs_in_nothing_but_the_length_of_gid_tables(surveys, name, tmp_path):
    """What health and pools are made of is the same; a table with entries keeps one."""
    unpack((TREES / name / "tree.txt").read_text(), tmp_path)
    brief, whole = read_survey(tmp_path, brief=True), read_survey(tmp_path)
    for short, full in zip(brief.devices, whole.devices, strict=True):
        assert [bool(p.gids) for p in short.ports] == [bool(p.gids) for p in full.ports]
        ports = tuple(replace(p, gids=()) for p in short.ports)
        assert replace(short, ports=ports) == replace(
            full, ports=tuple(replace(p, gids=()) for p in full.ports)
        )
    assert (brief.functions, brief.faults) == (whole.functions, whole.faults)
