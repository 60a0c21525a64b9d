"""Readers of what the kernel says: netlink, uevents, sysfs, /proc, control groups, ioctl, frames.

One of the tables of target.py. Samples are answers as a kernel gives them, written out here.
"""

from __future__ import annotations

import copy
import io
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from kube_rdma.adapters.kernel import cgroups as rdma_groups
from kube_rdma.adapters.kernel import ethtool, proc
from kube_rdma.adapters.kernel.netlink import codec, dcb, events, rdma_read, rtnl_read, rtnl_vf
from kube_rdma.adapters.kernel.pod import gids, probe
from kube_rdma.adapters.kernel.sriov import netdev_usage
from kube_rdma.adapters.kernel.sysfs import counters, devices, pci, pci_paths, topology_facts
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.adapters.metrics import process
from kube_rdma.fabric.rules import lldp
from kube_rdma.hardware.machines import machine
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.settings import PlacedNet
from tests.fuzz.target import FuzzTarget, Reader, each
from tests.kit.foreign_texts import as_file
from tests.kit.lldp import frame, tlv
from tests.kit.pci_config import config

V4, V6 = ip_address("10.0.0.1"), ip_address("fd00::1")
NAMES = {3: InterfaceName("eth0")}
MAC = bytes.fromhex("020000000001")


def _u32(value: int) -> bytes:
    return struct.pack("=I", value)


def _attributes(*pairs: tuple[int, bytes]) -> bytes:
    return codec.encode_attributes(codec.Attribute(kind, value) for kind, value in pairs)


def _datagram(*messages: tuple[int, int, bytes]) -> bytes:
    """Messages that answer request 1: type, flags, payload."""
    return b"".join(
        codec.encode(codec.Message(kind, flags, 1, body)) for kind, flags, body in messages
    )


FUNCTION = _attributes(
    (1, struct.pack("=I32s", 0, MAC)),
    (4, struct.pack("=II", 0, 1)),
    (5, struct.pack("=II", 0, 2)),
    (6, struct.pack("=III", 0, 1, 100)),
    (9, struct.pack("=II", 0, 1)),
    (10, struct.pack("=I4xQ", 0, 5)),
    (11, struct.pack("=I4xQ", 0, 6)),
    (12, _attributes((1, struct.pack("=III2s2x", 0, 100, 3, b"\x81\x00")))),
)
LINK = struct.pack("=BxHiII", 0, 1, 3, 1, 0) + _attributes(
    (1, MAC),
    (3, b"eth0\0"),
    (4, _u32(1500)),
    (5, _u32(2)),
    (18, _attributes((1, b"macvlan\0"))),
    (20, b"kube-rdma a/b\0"),
    (22, _attributes((1, FUNCTION))),
    (27, _u32(7)),
    (33, b"\1"),
    (52, _attributes((53, b"enp1s0\0"))),
    (54, MAC),
    (56, b"0000:81:00.0\0"),
    (57, b"pci\0"),
)
ADDRESS = struct.pack("=BBBBI", 2, 24, 0x80, 0, 3) + _attributes(
    (1, V4.packed), (2, V4.packed), (8, _u32(0x80))
)
ROUTE = struct.pack("=8BI", 2, 16, 0, 0, 254, 3, 0, 1, 0) + _attributes(
    (1, ip_address("10.8.0.0").packed),
    (4, _u32(3)),
    (5, V4.packed),
    (6, _u32(100)),
    (7, V4.packed),
    (15, _u32(1000)),
)
ROUTE6 = struct.pack("=8BI", 10, 64, 0, 0, 254, 3, 0, 1, 0) + _attributes(
    (1, ip_address("fd00::").packed), (4, _u32(3)), (5, V6.packed)
)
DEFAULT = struct.pack("=8BI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + _attributes(
    (9, struct.pack("=HBBi", 8, 0, 0, 3) + struct.pack("=HBBi", 8, 0, 0, 4)), (30, _u32(1))
)
NEXTHOP = struct.pack("=BBBxI", 2, 0, 0, 0) + _attributes(
    (1, _u32(1)), (2, struct.pack("=IBBH", 2, 1, 0, 0)), (5, _u32(3))
)
RULE = struct.pack("=8BI", 2, 0, 32, 0, 100, 0, 0, 1, 0) + _attributes(
    (2, V4.packed), (6, _u32(32000)), (15, _u32(1000))
)
NEIGHBOUR = struct.pack("=BxxxiHBB", 7, 3, 0x80, 2, 0) + _attributes((2, MAC))
DEVICE = _attributes(
    (1, _u32(0)), (2, b"mlx5_0\0"), (3, _u32(1)), (5, b"28.40.1000\0"), (6, struct.pack("=Q", 9))
)
PORT = _attributes((3, _u32(1)), (12, b"\4"), (13, b"\5"), (51, b"eth0\0"))
MODE = _attributes((66, b"\1"))
DCB = struct.pack("=BBH", 0, 21, 0) + _attributes(
    (1, b"eth0\0"),
    (
        13,
        _attributes(
            (2, bytes((8, 8)) + bytes(134)),
            (3, _attributes((1, b"\5\0\0\0\3\0"))),
            (11, _attributes((1, b"\5"), (1, b"\xff"))),
        ),
    ),
)
UEVENT = b"\0".join(
    (
        *(b"add@/devices/x/infiniband/mlx5_0", b"ACTION=add", b"DEVPATH=/devices/x"),
        *(b"SUBSYSTEM=infiniband", b"NAME=mlx5_0", b"SEQNUM=1", b""),
    )
)


