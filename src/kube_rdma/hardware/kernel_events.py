"""Defines the kernel interfaces of the agent as one value, so that tests hand in their own.

What the kernel announces about cards ends in one Debounce. An announcement says only that something
happened; a new Survey shows what is true now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path

import structlog

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import Part
from kube_rdma.adapters.kernel.netlink.events import LOST, News, RtnlEvent, Uevent
from kube_rdma.adapters.kernel.sysfs.counters import PortReading
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model.card import Use
from kube_rdma.model.device import LinkLayer, PodLink
from kube_rdma.model.survey import Survey

log = structlog.get_logger()

Announcements = Callable[[], AbstractAsyncContextManager[AsyncIterator[object]]]


class KernelSources(Frozen):
    """The functions by which the kernel is asked; all but `announcements` block."""

    survey: Callable[[], Survey]
    # By what they are about; one may raise OSError when it is entered.
    announcements: Sequence[tuple[str, Announcements]] = ()
    # Returns those of the given device nodes that do not exist.
    missing: Callable[[Collection[str]], frozenset[str]] = lambda _: frozenset()
    # Returns the links of the network namespace at a path; raises KubeError when it is gone.
    links_inside: Callable[[Path], tuple[PodLink, ...]] = lambda _: ()
    # Reads the states of these ports (device, number) and nothing else.
    port_states: Callable[[Iterable[tuple[str, int]]], tuple[PortReading, ...]] = lambda _: ()
    # Returns what interfaces are used for; raises Unavailable.
    uses: Callable[[Collection[str]], Mapping[str, Use]] = lambda _: {}


async def listen(kernel: KernelSources, stack: AsyncExitStack) -> tuple[AsyncIterator[object], ...]:
    """Open each source of kernel announcements; log a warning for each that cannot be opened."""
    opened = []
    for about, announcements in kernel.announcements:
        try:
            opened.append(await stack.enter_async_context(announcements()))
        except OSError as error:
            log.warning(
                "kernel events unavailable",
                about=about,
                why=error.strerror or str(error),
                remedy="let the pod open netlink sockets (seccomp, sandbox)",
            )
    return tuple(opened)


def listeners(
    announcements: Iterable[AsyncIterator[object]],
    changes: Debounce,
    concern: Callable[[object], bool],
) -> dict[str, Part]:
    """Return a task for each stream of announcements, by name, which does what `hear` does."""
    return {
        f"kernel events {number}": partial(hear, stream, changes, concern)
        for number, stream in enumerate(announcements)
    }


async def hear(
    announcements: AsyncIterator[object], changes: Debounce, concern: Callable[[object], bool]
) -> None:
    """Touch `changes` for each announcement that may be about a card, until cancelled.

    Raise Unavailable where the announcements break off.
    """
    try:
        async for event in announcements:
            if concern(event):
                changes.touch()
    except OSError as error:
        raise Unavailable(f"The kernel's announcements broke off: {error}.") from error


def look(kernel: KernelSources) -> tuple[Survey, frozenset[str]]:
    """Return a Survey, and the paths of its device files that do not exist; blocks."""
    survey = kernel.survey()
    paths = {char.path for device in survey.devices for char in device.char_devices}
    paths.update(path for one in survey.functions if one.group for path in one.group.paths)
    return survey, kernel.missing(paths)


def fabric_ports(survey: Survey | None) -> tuple[PortReading, ...]:
    """Return the states of a Survey's InfiniBand ports."""
    return tuple(
        PortReading(device.name, port.number, port.state, port.physical_state)
        for device in (survey.devices if survey else ())
        for port in device.ports
        if port.link_layer is LinkLayer.INFINIBAND
    )


async def differ(kernel: KernelSources, readings: Sequence[PortReading]) -> bool:
    """Return whether ports have other states than when they were read."""
    numbers = [(reading.device, reading.number) for reading in readings]
    now = await asyncio.to_thread(kernel.port_states, numbers) if readings else ()
    return now != tuple(readings)


# Announcements about cards: a node makes and removes an interface for every pod.

_OF_PODS = frozenset({"veth", "macvlan", "ipvlan"})  # IFLA_INFO_KIND
_VIRTUAL = "/devices/virtual/net/"


class CardEvents:
    """A filter for kernel announcements that may be about RDMA cards.

    It remembers by index the interfaces that were made for pods, for an announcement of an address
    has only an index.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._of_pods: set[int] = set()

    def surveyed(self, survey: Survey) -> None:
        """Remember the names of interfaces that belong to cards of a Survey."""
        self._names = survey.interfaces

    def concern(self, event: object) -> bool:
        """Return whether a kernel announcement may be about a card."""
        if isinstance(event, Uevent):
            # About virtual interfaces routing netlink says more: their kind.
            name = event.devpath.removeprefix(_VIRTUAL)
            return event.action == LOST or name == event.devpath or name in self._names
        if not isinstance(event, RtnlEvent) or event.news is News.LOST:
            self._of_pods.clear()
            return True
        if event.kind in _OF_PODS and event.name not in self._names:
            self._of_pods.add(event.interface)
        elif event.kind or event.name in self._names:
            self._of_pods.discard(event.interface)
        is_pods = event.interface in self._of_pods
        if event.news is News.LINK_GONE:
            self._of_pods.discard(event.interface)
        return not is_pods
