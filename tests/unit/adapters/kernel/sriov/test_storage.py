"""The servers of mounted storage, out of the words that the kernel has for each kind."""

from __future__ import annotations

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.kernel.sriov.netdev_usage import storage_servers
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree


def written(root, files):
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return SysfsTree(root)


def test_each_kind_of_storage_names_its_server(tmp_path):
    """A disk of the machine and Fibre Channel have no address; Lustre has it in a folder's name."""
    tree = written(
        tmp_path,
        {
            "class/nvme/nvme0/address": "0000:5e:00.0\n",
            "class/nvme/nvme1/address": "traddr=10.1.0.9,trsvcid=4420,src_addr=10.1.0.1\n",
            "class/nvme/nvme2/address": "traddr=nn-0x2000:pn-0x1000\n",
            "fs/lustre/mgc/MGC10.2.0.9@o2ib1/uuid": "x\n",
            "nfs": "NV SERVER   PORT USE HOSTNAME\nv4 0a030009  801   1 filer\n"
            "v4 fd000000000000000000000000000009  801   1 filer6\nnoise\n",
        },
    )
    assert dict(storage_servers(tree, tmp_path / "nfs")) == {
        "NFS of 10.3.0.9": ip_address("10.3.0.9"),
        "NFS of fd00::9": ip_address("fd00::9"),
        "nvme1 of 10.1.0.9": ip_address("10.1.0.9"),
        "Lustre of 10.2.0.9": ip_address("10.2.0.9"),
    }
    assert tree.faults == []


@given(st.text(max_size=60))
def test_no_text_of_the_kernel_is_an_error(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("storage")
    (root / "nfs").write_text(text, encoding="utf-8", errors="replace")
    list(storage_servers(SysfsTree(root), root / "nfs"))


def test_a_node_without_storage_has_no_server(tmp_path):
    assert list(storage_servers(SysfsTree(tmp_path), tmp_path / "missing")) == []
