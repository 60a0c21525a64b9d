"""Asking the network whether somebody has an address, before a pod uses it.

What the API server cannot know (docs/decisions/0007): pods of a node that is cut off live on with
addresses that are others' by now. An ARP probe (RFC 5227, section 2.1) or the neighbour
solicitation of duplicate address detection (RFC 4862, section 5.4), each from nobody, so that no
neighbour learns anything from it. announce.py tells the neighbours afterwards.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.codec import Netlink
from kube_rdma.adapters.kernel.netlink.rtnl_read import interface_named
from kube_rdma.adapters.kernel.netlink.rtnl_write import mac_bytes
from kube_rdma.adapters.kernel.pod.announce import packet_socket
from kube_rdma.adapters.kernel.pod.errors import ETHERNET, address_in_use, no_carrier, no_link_here
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.model.attach.steps import Probe
from kube_rdma.model.ipam import Address

_TIMES, _PAUSE = 3, 0.1  # questions, and the seconds after each in which answers are waited for
_LATE = 256  # frames that may lie in the socket when the time is over, about as many as it holds
_CARRIER_PAUSE = 0.02  # seconds between two looks
_ARP, _IPV4, _IPV6, _ICMPV6 = 0x0806, 0x0800, 0x86DD, 58
_REQUEST, _SOLICITATION, _ADVERTISEMENT, _TARGET_MAC = 1, 135, 136, 2
_BROADCAST, _HOPS = b"\xff" * 6, 255
_NOBODY, _SOLICITED = IPv6Address("::"), IPv6Address("ff02::1:ff00:0")
_HEAD = 14  # bytes of an Ethernet header


def probe(step: Probe, namespace: int, netlink: Netlink, patience: float) -> None:
    """Return when nobody answers for the address; `netlink` is bound to the same namespace.

    A link that has just come up may be without a carrier for a while, and nobody would hear the
    question. Raise Refused when somebody answers, Unavailable when nobody can be asked.
    """
    link = interface_named(netlink, step.name)
    if link is None:
        raise no_link_here(step.name)
    _await_carrier(step, netlink, patience)
    mac = mac_bytes(link.seen.mac)
    protocol, frame, speaker = _talk(mac, step.address)
    try:
        with open_inside(namespace, packet_socket) as packet:
            packet.bind((step.name, protocol))
            for _ in range(_TIMES):
                packet.send(frame)
                for heard in frames(packet, time.monotonic() + _PAUSE):
                    if (other := speaker(heard, step.address)) and other != mac:
                        raise address_in_use(step, other.hex(":"))
    except OSError as error:
        raise Unavailable(
            f"the network cannot be asked on {step.name} about {step.address} ({error.strerror})"
        ) from error


def arp_probe(mac: bytes, address: IPv4Address) -> bytes:
    """The Ethernet frame."""
    kind = struct.pack("!HHBBH", ETHERNET, _IPV4, len(mac), 4, _REQUEST)
    nobody = bytes(4)
    return _ethernet(_BROADCAST, mac, _ARP) + kind + mac + nobody + bytes(6) + address.packed


def solicitation(mac: bytes, address: IPv6Address) -> bytes:
    """The Ethernet frame, to the solicited-node group (RFC 4291, section 2.7.1)."""
    group = IPv6Address(int(_SOLICITED) | int(address) & 0xFFFFFF)
    ends = _NOBODY.packed + group.packed
    body = struct.pack("!BBHI", _SOLICITATION, 0, 0, 0) + address.packed
    checksum = _checksum(ends + struct.pack("!II", len(body), _ICMPV6) + body)
    body = body[:2] + struct.pack("!H", checksum) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, _HOPS)
    return _ethernet(b"\x33\x33" + group.packed[-4:], mac, _IPV6) + head + ends + body


def arp_speaker(frame: bytes, address: Address) -> bytes | None:
    """The MAC of who says in this frame that the address is its own."""
    arp = frame[_HEAD : _HEAD + 28]
    return arp[8:14] if len(arp) == 28 and arp[14:18] == address.packed else None


def advertiser(frame: bytes, address: Address) -> bytes | None:
    """The MAC of who advertises the address in this frame."""
    packet = frame[_HEAD:]
    is_advertisement = len(packet) >= 64 and packet[6] == _ICMPV6 and packet[40] == _ADVERTISEMENT
    if not is_advertisement or packet[48:64] != address.packed:
        return None
    option = packet[64:72]
    return option[2:] if option[:2] == bytes((_TARGET_MAC, 1)) else frame[6:12]


def frames(packet: socket.socket, until: float) -> Iterator[bytes]:
    """What comes until then; frames for others, of another VLAN for example, are left out.

    A process that gets no processor for a while finds the time over and answers in the socket:
    these count too, up to a number that nobody who floods the network can raise.
    """
    late = 0
    while (left := until - time.monotonic()) > 0 or (late := late + 1) <= _LATE:
        packet.settimeout(max(left, 0))
        try:
            frame, origin = packet.recvfrom(2048)
        except (TimeoutError, BlockingIOError):
            return
        if origin[2] != socket.PACKET_OTHERHOST:
            yield frame


def _talk(
    mac: bytes, address: Address
) -> tuple[int, bytes, Callable[[bytes, Address], bytes | None]]:
    """Of the address's family: the protocol, the question, and who speaks in an answer."""
    if isinstance(address, IPv4Address):
        return _ARP, arp_probe(mac, address), arp_speaker
    return _IPV6, solicitation(mac, address), advertiser


def _await_carrier(step: Probe, netlink: Netlink, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not ((link := interface_named(netlink, step.name)) and link.carrier):
        if time.monotonic() >= deadline:
            raise no_carrier(step, patience)
        time.sleep(_CARRIER_PAUSE)


def _ethernet(to: bytes, mac: bytes, protocol: int) -> bytes:
    return to + mac + struct.pack("!H", protocol)


def _checksum(data: bytes) -> int:
    """Of the Internet protocols (RFC 1071); `data` has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
