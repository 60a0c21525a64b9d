"""The frames of a probe, and who counts as an answer; tests/vm/guest has what probing means."""

import socket
import struct
from contextlib import closing
from ipaddress import ip_address
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.adapters.kernel.netlink.rtnl_read import Interface
from kube_rdma.adapters.kernel.pod import probe
from kube_rdma.adapters.kernel.pod.errors import ETHERNET
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma.adapters.kernel.pod.probe import (
    Announcer,
    advertisement,
    advertiser,
    arp_announcement,
    arp_probe,
    arp_speaker,
    frames,
    packet_socket,
    solicitation,
)
from kube_rdma.model.attach.attachment import SeenLink
from kube_rdma.model.attach.steps import Announce

MAC = bytes.fromhex("020000000001")
V4, V6 = ip_address("10.9.0.1"), ip_address("fd00:9::1:2345")
OTHERS = {V4: ip_address("10.9.0.2"), V6: ip_address("fd00:9::2")}


def advertised(address):
    """An advertisement as a frame."""
    body = advertisement(MAC, address)
    head = struct.pack("!IHBB", 6 << 28, len(body), 58, 255)
    ends = address.packed + ip_address("ff02::1").packed
    return bytes.fromhex("333300000001") + MAC + b"\x86\xdd" + head + ends + body


def test_an_arp_probe_comes_from_nobody():
    """RFC 5227, section 2.1.1: neither the sender's address nor the target's MAC is said."""
    frame = arp_probe(MAC, V4)
    assert frame[:22].hex() == "ffffffffffff02000000000108060001080006040001"
    assert frame[22:] == MAC + bytes(4) + bytes(6) + V4.packed


def test_a_solicitation_comes_from_nobody_to_the_solicited_nodes():
    """RFC 4862, section 5.4.2; the ones' complement sum over all of it, with the checksum, is 0."""
    frame = solicitation(MAC, V6)
    assert frame[:14].hex() == "3333ff01234502000000000186dd"
    assert frame[14:22].hex() == "6000000000183aff"
    assert frame[22:38] == bytes(16)
    assert ip_address(frame[38:54]) == ip_address("ff02::1:ff01:2345")
    assert frame[54:56].hex() == "8700"
    assert frame[62:] == V6.packed
    words = (*struct.unpack("!28H", frame[22:]), 24, 58)
    assert sum(words) % 0xFFFF == 0


def test_who_says_that_an_address_is_its_own_is_heard():
    """Of this address only; a probe of somebody else says nothing."""
    assert arp_speaker(arp_announcement(MAC, V4), V4) == MAC
    assert arp_speaker(arp_announcement(MAC, OTHERS[V4]), V4) is None
    assert arp_speaker(arp_probe(MAC, V4), V4) is None
    assert advertiser(advertised(V6), V6) == MAC
    assert advertiser(advertised(OTHERS[V6]), V6) is None
    assert advertiser(solicitation(MAC, V6), V6) is None


def test_an_advertisement_without_a_mac_is_from_its_sender():
    """The option may be left out (RFC 4861, section 4.4)."""
    assert advertiser(advertised(V6)[:-8], V6) == MAC


@given(st.binary(max_size=120))
def test_noise_is_no_answer(noise):
    """Whatever comes, nothing breaks."""
    assert arp_speaker(noise, V4) is None
    assert advertiser(noise, V6) is None


@pytest.mark.parametrize("address", [V4, V6])
def test_what_hinders_an_announcement_stops_no_pod(tmp_path, address):
    """Refused too, here by a namespace that is none: the addresses are the pod's already."""
    link = Interface(SeenLink("net1", 7, 1500, MAC.hex(":"), up=True), ETHERNET, 0, "")
    file = tmp_path / "file"
    file.touch()
    with file.open() as opened, closing(Announcer(opened.fileno(), lambda _: link)) as announcer:
        with pytest.raises(Refused):
            open_inside(opened.fileno(), packet_socket)
        announcer.announce(Announce("net1", address))


class Heard:
    """A packet socket in which frames lie; `flood` has no end of them."""

    def __init__(self, flood=False):
        ours, others = socket.PACKET_HOST, socket.PACKET_OTHERHOST
        self.lie = (
            (b"%d" % number, ("eth0", 0x0806, others if number % 2 else ours, 1, MAC))
            for number in (count() if flood else range(4))
        )

    def settimeout(self, seconds):
        """As the real one: 0 never waits."""
        self.waits = seconds > 0

    def recvfrom(self, _size):
        """The next one."""
        for frame in self.lie:
            return frame
        raise TimeoutError if self.waits else BlockingIOError


def test_who_comes_late_reads_the_answers_that_came_in_time(monkeypatch):
    """The process had no processor: its time was over before its first look."""
    times = count(0, 100)
    monkeypatch.setattr(probe.time, "monotonic", lambda: next(times))
    assert list(frames(Heard(), 0.1)) == [b"0", b"2"]


def test_a_flood_ends_with_the_time(monkeypatch):
    """Whoever fills the network holds no pod's start up."""
    times = count(0, 0.01)
    monkeypatch.setattr(probe.time, "monotonic", lambda: next(times))
    assert len(list(frames(Heard(flood=True), 0.1))) < 1000
