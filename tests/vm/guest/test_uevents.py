"""The kernel's announcements as they really come, and forged ones that are not believed."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kube_rdma.adapters.kernel.netlink.events import Uevent, Uevents

from .world import PATIENCE, run

pytestmark = [pytest.mark.core, pytest.mark.kernel("lab.kernel=any")]

KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
FORGED = b"add@/f\0ACTION=add\0DEVPATH=/devices/virtual/infiniband/f\0SUBSYSTEM=infiniband\0"


async def heard(uevents, action, end):
    """Every event up to the one about this device; it must come within seconds."""
    events = [Uevent("none")]
    async with asyncio.timeout(PATIENCE):
        while (events[-1].action, events[-1].devpath.endswith(end)) != (action, True):
            events.append(await anext(uevents))
    return events


async def test_a_device_that_comes_and_goes_is_announced(cards, link):
    async with Uevents() as uevents:
        link("rxe0", cards[0])
        *_, added = await heard(uevents, "add", "/infiniband/rxe0")
        run("rdma", "link", "delete", "rxe0")
        *_, removed = await heard(uevents, "remove", "/infiniband/rxe0")
    assert {added.subsystem, removed.subsystem} == {"infiniband"}


async def test_its_device_nodes_are_announced_too(cards, link):
    async with Uevents() as uevents:
        link("rxe0", cards[0])
        *_, event = await heard(uevents, "add", "/infiniband_verbs/uverbs0")
    assert event.subsystem == "infiniband_verbs"


async def test_what_a_program_sends_is_not_believed(cards, link):
    """A listener that checks nothing gets the forgery; ours passes it over."""
    kind = (socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, KOBJECT_UEVENT)
    async with Uevents() as uevents:
        with socket.socket(*kind) as forger, socket.socket(*kind) as trusting:
            trusting.bind((0, KERNEL_GROUP))
            forger.sendto(FORGED, (0, KERNEL_GROUP))
            forger.sendto(FORGED, uevents._socket.getsockname())
            data, (sender, _) = trusting.recvfrom(4096)
        link("rxe0", cards[0])
        events = await heard(uevents, "add", "/infiniband/rxe0")
    assert (data, sender != 0) == (FORGED, True)
    assert not [event for event in events if event.devpath.endswith("/f")]
