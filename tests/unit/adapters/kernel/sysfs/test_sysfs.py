"""Reading a sysfs tree: what is there is told as it is, what is wrong is told as a fault."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.pod.namespaces import make_namespace
from kube_rdma.adapters.kernel.sysfs.devices import read_devices, read_survey
from kube_rdma.adapters.kernel.sysfs.pod import sysfs_inside
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.device import CharKind, LinkLayer
from kube_rdma.model.survey import Fault, NamespaceMode, Survey
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.tree import Damage, damaged, remove_device, write_tree
from tests.unit.adapters.kernel.sysfs.worlds import RDMA_CM, functions, gpus, worlds

TREES = Path(__file__).parents[4] / "data/trees"
IB = "class/infiniband/mlx5_1"
FUNCTION = "devices/pci0000:80/0000:80:01.1/0000:81:00.1"

# Files that say something on every kernel, and files that may be silent.
REQUIRED = (
    f"{IB}/node_guid",
    f"{IB}/node_type",
    f"{IB}/ports/1/state",
    f"{IB}/ports/1/phys_state",
    f"{IB}/ports/1/link_layer",
    f"{IB}/ports/1/gid_attrs/types/0",
    "class/infiniband_verbs/uverbs1/ibdev",
    "class/infiniband_verbs/uverbs1/dev",
    "class/infiniband_mad/umad1/ibdev",
    "class/infiniband_mad/issm1/dev",
    "class/misc/rdma_cm/dev",
)
OPTIONAL = (
    f"{IB}/fw_ver",
    f"{IB}/ports/1/rate",
    f"{IB}/ports/1/gid_attrs/ndevs/0",
    f"{FUNCTION}/numa_node",
    "class/infiniband_verbs/uverbs1/uevent",
    "class/misc/rdma_cm/uevent",
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """A tree for tests that leave it as it was."""
    root = tmp_path_factory.mktemp("intact")
    unpack((TREES / "mlx5-dual-port/tree.txt").read_text(), root)
    return root


@pytest.fixture
def mlx5(tmp_path):
    unpack((TREES / "mlx5-dual-port/tree.txt").read_text(), tmp_path)
    return tmp_path


@pytest.fixture
def rxe(tmp_path):
    unpack((TREES / "rxe-two/tree.txt").read_text(), tmp_path)
    return tmp_path


@settings(max_examples=settings().max_examples * 3 // 5)
@given(
    devices=worlds(), rdma_cm=st.sampled_from([None, RDMA_CM]), accelerators=gpus(), data=st.data()
)
def test_what_the_kernel_shows_is_read_back_unchanged(devices, rdma_cm, accelerators, data):
    cards = data.draw(functions(devices))
    there = Survey(devices, rdma_cm, NamespaceMode.UNKNOWN, (), accelerators, cards)
    with TemporaryDirectory() as root:
        write_tree(Path(root), devices, rdma_cm, accelerators, cards)
        assert read_survey(Path(root)) == there


def test_a_recorded_tree_tells_pci_numa_driver_interface_and_nodes(mlx5):
    survey = read_survey(mlx5)
    card = survey.devices[0]
    assert (card.name, card.identity, card.pci) == ("mlx5_0", "0000:81:00.0", "0000:81:00.0")
    assert (card.numa_node, card.driver, card.firmware) == (1, "mlx5_core", "16.35.4506")
    assert card.ports[0].netdev == "enp129s0f0np0"
    assert [gid.index for gid in card.ports[0].gids] == [0, 1, 2, 3, 5]
    assert [c.path.rpartition("/")[2] for c in card.char_devices] == ["uverbs0", "issm0", "umad0"]
    assert survey.rdma_cm == RDMA_CM
    assert survey.faults == ()


def test_a_soft_link_takes_identity_and_numa_node_from_its_interface(rxe):
    devices = read_survey(rxe).devices
    assert [(d.identity, d.numa_node) for d in devices] == [("rxe0@eth0", 0), ("rxe1@eth1", 1)]
    assert all(d.pci is None and d.driver is None for d in devices)


def test_a_soft_link_beside_its_card_stays_a_soft_link(rxe):
    """Before Linux 5.11 rxe's device link pointed at the card of its interface."""
    link = rxe / "devices/virtual/infiniband/rxe0/device"
    link.symlink_to("../../../pci0000:00/0000:00:03.0")
    assert read_survey(rxe).devices[0].identity == "rxe0@eth0"


