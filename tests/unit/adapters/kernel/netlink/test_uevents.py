"""The kernel's announcements: which are believed, which are passed on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.kernel.netlink.events import LOST, Uevent, Uevents, decode
from kube_rdma_testing.kernel.listeners import FakeUevents

KERNEL = 0
LOOPBACK = Path("/sys/class/net/lo/uevent")


def announcement(**properties):
    head = f"{properties['ACTION']}@{properties['DEVPATH']}"
    return "\0".join([head, *(f"{k}={v}" for k, v in properties.items()), ""]).encode()


RXE = announcement(
    ACTION="add", DEVPATH="/devices/virtual/infiniband/rxe0", SUBSYSTEM="infiniband", SEQNUM="42"
)


def test_an_rdma_event_is_passed_on_with_its_properties():
    event = decode(RXE, KERNEL)
    assert (event.action, event.subsystem) == ("add", "infiniband")
    assert event.devpath == "/devices/virtual/infiniband/rxe0"
    assert ("SEQNUM", "42") in event.properties


def test_only_the_kernel_is_believed():
    assert decode(RXE, 4711) is None


@pytest.mark.parametrize("subsystem", ["infiniband", "infiniband_verbs", "infiniband_mad", "net"])
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


async def test_the_listener_opens_and_closes_and_can_be_cancelled():
    async with Uevents() as uevents:
        waiting = asyncio.ensure_future(anext(uevents))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


def announce_loopback():
    """Writing to a uevent file makes the kernel announce that device again."""
    LOOPBACK.write_text("change")


@pytest.mark.skipif(not os.access(LOOPBACK, os.W_OK), reason="sysfs is read-only here")
async def test_the_running_kernel_is_heard():
    async with Uevents() as uevents:
        announce_loopback()
        async with asyncio.timeout(5):
            async for event in uevents:
                if event.devpath.endswith("/net/lo"):
                    break
    assert (event.action, event.subsystem) == ("change", "net")


async def test_the_fake_yields_what_was_pushed_until_it_is_closed():
    first, lost = Uevent("add", "infiniband", "/devices/rxe0"), Uevent(LOST)
    fake = FakeUevents()
    fake.push(first)
    fake.push(lost)
    fake.close()
    async with fake as uevents:
        assert [event async for event in uevents] == [first, lost]


def test_the_fake_refuses_what_the_listener_never_yields():
    with pytest.raises(ValueError, match="passes over subsystem 'block'"):
        FakeUevents().push(Uevent("add", "block"))
