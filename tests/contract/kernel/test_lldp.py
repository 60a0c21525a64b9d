"""LLDP frames on a fake interface, and on one end of a real pair in a namespace of its own."""

from __future__ import annotations

import select
import socket
import subprocess
from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.lldp import GROUPS, MOST_BYTES, LldpSocket
from kube_rdma.adapters.kernel.pod.namespaces import open_inside
from kube_rdma_testing.kernel.lldp import FakeLldp
from tests.kit.lldp import SWITCH, frame
from tests.unit.adapters.kernel.pod.test_namespaces import holder, needs_root

GOOD = frame()


class FakeWorld:
    """The fake's interface card0."""

    def __init__(self):
        self.kernel = FakeLldp(["card0"])
        self.open, self.rename = self.kernel.opened, self.kernel.rename
        self.leave = self.kernel.leave

    def send(self, data):
        self.kernel.send("card0", data)


class RealWorld:
    """The interface card0 of a namespace, whose other end is a switch."""

    def __init__(self, process):
        self.process = process
        self.namespace = Path(f"/proc/{process.pid}/ns/net")
        self.ip("link", "add", "card0", "type", "veth", "peer", "name", "switch0")
        for name in ("card0", "switch0"):
            self.ip("link", "set", name, "up")
        self.switch = open_inside(self.namespace, self._sender)

    def ip(self, *words):
        target = ("nsenter", f"--net={self.namespace}", "ip", *words)
        subprocess.run(target, check=True, capture_output=True)

    def _sender(self):
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sender.bind(("switch0", 0))
        return sender

    def open(self, name):
        return open_inside(self.namespace, lambda: LldpSocket(name))

    def send(self, data):
        self.switch.send(data)

    def rename(self, name, other):
        self.ip("link", "set", name, "down")
        self.ip("link", "set", name, "name", other)
        self.ip("link", "set", other, "up")

    def leave(self, name):
        self.ip("link", "del", name)


@pytest.fixture(params=["fake", pytest.param("real", marks=needs_root)])
def world(request):
    if request.param == "fake":
        yield FakeWorld()
        return
    with holder() as process:
        world = RealWorld(process)
        with world.switch:
            yield world


def received(one):
    """The next frame; the kernel may have a word about the interface before it."""
    while True:
        ready, _, _ = select.select([one], [], [], 30)
        assert ready, "no frame came"
        if data := one.receive():
            return data


def test_frames_of_all_three_groups_arrive(world):
    one = world.open("card0")
    for group in GROUPS:
        world.send(group + GOOD[6:])
        assert received(one)[:6] == group
    one.close()


def test_all_other_frames_do_not(world):
    """Another group, another host, another protocol, and what is too long for a frame."""
    one = world.open("card0")
    for other in (
        bytes.fromhex("0180c2000001") + GOOD[6:],
        bytes.fromhex("0180c3000000") + GOOD[6:],
        SWITCH + GOOD[6:],
        GOOD[:12] + b"\x08\x00" + GOOD[14:],
    ):
        world.send(other)
    world.send(GOOD)
    assert received(one) == GOOD
    assert one.receive() is None
    one.close()


def test_a_frame_of_the_greatest_length_arrives_whole(world):
    one = world.open("card0")
    whole = GOOD.ljust(1514, b"\0")
    assert len(whole) <= MOST_BYTES
    world.send(whole)
    assert received(one) == whole
    one.close()


def test_an_interface_keeps_its_socket_under_another_name(world):
    one = world.open("card0")
    world.rename("card0", "card1")
    assert one.interface == "card1"
    if isinstance(world, RealWorld):  # it was down meanwhile
        world.send(GOOD)
        assert received(one) == GOOD
    one.close()


def test_the_socket_of_an_interface_that_is_gone_has_no_name(world):
    one = world.open("card0")
    assert one.interface == "card0"
    world.leave("card0")
    assert one.interface == ""
    assert one.receive() is None
    one.close()


def test_an_interface_that_is_not_there_has_no_socket(world):
    with pytest.raises(OSError, match=r"No such device|no interface"):
        world.open("card9")


@needs_root
def test_what_the_node_sends_itself_and_what_another_vlan_gets_do_not_arrive():
    with holder() as process:
        world = RealWorld(process)
        one = world.open("card0")
        with world.switch, open_inside(world.namespace, world._sender) as own:
            own.bind(("card0", 0))
            own.send(GOOD)
            world.send(GOOD[:12] + bytes.fromhex("81000064") + GOOD[12:])
            world.send(GOOD)
            assert received(one) == GOOD
            assert one.receive() is None
        one.close()


@needs_root
def test_a_second_socket_gets_a_copy_as_that_of_lldpd():
    with holder() as process:
        world = RealWorld(process)
        first, second = world.open("card0"), world.open("card0")
        with world.switch:
            world.send(GOOD)
            assert received(first) == received(second) == GOOD
        for one in (first, second):
            one.close()