def test_siw_is_known_by_the_interface_that_its_gid_names(rxe):
    (rxe / "devices/virtual/infiniband/rxe0/parent").unlink()
    device = read_survey(rxe).devices[0]
    assert (device.identity, device.ports[0].netdev, device.numa_node) == ("rxe0@eth0", "eth0", 0)


def test_a_node_without_rdma_has_no_devices_and_no_faults(tmp_path):
    (tmp_path / "class/net").mkdir(parents=True)
    assert read_survey(tmp_path) == Survey((), None, NamespaceMode.UNKNOWN)


@pytest.mark.parametrize("how", Damage)
@pytest.mark.parametrize("path", REQUIRED)
def test_a_broken_file_is_a_fault_that_names_it(intact, path, how):
    with damaged(intact, path, how):
        assert path in [fault.path for fault in read_survey(intact).faults]


@pytest.mark.parametrize("how", Damage)
@pytest.mark.parametrize("path", OPTIONAL)
def test_a_file_that_may_be_silent_is_a_fault_only_when_garbled(intact, path, how):
    silent = how in {Damage.DELETED, Damage.EMPTY}
    with damaged(intact, path, how):
        assert [f.path for f in read_survey(intact).faults] == ([] if silent else [path])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{IB}/node_guid", "b8ce"),
        (f"{IB}/node_type", "CA"),
        (f"{IB}/ports/1/state", "9: BANANA"),
        (f"{IB}/ports/1/rate", "fast"),
        (f"{IB}/ports/1/gids/0", "fe80::1"),
        (f"{IB}/ports/1/gid_attrs/types/0", "RoCE v3"),
        (f"{IB}/ports/1/gid_attrs/ndevs/0", "../../etc"),
        (f"{FUNCTION}/numa_node", "left"),
        ("class/infiniband_verbs/uverbs1/ibdev", "mlx5_7"),
        ("class/misc/rdma_cm/dev", "10"),
    ],
)
def test_a_word_that_the_kernel_does_not_have_is_a_fault(intact, path, text):
    with damaged(intact, path, Damage.EMPTY):
        (intact / path).write_text(f"{text}\n")
        (fault,) = read_survey(intact).faults
    assert fault.path == path
    assert text.split()[-1] in fault.reason


