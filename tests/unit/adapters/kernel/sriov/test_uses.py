"""What interfaces are used for: told by a kernel of our own namespace, and out of bytes."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes
from kube_rdma.adapters.kernel.netlink.rtnl_read import is_permanent
from kube_rdma.adapters.kernel.sriov.netdev_usage import decode_guest, read_uses, storage_servers
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from tests.unit.adapters.kernel.pod.test_namespaces import needs_root

MAC = bytes.fromhex("020000000009")
BRIDGE, INET = 7, 2
SELF, MASTER = 0x2, 0x4


def neighbour(mac=MAC, family=BRIDGE, flags=SELF, index=5):
    head = struct.pack("=BxxxiHBB", family, index, 0x80, flags, 0)
    return head + encode_attributes([Attribute(9, b"\1\0\0\0"), Attribute(2, mac)])


def test_a_mac_besides_its_own_is_a_guest_s():
    assert list(decode_guest(neighbour())) == [(5, "02:00:00:00:00:09")]


@pytest.mark.parametrize(
    "other",
    [{"mac": bytes.fromhex("333300000001")}, {"mac": b""}, {"flags": MASTER}, {"family": INET}],
)
def test_groups_and_entries_of_a_bridge_are_none(other):
    assert list(decode_guest(neighbour(**other))) == []


@given(st.binary(max_size=40))
def test_noise_is_unavailable_and_no_other_error(noise):
    try:
        found = list(decode_guest(noise))
    except Unavailable:
        return
    assert all(isinstance(index, int) and mac for index, mac in found)


def address(flags, *attributes):
    """An answer to GETADDR: 10.0.0.7/24 on the interface 5."""
    head = struct.pack("=BBBBI", INET, 24, flags & 0xFF, 0, 5)
    return head + encode_attributes([Attribute(2, bytes((10, 0, 0, 7))), *attributes])


@given(st.integers(0, 0xFFFFFFFF))
def test_an_address_is_permanent_by_its_flags(flags):
    """By the attribute where there is one, which has more of them than the octet."""
    full = Attribute(8, struct.pack("=I", flags))
    assert is_permanent(address(flags)) == bool(flags & 0x80)
    assert is_permanent(address(flags, full)) == bool(flags & 0x80)


def test_an_interface_that_sysfs_and_netlink_do_not_tell_alike_is_left_out(tmp_path):
    """/sys is of another network namespace, where `lo` has the same name."""
    place = tmp_path / "class/net/lo"
    place.mkdir(parents=True)
    (place / "ifindex").write_text("1\n")
    (place / "address").write_text("00:00:00:00:00:00\n")
    assert set(read_uses(["lo", "nothing"], tmp_path)) == {"lo"}
    (place / "ifindex").write_text("77\n")
    assert read_uses(["lo"], tmp_path) == {}


# In a namespace of its own, with a /sys that shows it: up alone, then used in each way.
SCRIPT = """
import json, pathlib, subprocess
from kube_base.frozen import asdict
from kube_rdma.adapters.kernel.sriov.netdev_usage import read_uses

def do(*words):
    subprocess.run(words, check=True)

do("mount", "-t", "sysfs", "none", "/sys")
do("mount", "-t", "tmpfs", "none", "/run")
for number in "02468":
    do("ip", "link", "add", "v" + number, "type", "veth", "peer", "name", "w" + number)
    for name in ("v" + number, "w" + number):
        do("ip", "link", "set", name, "up")
do("ip", "link", "add", "br0", "type", "bridge")
do("ip", "address", "add", "10.9.0.1/24", "dev", "v2")
do("ip", "route", "add", "10.7.0.0/16", "dev", "v4")
do("ip", "link", "set", "v6", "master", "br0")
do("bridge", "fdb", "add", "02:00:00:00:00:09", "dev", "w6", "self")
do("ip", "address", "add", "10.5.0.1/24", "dev", "v8")
do("ip", "rule", "add", "from", "10.5.0.1", "lookup", "101")
do("ip", "route", "add", "10.6.0.0/16", "via", "10.5.0.254", "dev", "v8", "table", "101")
do("ip", "route", "add", "10.4.0.0/16", "via", "10.5.0.254", "dev", "v8", "table", "102")
do("ip", "address", "add", "10.2.5.8/32", "dev", "w8")
do("ip", "route", "add", "10.2.5.1", "dev", "w8", "scope", "link")
do("ip", "route", "add", "10.2.5.0/24", "via", "10.2.5.1", "dev", "w8")
do("ip", "route", "add", "10.1.0.0/16", "via", "10.2.5.1", "dev", "w8")
do("ip", "address", "add", "10.3.0.1/24", "dev", "v0")
do(*"ip address add 10.3.0.2/24 dev v0 valid_lft 900 preferred_lft 600".split())
do(*"ip address add 2001:db8::2/64 dev v0 nodad valid_lft 900 preferred_lft 600".split())
with open("/run/servers", "w") as servers:
    print("v4 0a090007  801   1 filer", file=servers)
names = ["v0", "v2", "v4", "v6", "v8", "w6", "w8", "gone"]
found = read_uses(names, nfs=pathlib.Path("/run/servers"))
told = {name: asdict(use).items() for name, use in found.items()}
print(json.dumps({name: {word: what for word, what in use if what} for name, use in told.items()}))
"""


@needs_root
def test_the_kernel_tells_each_use_and_none_of_what_is_merely_up():
    words = ["unshare", "--net", "--mount", sys.executable, "-c", SCRIPT]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "v0": {
            "addresses": ["10.3.0.1/24", "10.3.0.2/24", "2001:db8::2/64"],
            "dynamic": ["10.3.0.2/24", "2001:db8::2/64"],
            "routes": ["10.3.0.0/24", "2001:db8::/64"],
        },
        "v2": {
            "addresses": ["10.9.0.1/24"],
            "routes": ["10.9.0.0/24"],
            "storage": ["NFS of 10.9.0.7"],
        },
        "v4": {"routes": ["10.7.0.0/16"], "beyond": ["10.7.0.0/16"]},
        "v8": {
            "addresses": ["10.5.0.1/24"],
            "routes": ["10.6.0.0/16", "10.4.0.0/16", "10.5.0.0/24"],
            "beyond": ["10.4.0.0/16 (table 102)"],
        },
        "v6": {"above": ["br0"]},
        "w8": {
            "addresses": ["10.2.5.8/32"],
            "routes": ["10.1.0.0/16", "10.2.5.0/24", "10.2.5.1/32"],
            "beyond": ["10.1.0.0/16"],
        },
        "w6": {"guests": ["02:00:00:00:00:09"]},
    }


def storage_tree(root, files):
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return SysfsTree(root)


def test_each_kind_of_storage_names_its_server(tmp_path):
    """A disk of the machine and Fibre Channel have no address; Lustre has it in a folder's name."""
    tree = storage_tree(
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
def test_no_text_about_storage_is_an_error(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("storage")
    (root / "nfs").write_text(text, encoding="utf-8", errors="replace")
    list(storage_servers(SysfsTree(root), root / "nfs"))


def test_a_node_without_storage_has_no_server(tmp_path):
    assert list(storage_servers(SysfsTree(tmp_path), tmp_path / "missing")) == []
