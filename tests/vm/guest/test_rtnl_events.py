"""Routing netlink's announcements as they really come: what a port's state and GIDs follow."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from kube_rdma.adapters.kernel.netlink.codec import Message, encode
from kube_rdma.adapters.kernel.netlink.events import News, RtnlEvent, RtnlEvents

from .world import PATIENCE, run

pytestmark = [pytest.mark.core, pytest.mark.kernel("lab.kernel=any")]

NEW_LINK = 16


async def until_heard(events, news, card):
    """Wait for this news about an interface; a link's comes with its name."""
    name = card if news is News.LINK else ""
    expected = RtnlEvent(news, socket.if_nametoindex(card), name)
    async with asyncio.timeout(PATIENCE):
        while await anext(events) != expected:
            pass


async def test_an_interface_that_goes_down_is_heard(cards):
    async with RtnlEvents() as events:
        run("ip", "link", "set", cards[0], "down")
        await until_heard(events, News.LINK, cards[0])


async def test_an_address_that_comes_and_goes_is_heard(cards):
    async with RtnlEvents() as events:
        run("ip", "address", "add", "192.168.50.11/24", "dev", cards[0])
        await until_heard(events, News.ADDRESS, cards[0])
        run("ip", "address", "del", "192.168.50.11/24", "dev", cards[0])
        await until_heard(events, News.ADDRESS_GONE, cards[0])


async def test_what_a_program_sends_is_not_believed(cards):
    forged = encode(Message(NEW_LINK, 0, 0, struct.pack("=BxHiII", 0, 0, 4711, 0, 0)))
    async with RtnlEvents() as events:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as forger:
            forger.sendto(forged, events._socket.getsockname())
        run("ip", "link", "set", cards[0], "down")
        async with asyncio.timeout(PATIENCE):
            first = await anext(events)
    assert first.interface != 4711
