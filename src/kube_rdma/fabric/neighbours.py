"""Keeps which switch port each port of the node's pools is plugged into, by LLDP.

The loop of role plugin hands in each look (`look`), which says where the ports are; `run` opens a
socket for each interface and closes it again. A frame wakes the agent once. The agent looks at the
node again only when another neighbour is known, and only then the NodeReport is written. A card
that is given to a pod takes its interface along, but not its cable: the neighbour holds until the
card is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from kube_rdma.adapters.bulkhead import contained
from kube_rdma.adapters.files.neighbours import PortNeighbours
from kube_rdma.adapters.kernel.ethtool import read_private_flags
from kube_rdma.adapters.kernel.lldp import LldpSocket
from kube_rdma.fabric.rules import lldp
from kube_rdma.fabric.rules.lldp import HeardPort, PortPlace
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.pools import Pool
from kube_rdma.model.reports import KnownNeighbour, PortKey
from kube_rdma.model.survey import Survey


@dataclass(slots=True)
class _Listener:
    """An interface, what was heard on it, and the socket for more."""

    place: PortPlace
    port: HeardPort
    here: bool = True  # in the node's network namespace
    socket: LldpSocket | None = None
    tried: bool = False  # to open a socket since the last look
    refused: str = ""  # why there is no socket
    hint: str = ""  # who else may take the frames; read when none came

    @property
    def is_wanted(self) -> bool:
        """Return whether a socket is to be opened."""
        is_deaf = self.port.unheard is lldp.Unheard.RESTLESS
        return self.here and not (self.socket or self.tried or is_deaf)


class Neighbours:
    """The neighbours of the ports of a node's pools; `changed` is called when others are known.

    `opened` opens the socket of an interface and raises OSError, `flags` returns the private flags
    of its driver, `keep` keeps the neighbours for others; all are called in a thread.
    """

    def __init__(
        self,
        opened: Callable[[str], LldpSocket] = LldpSocket,
        flags: Callable[[str], Mapping[str, bool]] = read_private_flags,
        keep: Callable[[PortNeighbours], None] = lambda _: None,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._opened, self._flags, self._keep = opened, flags, keep
        self._kept: PortNeighbours | None = None  # not known: an agent before may have left some
        self._places: Mapping[PortKey, PortPlace] = {}
        self._listeners: dict[str, _Listener] = {}
        self._told: Mapping[PortKey, KnownNeighbour] = {}
        self._closing: list[LldpSocket] = []
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def look(self, pools: Sequence[Pool], survey: Survey) -> Mapping[PortKey, KnownNeighbour]:
        """Note where the ports of pools are now; return what is known of each."""
        cards = [card for pool in pools for card in pool.cards]
        here = survey.interfaces
        self._places = lldp.places(cards, survey.functions, self._places)
        wanted = {
            place.interface: place
            for place in self._places.values()
            if place.interface and place.link_layer is LinkLayer.ETHERNET
        }
        for name in self._listeners.keys() - wanted:
            self._end(self._listeners.pop(name))
        for name, place in wanted.items():
            self._meet(name, place, here=name in here)
        self._woken.set()
        self._told = self._known()
        return self._told

    async def run(self) -> None:
        """Receive frames until cancelled."""
        try:
            while True:
                self._woken.clear()
                await self._expire()
                await self._open()
                self._arm()
                if self._known() != self._told:
                    self.changed()
                await self._share()
                await self._woken.wait()
        finally:
            for one in self._listeners.values():
                self._end(one)
            for socket in self._closing:
                socket.close()
            if self._timer:
                self._timer.cancel()
            with contained("neighbours kept"):
                self._keep({})

    def _meet(self, name: str, place: PortPlace, *, here: bool) -> None:
        """Bring an interface to where the look has found it."""
        now = _now()
        one = self._listeners.setdefault(name, _Listener(place, lldp.listening(now)))
        one.place, one.here, one.tried = place, here, False
        one.port = lldp.present(one.port, now) if here else lldp.away(one.port)
        # A socket follows its interface under another name, and loses one that leaves or ends.
        if one.socket and not (here and one.socket.interface == name):
            self._end(one)

    def _known(self) -> Mapping[PortKey, KnownNeighbour]:
        found = {}
        for key, place in self._places.items():
            one = self._listeners.get(place.interface or "")
            port, hint, refused = (one.port, one.hint, one.refused) if one else (None, "", "")
            found[key] = lldp.known(place, port, hint, refused)
        return found

    async def _expire(self) -> None:
        """End what is known of interfaces whose time is over, and stop listening to deaf ones."""
        now = _now()
        for one in [one for one in self._listeners.values() if one.port.until <= now]:
            flags = await asyncio.to_thread(self._flags, one.place.interface or "")
            if one.port.until <= now:  # else a frame came meanwhile
                one.port = lldp.expired(one.port, now)
                one.hint = lldp.firmware_hint(one.place, flags)
        for one in self._listeners.values():
            if one.port.unheard is lldp.Unheard.RESTLESS:
                self._end(one)

    async def _open(self) -> None:
        """Open the sockets that are missing, and close those that are left."""
        while self._closing:
            await asyncio.to_thread(self._closing.pop().close)
        wanted = {name: one for name, one in self._listeners.items() if one.is_wanted}
        for one in wanted.values():
            one.tried = True
        made = (asyncio.to_thread(self._opened, name) for name in wanted)
        for (name, one), opened in zip(
            wanted.items(), await asyncio.gather(*made, return_exceptions=True), strict=True
        ):
            if isinstance(opened, OSError):
                one.refused = opened.strerror or str(opened)
            elif isinstance(opened, BaseException):
                raise opened
            elif self._listeners.get(name) is one and one.here:
                one.socket, one.tried, one.refused = opened, False, ""
                asyncio.get_running_loop().add_reader(opened.fileno(), self._hear, one)
            else:  # a look has changed its mind meanwhile
                self._closing.append(opened)
                self._woken.set()

    async def _share(self) -> None:
        """Keep the neighbours for others if they are other ones."""
        kept = {key[1:]: str(one.neighbour) for key, one in self._told.items() if one.neighbour}
        if kept != self._kept:
            self._kept = kept
            with contained("neighbours kept"):
                await asyncio.to_thread(self._keep, kept)

    def _hear(self, one: _Listener) -> None:
        """Receive a frame."""
        frame = one.socket.receive() if one.socket else None
        if frame is None:
            return
        before = one.port
        one.port = lldp.heard(before, lldp.announced(frame), _now())
        if (before.neighbour, before.unheard) != (one.port.neighbour, one.port.unheard):
            self._woken.set()
        self._arm()

    def _arm(self) -> None:
        """Wake `run` when the first of all interfaces is due."""
        if self._timer:
            self._timer.cancel()
        due = min((one.port.until for one in self._listeners.values()), default=inf)
        loop = asyncio.get_running_loop()
        self._timer = None if due == inf else loop.call_at(due, self._woken.set)

    def _end(self, one: _Listener) -> None:
        """Stop listening on an interface; its socket is closed in a thread."""
        if one.socket:
            asyncio.get_running_loop().remove_reader(one.socket.fileno())
            self._closing.append(one.socket)
            one.socket = None


def _now() -> float:
    return asyncio.get_running_loop().time()
