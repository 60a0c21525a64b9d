"""Telling the neighbours who has an address now, from a socket that was opened in the pod.

An ARP announcement (RFC 5227, section 2.3) or an unsolicited neighbour advertisement (RFC 4861,
section 7.2.6): an address that was another pod's a minute ago works at once.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface
from kube_rdma.adapters.kernel.netlink.rtnl_write import mac_bytes
from kube_rdma.adapters.kernel.pod.errors import ETHERNET
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.model.attach.steps import Announce
from kube_rdma.model.ipam import InterfaceName

_ARP, _IPV4, _REQUEST = 0x0806, 0x0800, 1  # ETH_P_ARP, ETH_P_IP, ARPOP_REQUEST
_BROADCAST = b"\xff" * 6
_ADVERTISEMENT, _OVERRIDE, _TARGET_MAC = 136, 0x20000000, 2
_ALL_NODES = "ff02::1"

_CLOSER = ThreadPoolExecutor(1, "announcer")  # one thread for all pods


class Announcer:
    """Sends for one pod; `link` shows an interface of it, or raises Unavailable.

    One packet socket for all: closing it waits until no processor can still use it (synchronize_net
    in packet_release, net/packet/af_packet.c), some 15 ms each time, which no pod should wait for.
    """

    def __init__(self, namespace: int, link: Callable[[InterfaceName], Interface]) -> None:
        self._namespace = namespace
        self._link = link
        self._packet: socket.socket | None = None

    def close(self) -> None:
        """Close what was opened, where nobody waits for it."""
        if self._packet:
            _CLOSER.submit(self._packet.close)
            self._packet = None

    def announce(self, step: Announce) -> None:
        """Send it once. Never raises: a link that is down or no Ethernet has nobody to tell."""
        with suppress(OSError, Unavailable):
            link = self._link(step.name)
            if link.hardware != ETHERNET:
                return
            mac = mac_bytes(link.seen.mac)
            if isinstance(step.address, IPv4Address):
                frame = arp_announcement(mac, step.address)
                self._packets().sendto(frame, (step.name, _ARP))
            else:
                self._advertise(step, step.address, mac)

    def _packets(self) -> socket.socket:
        if self._packet is None:
            self._packet = open_inside(self._namespace, packet_socket)
        return self._packet

    def _advertise(self, step: Announce, address: IPv6Address, mac: bytes) -> None:
        with open_inside(self._namespace, _raw) as raw:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, step.name.encode())
            raw.bind((str(address), 0))
            raw.sendto(advertisement(mac, address), (_ALL_NODES, 0))


def arp_announcement(mac: bytes, address: IPv4Address) -> bytes:
    """The Ethernet frame."""
    head = _BROADCAST + mac + struct.pack("!H", _ARP)
    kind = struct.pack("!HHBBH", ETHERNET, _IPV4, len(mac), 4, _REQUEST)
    return head + kind + mac + address.packed + bytes(len(mac)) + address.packed


def advertisement(mac: bytes, address: IPv6Address) -> bytes:
    """The ICMPv6 message; the kernel fills in its checksum (RFC 3542, section 3.1)."""
    head = struct.pack("!BBHI", _ADVERTISEMENT, 0, 0, _OVERRIDE)
    return head + address.packed + struct.pack("!BB", _TARGET_MAC, 1) + mac


def packet_socket() -> socket.socket:
    """For whole Ethernet frames of this namespace; it hears none until it is bound."""
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


def _raw() -> socket.socket:
    return socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
