"""Asks the network whether somebody has an address, and announces who has the address now.

The API server cannot know (docs/decisions/0007): pods of a node that is cut off live on with
addresses that are others' by now. So before a pod uses an address, the network is asked without a
sender's address, and no neighbour learns one. The question is an ARP probe (RFC 5227, section 2.1)
or the neighbour solicitation of duplicate address detection (RFC 4862, section 5.4). Afterwards an
announcement tells the neighbours, from a socket that was opened in the pod.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

from kube_base.errors import KubeError, Unavailable
from kube_rdma.adapters.kernel.locks import waited
from kube_rdma.adapters.kernel.netlink.codec import Netlink
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface, interface_named
from kube_rdma.adapters.kernel.netlink.rtnl_write import mac_bytes
from kube_rdma.adapters.kernel.pod.errors import ETHERNET, address_in_use, no_carrier, no_link_here
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.model.attach.steps import Announce, Probe
from kube_rdma.model.ipam import Address, InterfaceName

_ARP, _IPV4, _REQUEST = 0x0806, 0x0800, 1  # ETH_P_ARP, ETH_P_IP, ARPOP_REQUEST
_IPV6, _ICMPV6 = 0x86DD, 58  # ETH_P_IPV6, IPPROTO_ICMPV6
_SOLICITATION, _ADVERTISEMENT, _OVERRIDE, _TARGET_MAC = 135, 136, 0x20000000, 2
_BROADCAST, _HOPS = b"\xff" * 6, 255
_NOBODY, _ALL_NODES = IPv6Address("::"), "ff02::1"
_SOLICITED = IPv6Address("ff02::1:ff00:0")
_HEAD = 14  # bytes of an Ethernet header
_TIMES, _PAUSE = 3, 0.1  # questions, and the seconds after each in which answers are waited for
_LATE = 256  # frames that may lie in the socket when the time is over, about as many as it holds

_CLOSER = ThreadPoolExecutor(1, "announcer")  # one thread for all pods


class Announcer:
    """A sender of announcements (ARP, neighbour advertisements) of a pod's addresses.

    `link` returns an interface of the pod, or raises Unavailable. All IPv4 addresses share one
    packet socket, for closing one takes some 15 ms (synchronize_net in packet_release,
    net/packet/af_packet.c).
    """

    def __init__(self, namespace: int, link: Callable[[InterfaceName], Interface]) -> None:
        self._namespace = namespace
        self._link = link
        self._packet: socket.socket | None = None

    def close(self) -> None:
        """Close the packet socket in a thread, as closing may take 15 ms."""
        if self._packet:
            _CLOSER.submit(self._packet.close)
            self._packet = None

    def announce(self, step: Announce) -> None:
        """Announce an address once, on an Ethernet link.

        A failure is ignored, for example if the link is down.
        """
        with suppress(OSError, KubeError):
            link = self._link(step.name)
            if link.hardware != ETHERNET:
                return
            mac = mac_bytes(link.seen.mac)
            if isinstance(step.address, IPv4Address):
                frame = arp_announcement(mac, step.address)
                if self._packet is None:
                    self._packet = open_inside(self._namespace, packet_socket)
                self._packet.sendto(frame, (step.name, _ARP))
            else:
                with open_inside(self._namespace, _icmp_socket) as icmp:
                    icmp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOPS)
                    icmp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, step.name.encode())
                    icmp.bind((str(step.address), 0))
                    icmp.sendto(advertisement(mac, step.address), (_ALL_NODES, 0))


def arp_announcement(mac: bytes, address: IPv4Address) -> bytes:
    """Return the Ethernet frame that announces an IPv4 address."""
    return _arp_request(mac, address.packed, address)


def advertisement(mac: bytes, address: IPv6Address) -> bytes:
    """Return the ICMPv6 message that announces an address, without its checksum.

    The kernel fills in the checksum (RFC 3542, section 3.1).
    """
    head = struct.pack("!BBHI", _ADVERTISEMENT, 0, 0, _OVERRIDE)
    return head + address.packed + struct.pack("!BB", _TARGET_MAC, 1) + mac


def packet_socket() -> socket.socket:
    """Open a socket for Ethernet frames of this namespace; it receives none until it is bound."""
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


def _icmp_socket() -> socket.socket:
    return socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)


def probe(step: Probe, namespace: int, netlink: Netlink, patience: float) -> None:
    """Ask by ARP or neighbour solicitation whether another host has an address.

    `netlink` is bound to the same namespace. The carrier of a link that has just come up is awaited
    for `patience` seconds, since without one nobody hears the question. Raise Refused when a host
    answers, Unavailable when nobody can be asked.
    """
    link = interface_named(netlink, step.name)
    if link is None:
        raise no_link_here(step.name)

    def has_carrier() -> bool:
        now = interface_named(netlink, step.name)
        return now is not None and bool(now.carrier)

    if not waited(has_carrier, patience):
        raise no_carrier(step, patience)
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
    """Return the Ethernet frame that asks who has an IPv4 address."""
    return _arp_request(mac, bytes(4), address)


def _arp_request(mac: bytes, sender: bytes, target: IPv4Address) -> bytes:
    kind = struct.pack("!HHBBH", ETHERNET, _IPV4, len(mac), 4, _REQUEST)
    return _ethernet(_BROADCAST, mac, _ARP) + kind + mac + sender + bytes(6) + target.packed


def solicitation(mac: bytes, address: IPv6Address) -> bytes:
    """Return the Ethernet frame that asks the solicited-node group who has an address.

    See RFC 4291, section 2.7.1.
    """
    group = IPv6Address(int(_SOLICITED) | int(address) & 0xFFFFFF)
    ends = _NOBODY.packed + group.packed
    body = struct.pack("!BBHI", _SOLICITATION, 0, 0, 0) + address.packed
    checksum = _checksum(ends + struct.pack("!II", len(body), _ICMPV6) + body)
    body = body[:2] + struct.pack("!H", checksum) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, _HOPS)
    return _ethernet(b"\x33\x33" + group.packed[-4:], mac, _IPV6) + head + ends + body


def arp_speaker(frame: bytes, address: Address) -> bytes | None:
    """Return the MAC of the host that claims the address in this ARP frame, None if none does."""
    arp = frame[_HEAD : _HEAD + 28]
    return arp[8:14] if len(arp) == 28 and arp[14:18] == address.packed else None


def advertiser(frame: bytes, address: Address) -> bytes | None:
    """Return the MAC of the host that advertises the address in this frame, None if none does."""
    packet = frame[_HEAD:]
    is_advertisement = len(packet) >= 64 and packet[6] == _ICMPV6 and packet[40] == _ADVERTISEMENT
    if not is_advertisement or packet[48:64] != address.packed:
        return None
    option = packet[64:72]
    return option[2:] if option[:2] == bytes((_TARGET_MAC, 1)) else frame[6:12]


def frames(packet: socket.socket, until: float) -> Iterator[bytes]:
    """Yield received frames until the time `until`, without those for other hosts or VLANs.

    If this process was not scheduled in time, answers wait in the socket. They are read too, up to
    a number that a flood of the network cannot raise.
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
    """Return what a probe of an address needs: protocol, question, decoder of answers."""
    if isinstance(address, IPv4Address):
        return _ARP, arp_probe(mac, address), arp_speaker
    return _IPV6, solicitation(mac, address), advertiser


def _ethernet(to: bytes, mac: bytes, protocol: int) -> bytes:
    return to + mac + struct.pack("!H", protocol)


def _checksum(data: bytes) -> int:
    """Return the checksum of the Internet protocols (RFC 1071); `data` has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