@settings(max_examples=settings().max_examples * 4 // 5)
@given(data=st.data(), how=st.sampled_from(Damage))
def test_damage_to_one_function_never_raises_nor_touches_the_other(intact, data, how):
    other = read_survey(intact).devices[0]
    files = sorted(p for p in (intact / FUNCTION).rglob("*") if p.is_file())
    few = [p for p in files if p.parent.name != "gids" or p.name in {"0", "9"}]
    broken = str(data.draw(st.sampled_from(few)).relative_to(intact))
    with damaged(intact, broken, how):
        assert read_survey(intact).devices[0] == other


def test_a_device_that_vanishes_while_it_is_read_is_one_fault(mlx5):
    class Unplugged(SysfsTree):
        """mlx5_1 is gone after its first port attribute was read."""

        def text(self, path, *, required=True):
            text = super().text(path, required=required)
            if path == f"{IB}/ports/1/state":
                remove_device(mlx5, "mlx5_1")
            return text

    survey = read_survey(Unplugged(mlx5))
    assert [d.name for d in survey.devices] == ["mlx5_0"]
    assert survey.faults == (Fault(IB, "vanished while it was being read"),)


def test_a_link_out_of_the_tree_is_not_followed(mlx5, tmp_path_factory):
    outside = tmp_path_factory.mktemp("machine")
    shutil.copytree(mlx5 / FUNCTION / "infiniband/mlx5_1", outside / "mlx5_1", symlinks=True)
    (mlx5 / IB).unlink()
    (mlx5 / IB).symlink_to(outside / "mlx5_1")
    survey = read_survey(mlx5)
    assert [d.name for d in survey.devices] == ["mlx5_0"]
    assert Fault(IB, "leads out of the tree") in survey.faults


def test_control_characters_are_not_text(intact):
    with damaged(intact, f"{IB}/fw_ver", Damage.EMPTY):
        (intact / IB / "fw_ver").write_bytes(b"16\x00.35\n")
        survey = read_survey(intact)
    assert survey.devices[1].firmware is None
    assert survey.faults == (Fault(f"{IB}/fw_ver", "is not text"),)


def test_a_link_to_itself_is_a_fault(mlx5):
    (mlx5 / IB).unlink()
    (mlx5 / IB).symlink_to("mlx5_1")
    assert IB in [fault.path for fault in read_survey(mlx5).faults]


def test_a_pipe_in_a_tree_does_not_block(mlx5):
    (mlx5 / IB / "node_guid").unlink()
    os.mkfifo(mlx5 / IB / "node_guid")
    assert [f.path for f in read_survey(mlx5).faults] == [f"{IB}/node_guid"]


def test_among_representors_the_gid_table_names_the_uplink(mlx5):
    beside = mlx5 / FUNCTION / "net"
    shutil.copytree(beside / "enp129s0f1np1", beside / "aaa_pf1vf0", symlinks=True)
    assert read_survey(mlx5).devices[1].ports[0].netdev == "enp129s0f1np1"


def test_one_port_owns_its_interface_whatever_its_dev_port(mlx5):
    (mlx5 / FUNCTION / "net/enp129s0f1np1/dev_port").write_text("1\n")
    shutil.rmtree(mlx5 / FUNCTION / "infiniband/mlx5_1/ports/1/gid_attrs/ndevs")
    assert read_survey(mlx5).devices[1].ports[0].netdev == "enp129s0f1np1"


def test_without_a_uevent_a_node_has_the_name_devtmpfs_gives_it(mlx5):
    (mlx5 / "class/infiniband_verbs/uverbs0/uevent").unlink()
    uverbs = read_survey(mlx5).devices[0].char_devices[0]
    assert (uverbs.kind, uverbs.path) == (CharKind.UVERBS, "/dev/infiniband/uverbs0")


def test_ipoib_ports_are_told_apart_by_dev_port(mlx5, tmp_path_factory):
    root = tmp_path_factory.mktemp("ib")
    card = read_survey(mlx5).devices[0]
    port = replace(card.ports[0], link_layer=LinkLayer.INFINIBAND, gids=(), netdev="ib0")
    card = replace(card, ports=(port, replace(port, number=2, netdev="ib1")))
    write_tree(root, [card])
    assert [p.netdev for p in read_survey(root).devices[0].ports] == ["ib0", "ib1"]


@given(worlds())
def test_a_few_devices_are_as_the_survey_has_them(world):
    """With all of their facts, and nothing of the others."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        write_tree(root, world, RDMA_CM)
        survey = read_survey(root)
        wanted = [device.name for device in survey.devices][::2]
        found, rdma_cm = read_devices(root, [*wanted, "gone"])
    assert found == survey.devices[::2]
    assert rdma_cm == survey.rdma_cm


def test_a_device_that_is_a_pod_s_alone_has_its_device_nodes(tmp_path):
    """In RDMA namespace mode exclusive the node's class/infiniband shows it no more."""
    unpack((TREES / "mlx5-ib-pf-vfs/tree.txt").read_text(), tmp_path)
    ((before,), _) = read_devices(tmp_path, ["mlx5_2"])
    (tmp_path / "class/infiniband/mlx5_2").unlink()
    ((moved,), _) = read_devices(tmp_path, ["mlx5_2"])
    assert (moved.name, moved.ports) == ("mlx5_2", ())
    assert sorted(one.path for one in moved.char_devices) == sorted(
        one.path for one in before.char_devices
    )
    assert read_devices(tmp_path, ["gone"])[0] == ()


def test_a_folder_that_goes_while_it_is_looked_for_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel then shows its path as deleted, which is no place and no fault."""
    (tmp_path / "card").mkdir()
    opened = os.open

    def open_and_remove(path: str, flags: int) -> int:
        descriptor = opened(path, flags)
        (tmp_path / "card").rmdir()
        return descriptor

    tree = SysfsTree(tmp_path)
    monkeypatch.setattr(os, "open", open_and_remove)
    assert tree.place("card") is None
    assert tree.faults == []


def test_the_tree_is_that_of_the_namespace_and_not_of_the_machine():
    """Not what stands at the machine's ``/``, which is where such a mount seems to be."""
    namespace = make_namespace()
    try:
        with sysfs_inside(namespace) as root:
            tree = SysfsTree(root)
            names = tree.names("class/net")
            place = tree.place("class/net/lo")
    finally:
        os.close(namespace)
    assert names == ("lo",)
    assert place == "devices/virtual/net/lo"
    assert not tree.faults
