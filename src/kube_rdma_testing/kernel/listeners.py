"""Fakes of what the kernel announces, pushed by hand: uevents, interfaces, device nodes.

Beside kernel/netlink/events.py and kernel/device_nodes.py. Each refuses an event
that the real listener would never yield.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Generic, Self, TypeVar

from kube_rdma.adapters.kernel.netlink.events import LOST, SUBSYSTEMS, News, RtnlEvent, Uevent

Event = TypeVar("Event")

_NODE = re.compile(r"(uverbs|umad|issm)[0-9]+|rdma_cm")


class FakeListener(Generic[Event]):
    """The same door with events pushed by hand; it ends when `close` was called.

    `check` raises ValueError for an event that the real listener would never yield.
    """

    def __init__(self, check: Callable[[Event], None]) -> None:
        self._check = check
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def push(self, event: Event) -> None:
        """Announce `event`."""
        self._check(event)
        self._queue.put_nowait(event)

    def close(self) -> None:
        """End the stream after what was pushed so far."""
        self._queue.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        return event


class FakeUevents(FakeListener[Uevent]):
    """Events pushed by hand; ValueError for one that the real listener would never yield."""

    def __init__(self) -> None:
        super().__init__(_check_uevent)


class FakeRtnlEvents(FakeListener[RtnlEvent]):
    """Events pushed by hand; ValueError for one that the kernel never sends."""

    def __init__(self) -> None:
        super().__init__(_check_rtnl)


class FakeCharNodes(FakeListener[str]):
    """The same door over names; ValueError for what no /dev/infiniband shows."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(_check_node)
        self.names = set[str]()
        for name in names:
            _check_node(name)
            self.names.add(name)

    def create(self, name: str) -> None:
        """The kernel makes a node."""
        if name in self.names:
            raise ValueError(f"{name} is there already")
        self.push(name)
        self.names.add(name)

    def delete(self, name: str) -> None:
        """The kernel removes a node."""
        if name not in self.names:
            raise ValueError(f"{name} is not there")
        self.names.remove(name)
        self.push(name)

    def missing(self, paths: Iterable[str]) -> frozenset[str]:
        """As the function of this name."""
        return frozenset(path for path in paths if path.rpartition("/")[2] not in self.names)


def _check_node(name: str) -> None:
    if not _NODE.fullmatch(name):
        raise ValueError(f"the RDMA core makes no node {name!r}")


def _check_uevent(event: Uevent) -> None:
    if event.action != LOST and event.subsystem not in SUBSYSTEMS | {"misc"}:
        raise ValueError(f"the listener passes over subsystem {event.subsystem!r}")


def _check_rtnl(event: RtnlEvent) -> None:
    if event.news is not News.LOST and event.interface < 1:
        raise ValueError("the kernel counts interfaces from 1")
