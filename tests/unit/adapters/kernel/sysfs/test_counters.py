"""Counters of ports: read from files that are as drivers have them, and as they should not be."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.pod.namespaces import make_namespace
from kube_rdma.adapters.kernel.sysfs import counters
from kube_rdma.adapters.kernel.sysfs.counters import (
    CounterFiles,
    PortReading,
    as_number,
    read_inside,
    read_states,
)
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.pod import mount_inside
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.device import PcieLink, PhysicalState, PortState
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.tree import remove_device, write_tree
from kube_rdma_testing.kernel.tree_counters import write_counters
from kube_rdma_testing.kernel.tree_links import FULL, write_link
from tests.unit.agent.world import hard_card

MOST = (1 << 64) - 1


@pytest.fixture
def tree(tmp_path):
    """A node with two cards."""
    write_tree(tmp_path, [hard_card(0), hard_card(1)])
    return tmp_path


def port_of(root, name="mlx5_0"):
    (device,) = [one for one in CounterFiles(root).read().devices if one.name == name]
    return device.ports[0]


def test_a_port_says_all_of_it(tree):
    write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": 7, "link_downed": 0})
    write_counters(tree, "mlx5_0/ports/1", "hw_counters", {"out_of_sequence": MOST, "lifespan": 12})
    readings = CounterFiles(tree).read()
    assert [device.name for device in readings.devices] == ["mlx5_0", "mlx5_1"]
    assert readings.unread == 0
    port = readings.devices[0].ports[0]
    assert (port.number, port.state, port.physical_state, port.rate_gbps) == (1, 4, 5, 100.0)
    assert port.counters == {"port_rcv_data": 7, "link_downed": 0}
    assert port.hw_counters == {"out_of_sequence": MOST, "lifespan": 12}
    assert readings.devices[0].pci == hard_card(0).pci


def link_of(root, name="mlx5_0"):
    (device,) = [one for one in CounterFiles(root).read().devices if one.name == name]
    return device.pcie


UNKNOWN = (255, "Unknown")
SLOW, HALF = (16, "16.0 GT/s PCIe"), (8, "32.0 GT/s PCIe")


@pytest.mark.parametrize(
    ("now", "most", "above", "link"),
    [
        (FULL, FULL, None, (16, 32.0, 16, 32.0)),
        (HALF, FULL, None, (8, 32.0, 16, 32.0)),
        (HALF, FULL, HALF, (8, 32.0, 8, 32.0)),
        (SLOW, FULL, SLOW, (16, 16.0, 16, 16.0)),
        (SLOW, FULL, FULL, (16, 16.0, 16, 32.0)),
        ((4, "2.5 GT/s PCIe"), HALF, SLOW, (4, 2.5, 8, 16.0)),
        (UNKNOWN, FULL, FULL, None),
        ((0, "Unknown"), FULL, FULL, None),
        (SLOW, UNKNOWN, None, None),
        (SLOW, UNKNOWN, SLOW, (16, 16.0, 16, 16.0)),
    ],
)
def test_a_link_is_held_against_what_both_its_ends_can_do(tree, now, most, above, link):
    write_link(tree, "mlx5_0", now, most, above)
    assert link_of(tree) == (PcieLink(hard_card(0).pci, *link) if link else None)
    assert CounterFiles(tree).read().unread == 0


def test_a_card_that_says_nothing_of_its_link_has_none(tree):
    assert link_of(tree) is None


def test_a_virtual_function_has_no_link_of_its_own(tree):
    """Its files show that of nobody (drivers/pci/probe.c: the capability is the PF's)."""
    write_link(tree, "mlx5_0", HALF)
    folder = (tree / "class/infiniband/mlx5_0/device").resolve()
    (folder / "physfn").symlink_to(folder)
    assert link_of(tree) is None


def test_a_driver_without_counters_has_a_state(tree):
    port = port_of(tree)
    assert port.state == 4
    assert port.counters == port.hw_counters == {}


def test_a_node_without_rdma_has_no_devices(tmp_path):
    assert CounterFiles(tmp_path).read().devices == ()
    assert CounterFiles(tmp_path / "nothing").read().devices == ()


@given(st.integers(min_value=0, max_value=MOST))
def test_every_counter_of_64_bits_is_read(value):
    assert as_number(str(value).encode()) == value


@given(st.binary(max_size=30))
def test_what_is_no_counter_is_none(data):
    number = as_number(data)
    assert number is None or (number <= MOST and int(data) == number)


@pytest.mark.parametrize("text", [str(MOST + 1), "-1", "1.5", "0x10", "twelve", "٣"])
def test_a_file_with_something_else_costs_its_own_value(tree, text):
    write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": 1, "link_downed": text})
    readings = CounterFiles(tree).read()
    assert readings.devices[0].ports[0].counters == {"port_rcv_data": 1}
    assert readings.unread == 1


@pytest.mark.parametrize("text", ["N/A (no PMA)", ""])
def test_a_kernel_that_has_no_value_is_not_blamed(tree, text):
    write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": text})
    readings = CounterFiles(tree).read()
    assert (readings.devices[0].ports[0].counters, readings.unread) == ({}, 0)


def test_counters_of_an_older_kernel(tree):
    """They lie in a folder of their own, which newer ones do not have."""
    write_counters(tree, "mlx5_0/ports/1", "counters_ext", {"port_rcv_data_64": 9})
    assert port_of(tree).counters == {"port_rcv_data_64": 9}


def test_a_counter_that_grows_is_read_at_each_look(tree):
    files = CounterFiles(tree)
    for value in (1, 1, 2, "twelve", 3):
        write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": value})
        readings = files.read()
        expected = {} if value == "twelve" else {"port_rcv_data": value}
        assert readings.devices[0].ports[0].counters == expected
        assert readings.unread == (value == "twelve")


def test_a_counter_of_a_driver_that_was_slow_appears(tree):
    """Linux before 5.14 showed the folder before its files; its time does not tell of them."""
    write_counters(tree, "mlx5_0/ports/1", "hw_counters", {"out_of_sequence": 1})
    folder = tree / "class/infiniband/mlx5_0/ports/1/hw_counters"
    made = folder.stat()
    files = CounterFiles(tree)
    files.read()
    write_counters(tree, "mlx5_0/ports/1", "hw_counters", {"packet_seq_err": 2})
    os.utime(folder, ns=(made.st_atime_ns, made.st_mtime_ns))
    looks = [files.read() for _ in range(counters.LISTED_LOOKS)]
    assert looks[0].devices[0].ports[0].hw_counters == {"out_of_sequence": 1}
    last = looks[-1].devices[0].ports[0].hw_counters
    assert last == {"out_of_sequence": 1, "packet_seq_err": 2}


def test_a_device_of_the_same_name_has_counters_of_its_own(tree):
    files = CounterFiles(tree)
    write_counters(tree, "mlx5_0/ports/1", "counters", {"link_downed": 1})
    files.read()
    shutil.rmtree((tree / "class/infiniband/mlx5_0/ports/1/counters").resolve())
    write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": 2})
    assert files.read().devices[0].ports[0].counters == {"port_rcv_data": 2}


def test_a_device_that_goes_takes_its_series_along(tree):
    files = CounterFiles(tree)
    assert len(files.read().devices) == 2
    remove_device(tree, "mlx5_1")
    readings = files.read()
    assert [device.name for device in readings.devices] == ["mlx5_0"]
    assert readings.unread == 0


def test_counters_that_vanish_while_they_are_read(tree, tmp_path):
    """The folder lists a name that cannot be opened any more: here a link to nowhere."""
    write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": 1})
    folder = tree / "class/infiniband/mlx5_0/ports/1/counters"
    (folder / "port_xmit_data").symlink_to("nowhere")
    shutil.rmtree((tree / "class/infiniband/mlx5_1/ports/1").resolve())
    readings = CounterFiles(tree).read()
    assert readings.devices[0].ports[0].counters == {"port_rcv_data": 1}
    assert readings.devices[1].ports == ()


def test_a_pipe_holds_nobody_up(tree):
    folder = tree / "class/infiniband/mlx5_0/ports/1/counters"
    folder.mkdir()
    os.mkfifo(folder / "port_rcv_data")
    assert port_of(tree).counters == {}


def test_a_folder_is_bounded(tree):
    names = {f"c{number:04}": number for number in range(counters.MOST_FILES + 9)}
    write_counters(tree, "mlx5_0/ports/1", "hw_counters", names)
    assert len(port_of(tree).hw_counters) == counters.MOST_FILES


def test_names_that_are_no_labels_are_left_out(tree):
    write_counters(tree, "mlx5_0/ports/1", "hw_counters", {"a": 1})
    folder = tree / "class/infiniband/mlx5_0/ports/1/hw_counters"
    (folder / 'x"} 1').write_text("5\n")
    (folder / ("y" * 65)).write_text("5\n")
    assert port_of(tree).hw_counters == {"a": 1}


def test_gids_are_counted_by_turns(tmp_path):
    """A new port comes first; the others one look after the other, and keep what was counted."""
    write_tree(tmp_path, [hard_card(0), hard_card(1)])
    files = CounterFiles(tmp_path, gid_tables=1)

    def seen():
        return [device.ports[0].gids for device in files.read().devices]

    assert [seen(), seen(), seen()] == [[None, None], [1, None], [1, 1]]
    table = tmp_path / "class/infiniband/mlx5_0/ports/1/gids"
    (table / "7").write_text("fe80:0000:0000:0000:0000:0000:0000:0007\n")
    assert 2 in [seen()[0] for _ in range(4)]


def sandbox(path, inode):
    return Sandbox(ContainerId("c"), PodName("default", "p"), "uid", str(path), inode)


def test_devices_inside_a_pod(tmp_path):
    """Its sysfs shows what the node's does not; the path of an earlier pod leads to nothing."""
    netns = tmp_path / "netns"
    netns.touch()
    inside = tmp_path / "sysfs"
    write_tree(inside, [hard_card(3)])
    inode = netns.stat().st_ino
    closed = []

    def mount(namespace):
        closed.append(os.open(inside, os.O_RDONLY | os.O_DIRECTORY))
        return closed[-1]

    read, failures = read_inside([sandbox(netns, inode), sandbox(netns, inode + 1)], mount)
    assert [place.inode for place in read] == [inode]
    assert [device.name for device in read[0].readings.devices] == ["mlx5_3"]
    assert failures == 0
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(closed[0])


def test_a_pod_that_cannot_be_entered_is_counted(tmp_path):
    netns = tmp_path / "netns"
    netns.touch()
    place = sandbox(netns, netns.stat().st_ino)

    def gone(namespace):
        raise Unavailable("the network namespace is gone")

    assert read_inside([place], gone) == ((), 1)
    assert read_inside([replace(place, netns_path=str(tmp_path / "other"))], gone) == ((), 0)


def test_a_sysfs_is_mounted_in_a_real_namespace():
    """It shows that namespace: of its interfaces lo alone, and no RDMA device."""
    namespace = make_namespace()
    try:
        place = sandbox(f"/proc/self/fd/{namespace}", os.fstat(namespace).st_ino)
        shown = []

        def mount(descriptor):
            root = mount_inside(descriptor)
            shown.extend(path.name for path in Path(f"/proc/self/fd/{root}/class/net").iterdir())
            return root

        read, failures = read_inside([place], mount)
    finally:
        os.close(namespace)
    assert (read[0].readings.devices, failures) == ((), 0)
    assert shown == ["lo"]


IB_TREE = Path(__file__).parents[4] / "data/trees/mlx5-ib-pf-vfs/tree.txt"


@pytest.fixture
def ib_root(tmp_path):
    unpack(IB_TREE.read_text(), tmp_path)
    return tmp_path


def surveyed(ib_root):
    return tuple(
        PortReading(device.name, port.number, port.state, port.physical_state)
        for device in read_survey(ib_root).devices
        for port in device.ports
    )


def test_a_reading_is_what_a_survey_shows(ib_root):
    before = surveyed(ib_root)
    ports = [(reading.device, reading.number) for reading in before]
    assert read_states(ib_root, ports) == before
    (ib_root / "class/infiniband/mlx5_1/ports/1/state").write_text("2: INIT\n")
    after = read_states(ib_root, ports)
    assert after == surveyed(ib_root) != before
    assert read_states(ib_root, ports[::-1]) == after[::-1]


def test_a_port_that_is_gone_is_unknown(ib_root):
    remove_device(ib_root, "mlx5_0")
    gone = PortReading("mlx5_0", 1, PortState.UNKNOWN, PhysicalState.UNKNOWN)
    assert read_states(ib_root, [("mlx5_0", 1)]) == (gone,)
    assert read_states(ib_root, []) == ()