class OneFile:
    """A folder in memory in which every file has this content; what a reader of /proc opens."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.name = "1"

    def __truediv__(self, name: str) -> OneFile:
        return self

    def open(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self.data)

    def read_bytes(self) -> bytes:
        return self.data

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.data.decode(encoding, errors)

    def iterdir(self) -> Iterator[OneFile]:
        return iter((self,))


def _of_file(*reads: Callable[[Any], object]) -> Reader:
    def read(data: bytes) -> None:
        for one in reads:
            one(OneFile(data))

    return read


def _answer(data: bytes) -> None:
    with suppress(codec.ChangedMeanwhileError):  # who asked asks again
        codec.answer((data, data), 1)
    codec.decode_attributes(data)


def _statistics(data: bytes) -> None:
    """The kernel writes over the message, so an answer is as long as what was asked."""
    cut = data[:1] or b"\0"
    count = struct.pack("=IIQI", 0x37, 0, 2, cut[0])

    def ask(interface: str, message: bytes) -> bytes:
        if message[:4] == count[:4]:
            return count
        head = message[:4] + data[1:]
        return head[: len(message)] + message[len(head) :]

    ethtool.read_statistics("eth0", ask)


def _frame(data: bytes) -> None:
    probe.arp_speaker(data, V4)
    probe.advertiser(data, V6)


_MACHINE = machine("mlx5-roce-pf-vfs")
_FILES = sorted(_MACHINE._files)
_LINKS = sorted(_MACHINE._links)


def tree(data: bytes) -> RecordedText:
    """A machine with other contents: pieces of two bytes, which name a file or link, and a text."""
    changed = copy.copy(_MACHINE)
    changed._files, changed._links = dict(_MACHINE._files), dict(_MACHINE._links)
    for piece in data.split(b"\0\n")[:64]:
        number = int.from_bytes(piece[:2], "little") % (len(_FILES) + len(_LINKS))
        if number < len(_FILES):
            changed._files[_FILES[number]] = piece[2:]
        else:
            target = piece[2:].decode(errors="surrogateescape")
            changed._links[_LINKS[number - len(_FILES)]] = target
    return changed


def _piece(path: str, content: bytes) -> bytes:
    places = [*_FILES, *_LINKS]
    return places.index(path).to_bytes(2, "little") + content


def _sysfs(data: bytes) -> None:
    root = tree(data)
    survey = devices.read_survey(root)
    devices.read_survey(root, brief=True)
    nets = [PlacedNet(one.name, one.position, one.numa_node) for one in survey.devices]
    topology_facts.facts_of(nets, root)
    seen = SysfsTree(root)
    dcb.read_ecn(seen, "ens1f0")
    list(netdev_usage.storage_servers(seen, OneFile(data)))
    addresses = [function.position.pci for function in survey.functions]
    each(
        lambda _: pci.read_pcie(survey, root),
        lambda _: pci_paths.read_bridges(addresses, root),
        lambda _: pci_paths.read_domains(addresses, root),
    )(data)


def _pci_config(data: bytes) -> None:
    pci_paths.acs_control(data)
    pci_paths.acs_control(data.ljust(4096, b"\0")[:4096])
    pci_paths.acs_control((bytes(256) + data).ljust(4096, b"\0")[:4096])


PROC = {
    "modules": (
        b"ib_core 507904 9 rdma_rxe,rdma_cm, Live 0x0\nrdma_rxe 131072 0\n",
        proc.read_modules,
    ),
    "neighbours": (
        b"IP address HW type Flags\n10.0.0.2 0x1 0x2 02:00:00:00:00:01 * eth0\n",
        proc.read_neighbours,
    ),
    "processors": (
        b"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: fpu hypervisor\n",
        proc.read_hypervisor,
    ),
    "limits of a process": (
        b"Limit Soft Hard Units\nMax locked memory         8388608  unlimited  bytes\n",
        lambda root: proc.memlock(1, root),
    ),
    "status of a process": (
        b"Name:\tsh\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
        lambda root: proc.user_and_lock(1, root),
    ),
    "environment of a process": (b"PATH=/bin\0A=b\0\0", lambda root: proc.variables(1, root)),
    "control group of a process": (
        b"0::/kubepods.slice/kubepods-pod7d1c_1.slice/cri-containerd-" + b"a" * 64 + b".scope\n",
        lambda root: proc.processes_of("7d1c-1", root),
    ),
}
STAT = b"1 (a b) S 1 1 1 0 -1 4194560 9 0 0 0 3 4 0 0 20 0 1 0 55 9999 77 1 1\nbtime 1700000000\n"
NFS = b"NV SERVER   PORT USE HOSTNAME\nv4 0a000001  801   1 server\nv4 " + b"f" * 32 + b" 801 1 b\n"


def _storage(data: bytes) -> None:
    list(netdev_usage.storage_servers(SysfsTree(_MACHINE), OneFile(data)))


def _gids(data: bytes) -> None:
    """Three lines: the value of an entry, its type, its interface."""
    value, kind, netdev, *_ = (*data.split(b"\n"), b"", b"")
    port = ("ib", "mlx5_0", "ports", "1")
    as_file(kind, *port, "gid_attrs", "types", "0")
    as_file(netdev, *port, "gid_attrs", "ndevs", "0")
    folder = as_file(value, *port, "gids", "0").parents[4]
    gids.listed(folder, "mlx5_0")
    gids.gid_table("mlx5_0", folder)
    gids.crowded({"mlx5_0": 1}, folder)


def _rdma_limits(data: bytes) -> None:
    text = data.decode(errors="replace")
    list(rdma_groups.read_limits(text))
    list(rdma_groups.read_current(text))


KERNEL = (
    FuzzTarget(
        "netlink answer",
        _answer,
        (
            _datagram((16, 2, LINK), (3, 2, b"")),
            _datagram((2, 0, bytes(4))),
            _datagram((3, 0x202, bytes(4) + _attributes((1, b"no\0")))),
        ),
    ),
    FuzzTarget("netlink link", each(rtnl_read.decode_interface, rtnl_vf.decode_physical), (LINK,)),
    FuzzTarget(
        "netlink address",
        each(lambda data: list(rtnl_read.decode_address(data)), rtnl_read.is_permanent),
        (ADDRESS,),
    ),
    FuzzTarget(
        "netlink route",
        each(lambda data: list(rtnl_read.decode_route(data, NAMES))),
        (ROUTE, ROUTE6),
    ),
    FuzzTarget(
        "netlink default route",
        each(
            rtnl_read.decode_default_route, lambda data: rtnl_read.resolve_nexthops({1, 2}, (data,))
        ),
        (DEFAULT, NEXTHOP),
    ),
    FuzzTarget("netlink rule", lambda data: list(rtnl_read.decode_rule(data)), (RULE,)),
    FuzzTarget(
        "netlink neighbour", lambda data: list(netdev_usage.decode_guest(data)), (NEIGHBOUR,)
    ),
    FuzzTarget(
        "netlink event",
        lambda data: events.decode_link_event(data, 0),
        (_datagram((16, 0, LINK), (20, 0, ADDRESS)),),
    ),
    FuzzTarget("uevent", lambda data: events.decode(data, 0), (UEVENT,)),
    FuzzTarget(
        "netlink of RDMA",
        each(rdma_read.decode_device, rdma_read.decode_port, rdma_read.decode_mode),
        (DEVICE, PORT, MODE),
    ),
    FuzzTarget(
        "netlink of flow control",
        lambda data: [dcb.decode_flow_control(data, "eth0", one) for one in ("mlx5_core", "x")],
        (DCB,),
    ),
    FuzzTarget("statistics of an interface", _statistics, (b"\2" + bytes(8) + b"rx_discards\0",)),
    FuzzTarget(
        "frames of neighbours",
        _frame,
        (
            bytes(14) + bytes.fromhex("0001080006040002") + MAC + V4.packed + MAC + V4.packed,
            bytes(20) + b"\x3a" + bytes(33) + b"\x88" + bytes(7) + V6.packed + b"\2\1" + MAC,
        ),
    ),
    FuzzTarget(
        "LLDP frame",
        lldp.announced,
        (frame(), frame("", more=tlv(127, b"\0\x12\x0f\1")), frame(ttl=0)[:-3]),
    ),
    FuzzTarget("configuration of a PCI function", _pci_config, (config(0x1D)[0x100:0x200],)),
    FuzzTarget(
        "sysfs",
        _sysfs,
        tuple(_piece(path, _MACHINE._files[path].strip()) for path in _FILES[:40:2])
        + tuple(_piece(path, _MACHINE._links[path].encode()) for path in _LINKS[:20:4]),
        most=512,
    ),
    FuzzTarget("counters", counters.as_number, (b"18446744073709551615", b"N/A (no PMA)"), most=64),
    *(FuzzTarget(f"proc, {name}", _of_file(read), (text,)) for name, (text, read) in PROC.items()),
    FuzzTarget(
        "proc, processor", _of_file(topology_facts.read_processor), (PROC["processors"][0],)
    ),
    FuzzTarget("proc, own process", _of_file(process.read_process), (STAT,)),
    FuzzTarget("servers of NFS", _storage, (NFS,)),
    FuzzTarget("GID table", _gids, (b"fe80:" + b"0000:" * 6 + b"0001\nRoCE v2\neth0",), most=512),
    FuzzTarget(
        "limits of RDMA objects",
        _rdma_limits,
        (b"mlx5_0 hca_handle=2 hca_object=2000\nrxe0 hca_handle=max hca_object=3\n",),
    ),
)
