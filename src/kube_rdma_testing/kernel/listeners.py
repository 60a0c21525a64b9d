"""Fakes of what the kernel announces, pushed by hand: uevents, interfaces, device nodes.

The real listeners are in kernel/netlink/events.py and kernel/device_nodes.py. Each fake refuses an
event that the real one would never yield.
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
    """A fake listener whose events a test pushes; its stream ends after `close`.

    `check` raises ValueError for an event that the real listener would never yield.
    """

    def __init__(self, check: Callable[[Event], None]) -> None:
        self._check = check
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def push(self, event: Event) -> None:
        """Let the listener yield `event`; raise ValueError if it is impossible."""
        self._check(event)
        self._queue.put_nowait(event)

    def close(self) -> None:
        """End the stream after the events pushed so far."""
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
    """A fake listener to uevents; `push` raises ValueError for a subsystem not listened to."""

    def __init__(self) -> None:
        super().__init__(_check_uevent)


class FakeRtnlEvents(FakeListener[RtnlEvent]):
    """A fake listener to routing netlink; `push` raises ValueError for an index below 1."""

    def __init__(self) -> None:
        super().__init__(_check_rtnl)


class FakeCharNodes(FakeListener[str]):
    """Fake nodes of /dev/infiniband and a listener to them; impossible names raise ValueError."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(_check_node)
        self.names = set[str]()
        for name in names:
            _check_node(name)
            self.names.add(name)

    def create(self, name: str) -> None:
        """Make a device node, as the kernel does; raise ValueError if it exists."""
        if name in self.names:
            raise ValueError(f"{name} is there already")
        self.push(name)
        self.names.add(name)

    def delete(self, name: str) -> None:
        """Remove a device node, as the kernel does; raise ValueError if there is none."""
        if name not in self.names:
            raise ValueError(f"{name} is not there")
        self.names.remove(name)
        self.push(name)

    def missing(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the paths of device nodes that do not exist."""
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
