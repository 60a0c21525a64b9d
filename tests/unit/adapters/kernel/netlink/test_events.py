"""What the kernel announces: which events are believed, what they are about."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.kernel.netlink.codec import Message, encode
from kube_rdma.adapters.kernel.netlink.events import (
    LOST,
    News,
    RtnlEvent,
    RtnlEvents,
    Uevent,
    Uevents,
    decode,
    decode_link_event,
)
from kube_rdma_testing.kernel.listeners import FakeRtnlEvents, FakeUevents

KERNEL = 0
LINK = struct.pack("=BxHiII", 0, 1, 7, 0x1043, 0)  # struct ifinfomsg of interface 7
ADDRESS = struct.pack("=BBBBI", 2, 24, 0, 0, 9)  # struct ifaddrmsg of interface 9


@pytest.mark.parametrize(
    ("kind", "body", "event"),
    [
        (16, LINK, RtnlEvent(News.LINK, 7)),
        (17, LINK, RtnlEvent(News.LINK_GONE, 7)),
        (20, ADDRESS, RtnlEvent(News.ADDRESS, 9)),
        (21, ADDRESS, RtnlEvent(News.ADDRESS_GONE, 9)),
    ],
)
def test_links_and_addresses_are_told_with_their_interface(kind, body, event):
    assert decode_link_event(encode(Message(kind, 0, 0, body)), KERNEL) == (event,)


def test_one_datagram_may_tell_several_things():
    datagram = encode(Message(16, 0, 0, LINK)) + encode(Message(20, 0, 0, ADDRESS))
    assert [event.news for event in decode_link_event(datagram, KERNEL)] == [
        News.LINK,
        News.ADDRESS,
    ]


def test_only_the_kernel_is_believed():
    assert decode_link_event(encode(Message(16, 0, 0, LINK)), 4711) == ()


def test_other_messages_are_passed_over():
    assert decode_link_event(encode(Message(24, 0, 0, LINK)), KERNEL) == ()
    assert decode_link_event(encode(Message(16, 0, 0, b"\0")), KERNEL) == ()


def test_what_cannot_be_read_may_have_been_anything():
    assert decode_link_event(b"\x01\x02", KERNEL) == (RtnlEvent(News.LOST),)


@given(st.binary(max_size=200))
def test_garbage_is_no_error(garbage):
    assert all(isinstance(event, RtnlEvent) for event in decode_link_event(garbage, KERNEL))


@pytest.mark.parametrize("listener", [Uevents, RtnlEvents])
async def test_the_listener_opens_and_closes_and_can_be_cancelled(listener):
    async with listener() as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


# Sets the loopback interface of a new network namespace up and waits to be told of it. The kernel
# answers with two events, of the link and of the address 127.0.0.1 that it gives itself.
SCRIPT = """
import asyncio, fcntl, socket, struct
from kube_rdma.adapters.kernel.netlink.events import News, RtnlEvents

async def main():
    heard = set()
    async with RtnlEvents() as events, asyncio.timeout(20):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, 0x8914, struct.pack("16sh22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
        async for event in events:
            heard.add(event.news)
            if heard >= {News.LINK, News.ADDRESS}:
                print(event.interface)
                return

asyncio.run(main())
"""


def in_new_network(*command):
    argv = ["unshare", "--user", "--map-root-user", "--net", *command]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.skipif(
    not shutil.which("unshare") or in_new_network("true").returncode != 0,
    reason="no user namespaces here",
)
def test_the_running_kernel_is_heard():
    done = in_new_network(sys.executable, "-c", SCRIPT)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    ("fake", "pushed"),
    [
        (FakeRtnlEvents, (RtnlEvent(News.LINK, 3), RtnlEvent(News.LOST))),
        (FakeUevents, (Uevent("add", "infiniband", "/devices/rxe0"), Uevent(LOST))),
    ],
)
async def test_the_fake_yields_what_was_pushed_until_it_is_closed(fake, pushed):
    fake = fake()
    for event in pushed:
        fake.push(event)
    fake.close()
    async with fake as events:
        assert [event async for event in events] == list(pushed)


def test_the_fake_refuses_an_interface_that_cannot_be():
    with pytest.raises(ValueError, match="counts interfaces from 1"):
        FakeRtnlEvents().push(RtnlEvent(News.LINK))


LOOPBACK = Path("/sys/class/net/lo/uevent")


def announcement(**properties):
    head = f"{properties['ACTION']}@{properties['DEVPATH']}"
    return "\0".join([head, *(f"{k}={v}" for k, v in properties.items()), ""]).encode()


RXE = announcement(
    ACTION="add", DEVPATH="/devices/virtual/infiniband/rxe0", SUBSYSTEM="infiniband", SEQNUM="42"
)


def test_of_an_rdma_event_its_device_is_passed_on():
    rxe = Uevent("add", "infiniband", "/devices/virtual/infiniband/rxe0")
    assert decode(RXE, KERNEL) == rxe


def test_only_uevents_of_the_kernel_are_believed():
    assert decode(RXE, 4711) is None


@pytest.mark.parametrize(
    "subsystem", ["infiniband", "infiniband_verbs", "infiniband_mad", "net", "vfio", "vfio-dev"]
)
def test_these_subsystems_are_passed_on(subsystem):
    assert decode(announcement(ACTION="add", DEVPATH="/x", SUBSYSTEM=subsystem), KERNEL)


def test_of_misc_only_the_connection_manager_is_passed_on():
    misc = {"ACTION": "add", "DEVPATH": "/devices/virtual/misc/x", "SUBSYSTEM": "misc"}
    assert decode(announcement(**misc, DEVNAME="infiniband/rdma_cm"), KERNEL)
    assert decode(announcement(**misc, DEVNAME="fuse"), KERNEL) is None


def test_other_subsystems_are_passed_over():
    assert decode(announcement(ACTION="add", DEVPATH="/x", SUBSYSTEM="block"), KERNEL) is None


@given(st.binary(max_size=200))
def test_garbage_is_passed_over_without_an_error(garbage):
    event = decode(garbage, KERNEL)
    assert event is None or event.action


def announce_loopback():
    """Writing to a uevent file makes the kernel announce that device again."""
    LOOPBACK.write_text("change")


@pytest.mark.skipif(not os.access(LOOPBACK, os.W_OK), reason="sysfs is read-only here")
async def test_uevents_of_the_running_kernel_are_heard():
    async with Uevents() as uevents:
        announce_loopback()
        async for event in uevents:
            if event.devpath.endswith("/net/lo"):
                break
    assert (event.action, event.subsystem) == ("change", "net")


def test_the_fake_refuses_what_the_listener_never_yields():
    with pytest.raises(ValueError, match="passes over subsystem 'block'"):
        FakeUevents().push(Uevent("add", "block"))
