"""Drivers bound anew and partitions waited for, on a constructed tree whose kernel is the test.

The tree is mlx5-ib-pf-vfs (see its SOURCE.md); `unbind` and `bind` do with it what the kernel does
(drivers/pci/pci-driver.c, drivers/infiniband/core/device.c, drivers/infiniband/ulp/ipoib).
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sriov.functions import locked
from kube_rdma.adapters.kernel.sriov.rebind import FunctionDrivers
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.attach.steps import AwaitPartition
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools import RebindFunction
from kube_rdma_lab.native.tree_text import unpack
from tests.kit.refusals import refusal

TREE = Path(__file__).parents[4] / "data/trees/mlx5-ib-pf-vfs/tree.txt"
PCI, PHYSICAL = PciAddress("0000:41:00.2"), PciAddress("0000:41:00.0")
GUID, NONE = "02:00:0a:00:00:00:00:01", ":".join(["ff"] * 8)


class Kernel:
    """A sysfs whose function has the GUID `gives` after the next binding; `fails` is an errno."""

    def __init__(self, root):
        unpack(TREE.read_text(), root)
        self.root, self.gives, self.fails, self.told = root, GUID, {}, []
        self.place = (root / "bus/pci/devices" / PCI).resolve()
        self.device = self.place / "infiniband/mlx5_2"
        self.own = ":".join(self.device.joinpath("node_guid").read_text().split(":"))

    def write(self, path, text):
        assert text == PCI
        self.told.append(path.name)
        if code := self.fails.get(path.name):
            raise OSError(code, "no")
        (self.unbind if path.name == "unbind" else self.bind)(path.parent)

    def unbind(self, driver):
        assert driver == self.root / "bus/pci/drivers/mlx5_core"
        if not (self.place / "driver").exists():
            raise OSError(errno.ENODEV, "")
        (self.place / "driver").unlink()
        for path in (*self.place.glob("*/*"), *(self.root / "class").glob("*/*")):
            if path.is_symlink() and path.resolve().is_relative_to(self.place):
                path.unlink()
        for folder in ("net", "infiniband", "infiniband_verbs", "infiniband_mad"):
            shutil.rmtree(self.place / folder, ignore_errors=True)

    def bind(self, driver):
        (self.place / "driver").symlink_to(driver)
        device = self.place / "infiniband/mlx5_7"
        (device / "ports/1/pkeys").mkdir(parents=True)
        digits = self.gives.replace(":", "")
        groups = [digits[at : at + 4] for at in range(0, 16, 4)]
        (device / "node_guid").write_text(":".join(groups) + "\n")
        (self.place / "net/ib0").mkdir(parents=True)

    def functions(self, patience=0.0):
        devices = self.root / "class/infiniband"
        return FunctionDrivers(devices, self.write, patience, fabric_patience=0.0)

    def step(self, **facts):
        digits = self.own.strip().replace(":", "")
        own = ":".join(digits[at : at + 2] for at in range(0, 16, 2))
        return replace(RebindFunction(PCI, PHYSICAL, "mlx5_core", GUID, own), **facts)


@pytest.fixture
def kernel(tmp_path):
    return Kernel(tmp_path)


def test_a_driver_is_bound_anew_once(kernel):
    """Then the RDMA device has another name, and the GUID; done again it changes nothing."""
    for _ in range(2):
        kernel.functions().rebind(kernel.step())
        assert kernel.told == ["unbind", "bind"]
    assert [path.name for path in (kernel.place / "infiniband").iterdir()] == ["mlx5_7"]


def test_a_function_that_has_the_guid_is_left_alone(kernel):
    """So is one that goes back to what it has."""
    kernel.functions().rebind(kernel.step(guid=kernel.step().previous))
    assert kernel.told == []


def test_who_died_between_the_two_is_followed_by_who_binds(kernel):
    """Without a driver there is nothing to unbind."""
    kernel.unbind(kernel.root / "bus/pci/drivers/mlx5_core")
    kernel.functions().rebind(kernel.step())
    assert kernel.told == ["bind"]


def test_there_are_two_ways_to_have_no_guid(kernel):
    """All ones are set back, and zeros may be told."""
    kernel.gives = ":".join(["00"] * 8)
    for _ in range(2):
        kernel.functions().rebind(kernel.step(guid=NONE))
    assert kernel.told == ["unbind", "bind"]


@pytest.mark.parametrize("file", ["unbind", "bind"])
@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (errno.EROFS, Refused, "Mount the host's /sys into the agent's container for writing"),
        (errno.EACCES, Refused, "in /sys, which may not be written"),
        (errno.EBUSY, Unavailable, "the kernel does not {} mlx5_core for 0000:41:00.2"),
    ],
)
def test_what_the_kernel_refuses_is_told(kernel, file, code, kind, sentence):
    kernel.fails = {file: code}
    with pytest.raises(kind) as caught:
        kernel.functions().rebind(kernel.step())
    assert sentence.format(file) in str(caught.value)


def test_another_s_function_is_not_touched(kernel):
    """Somebody gave it to a virtual machine."""
    with pytest.raises(Unavailable, match=r"driver of 0000:41:00\.2 is mlx5_core by now"):
        kernel.functions().rebind(kernel.step(driver="mlx4_core"))
    with pytest.raises(Unavailable, match=r"function 0000:41:00\.6 is gone"):
        kernel.functions().rebind(kernel.step(pci=PciAddress("0000:41:00.6")))
    assert kernel.told == []


def test_a_guid_that_does_not_come_is_told(kernel):
    """With what there is instead."""
    kernel.gives = "02:00:00:00:00:00:00:99"
    with pytest.raises(Unavailable, match="an RDMA device with the GUID 02:00:00:00:00:00:00:99"):
        kernel.functions().rebind(kernel.step())


def test_one_function_of_a_card_at_a_time(kernel):
    """By the lock that making functions takes too."""
    place = kernel.root / "bus/pci/devices" / PHYSICAL
    functions = FunctionDrivers(kernel.root / "class/infiniband", kernel.write, lock_patience=0.0)
    with (
        locked(place, "ibs3f0", 0.0),
        pytest.raises(Unavailable, match="another process has changed the virtual functions"),
    ):
        functions.rebind(kernel.step())
    functions.rebind(kernel.step())


def test_the_survey_finds_the_guid_that_is_compared(kernel):
    """sysfs and Steps write it in different ways."""
    (device,) = [one for one in read_survey(kernel.root).devices if one.pci == PCI]
    assert device.node_guid.replace(":", "") == kernel.step().previous.replace(":", "")


def partitions(kernel, *keys):
    table = kernel.device / "ports/1/pkeys"
    table.mkdir(exist_ok=True)
    for index, key in enumerate(keys):
        (table / str(index)).write_text(key + "\n")


@pytest.mark.parametrize("key", ["0x8012", "0x0012"])
def test_a_member_of_a_partition_goes_on(kernel, key):
    """A full one or a limited one, wherever it stands in the table."""
    partitions(kernel, "0xffff", "0x0000", key)
    kernel.functions().await_partition(AwaitPartition(PCI, 0x12), None)


def test_a_device_in_a_pod_is_asked_there(kernel, tmp_path):
    """The node's sysfs shows it no more."""
    partitions(kernel, "0x8012")
    inside = kernel.device.rename(tmp_path / "mlx5_2")
    kernel.functions().await_partition(AwaitPartition(PCI, 0x12), inside)
    with pytest.raises(Refused, match="its table has none"):
        kernel.functions().await_partition(AwaitPartition(PCI, 0x12), None)


