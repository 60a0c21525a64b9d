"""What a kernel answers about virtual functions over routing netlink, and what it takes."""

from __future__ import annotations

import errno
import struct

from kube_rdma.adapters.kernel.netlink.codec import Attribute, encode_attributes
from kube_rdma.adapters.kernel.netlink.rtnl_vf import sent
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.pools import FunctionPlace
from kube_rdma_testing.kernel.network import refusal

INDEX = 7
PLACE = FunctionPlace(PlannedHostLink(INDEX, "ens1f0"), "0000:81:00.0", 0)


def function(number, mac="02:00:00:00:00:01", *, told=True, vlan=0, tag=b"\x81\x00", link=0):
    """One IFLA_VF_INFO with all that rtnl_fill_vfinfo puts into it, statistics left out."""
    flag = 1 if told else 0xFFFFFFFF
    octets = bytes.fromhex(mac.replace(":", ""))
    tagged = struct.pack("=III2s2x", number, vlan, 0, tag)
    parts = [
        Attribute(1, struct.pack("=I", number) + octets + bytes(32 - len(octets))),
        Attribute(13, b"\xff" * 32),
        Attribute(2, struct.pack("=III", number, vlan, 0)),
        Attribute(6, struct.pack("=III", number, 1, 100)),
        Attribute(3, struct.pack("=II", number, 100)),
        Attribute(4, struct.pack("=II", number, flag)),
        Attribute(5, struct.pack("=II", number, link)),
        Attribute(7, struct.pack("=II", number, 0xFFFFFFFF)),
        Attribute(9, struct.pack("=II", number, flag)),
        Attribute(12, encode_attributes([Attribute(1, tagged)])),
    ]
    return Attribute(1, encode_attributes(parts))


def answer(*functions, hardware=1, name=b"ens1f0", index=INDEX, has_parent=True, macs=()):
    """An answer to GETLINK that was asked with RTEXT_FILTER_VF; `macs` are the one and the first.

    `has_parent`: it tells what it sits on.
    """
    head = struct.pack("=BxHiII", 0, hardware, index, 1, 0)
    found = [Attribute(3, name + b"\0"), Attribute(21, struct.pack("=I", len(functions)))]
    octets = [bytes.fromhex(mac.replace(":", "")) for mac in macs]
    found += map(Attribute, (1, 54), octets)  # IFLA_ADDRESS, IFLA_PERM_ADDRESS
    position = [Attribute(56, b"0000:81:00.0\0"), Attribute(57, b"pci\0")] if has_parent else []
    return head + encode_attributes(
        [*found, Attribute(22, encode_attributes(functions)), *position]
    )


class Kernel:
    """Answers requests as a node with these interfaces; `refuse` is its errno for settings."""

    def __init__(self, *interfaces, refuse=0):
        self.interfaces, self.refuse, self.set = interfaces, refuse, []

    def ask(self, kind, body, *, dump=False, more=0):
        """As Netlink.ask."""
        index = struct.unpack_from("=BxHiII", body)[2]
        if kind == 19:
            if self.refuse:
                raise refusal(self.refuse)
            self.set.append((index, sent(body)))
            return ()
        found = [one for one in self.interfaces if dump or index_of(one) == index]
        if not found:
            raise refusal(errno.ENODEV)
        return tuple(found)


def index_of(payload):
    return struct.unpack_from("=BxHiII", payload)[2]
