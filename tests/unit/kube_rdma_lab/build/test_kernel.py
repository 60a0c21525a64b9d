"""Which modules of a kernel are kept: those on the list and all that they need."""

import pytest

from kube_base.errors import Refused
from kube_rdma_lab.build import initrd, kernel

DEPENDENCIES = {
    "kernel/fs/ext4/ext4.ko.xz": ("kernel/fs/jbd2/jbd2.ko.xz", "kernel/lib/crc16.ko.xz"),
    "kernel/fs/jbd2/jbd2.ko.xz": ("kernel/lib/crc16.ko.xz",),
    "kernel/lib/crc16.ko.xz": (),
    "kernel/net/netfilter/xt_mark.ko.xz": ("kernel/net/netfilter/x_tables.ko.xz",),
    "kernel/net/netfilter/x_tables.ko.xz": (),
    "kernel/net/other/vfio-pci.ko.xz": (),
}
BUILTIN = ["kernel/drivers/virtio/virtio_pci.ko"]


def names(wanted):
    return [kernel.module_name(path) for path in kernel.closure(wanted, DEPENDENCIES, BUILTIN)]


def test_needs_come_first():
    """Loading in this order never finds a symbol missing."""
    assert names(["ext4"]) == ["crc16", "jbd2", "ext4"]


def test_folder_takes_all_its_modules_once():
    """A folder stands for its modules; one that is needed twice comes once."""
    assert names(["net/netfilter/", "xt_mark"]) == ["x_tables", "xt_mark"]


def test_built_in_needs_no_file():
    """What is part of the kernel itself is there anyway."""
    assert names(["virtio_pci"]) == []


def test_dashes_are_underscores():
    """Files and kernel spell some names differently."""
    assert names(["vfio_pci"]) == names(["vfio-pci"]) == ["vfio_pci"]


@pytest.mark.parametrize("missing", ["no_such_module", "no/such/folder/"])
def test_unknown_entry_is_refused(missing):
    """A newer kernel may have renamed it; nobody should find out in a booted node."""
    with pytest.raises(Refused, match=missing):
        names([missing])


def test_list_wants_a_reason_for_each_line():
    """A module whose reason nobody knows would stay for ever."""
    assert kernel.parse_list("# title\n\next4  # root\nnet/x/ # all\n") == ("ext4", "net/x/")
    with pytest.raises(Refused, match="line 2"):
        kernel.parse_list("ext4 # root\noverlay\n")


def test_our_own_list_is_well_formed():
    """The committed list parses, and holds what the initramfs loads."""
    entries = kernel.parse_list(kernel.MODULES_LIST.read_text())
    assert set(initrd.MODULES) <= set(entries)
    assert len(set(entries)) == len(entries)


def test_release_numbers_compare():
    """Soft-RoCE in namespaces needs 7.1; 6.12 is older though 12 is more than 1."""
    assert kernel.numbers("7.2.12+deb13-amd64") == (7, 2, 12)
    assert kernel.numbers("6.12.107+deb13-amd64") < kernel.OLDEST <= kernel.numbers("7.1-rc1")