def test_who_is_not_a_member_is_refused(kernel):
    """With the table that the subnet manager has given."""
    partitions(kernel, "0xffff", "0x0000", "0x8013")
    caught = refusal(kernel.functions().await_partition, AwaitPartition(PCI, 0x12), None)
    assert str(caught) == (
        "pkey: the port of 0000:41:00.2 is not in the partition 0x0012: its table has 0x8013, "
        "0xffff. Add its port GUID to the partition at the subnet manager, or write another pkey."
    )


def test_a_function_whose_port_is_active_goes_on(kernel, tmp_path):
    """Wherever its device is."""
    (kernel.device / "ports/1/state").write_text("4: ACTIVE\n")
    kernel.functions().await_port(PCI, None)
    kernel.functions().await_port(PCI, kernel.device.rename(tmp_path / "mlx5_2"))
    with pytest.raises(Refused, match=r"the port of 0000:41:00\.2 is gone"):
        kernel.functions().await_port(PCI, None)


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ("2: INIT", "Let the subnet manager activate virtual ports (opensm: virt_enabled 2)"),
        ("1: DOWN", 'write "link_state": "auto" into the network; then the subnet manager'),
    ],
)
def test_a_port_that_does_not_come_up_is_told_with_who_has_to_act(kernel, state, remedy):
    (kernel.device / "ports/1/state").write_text(state + "\n")
    caught = refusal(kernel.functions().await_port, PCI, None)
    assert f"the port of 0000:41:00.2 is {state[3:]} after 0 s" in str(caught)
    assert remedy in caught.remedy
