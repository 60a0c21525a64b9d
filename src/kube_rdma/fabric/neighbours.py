"""Knows by LLDP which switch port each port of the node's pooled cards is plugged into.

The agent's loop hands in each survey (`look`), which says where the ports are; `run` opens a socket
for each interface and closes it again. A frame that repeats what is known causes neither a look at
the node nor a write of its NodeReport. An interface that moves into a pod takes no cable along, so
its neighbour holds until the interface is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import inf

from kube_rdma.adapters.bulkhead import contained
from kube_rdma.adapters.kernel.ethtool import read_private_flags
from kube_rdma.adapters.kernel.lldp import LldpSocket
from kube_rdma.fabric.rules import lldp
from kube_rdma.fabric.rules.lldp import HeardPort, PortPlace
from kube_rdma.model.device import LinkLayer
from kube_rdma.model.pools import Pool
from kube_rdma.model.reports import KnownNeighbour, PortKey
from kube_rdma.model.survey import Survey


class Neighbours:
    """The neighbours of the ports of pooled cards; `changed` is called when they change.

    `opened` opens the socket of an interface and may raise OSError. `flags` returns the private
    flags of its driver, and `keep` writes the neighbours down for other programs.
    """

    def __init__(
        self,
        opened: Callable[[str], LldpSocket] = LldpSocket,
        flags: Callable[[str], Mapping[str, bool]] = read_private_flags,
        keep: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._opened, self._flags, self._keep = opened, flags, keep
        self._kept: Mapping[str, str] | None = None  # None: an earlier agent may have left some
        self._places: Mapping[PortKey, PortPlace] = {}
        self._told: Mapping[PortKey, KnownNeighbour] = {}
        # By interface:
        self._wanted: Mapping[str, PortPlace] = {}
        self._here: set[str] = set()  # those in the node's network namespace
        self._ports: dict[str, HeardPort] = {}  # what was heard
        self._sockets: dict[str, LldpSocket] = {}
        self._tried: set[str] = set()  # to open a socket since the last look
        self._refused: dict[str, str] = {}  # why there is no socket
        self._woken = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def look(self, pools: Sequence[Pool], survey: Survey) -> Mapping[PortKey, KnownNeighbour]:
        """Note where the ports of pools are now; return what is known of each port's neighbour."""
        cards = [card for pool in pools for card in pool.cards]
        self._places = lldp.places(cards, survey.functions, self._places)
        self._wanted = {
            place.interface: place
            for place in self._places.values()
            if place.interface and place.link_layer is LinkLayer.ETHERNET
        }
        self._here = self._wanted.keys() & survey.interfaces
        now, ports = _now(), self._ports
        self._ports = {name: ports.get(name) or lldp.listening(now) for name in self._wanted}
        for name, port in self._ports.items():
            is_here = name in self._here
            self._ports[name] = lldp.present(port, now) if is_here else lldp.away(port)
        self._tried.clear()
        self._woken.set()
        self._told = self._known()
        return self._told

    async def run(self) -> None:
        """Receive frames until cancelled."""
        try:
            while True:
                self._woken.clear()
                await self._expire()
                await self._exchange()
                self._arm()
                if self._known() != self._told:
                    self.changed()
                await self._share()
                await self._woken.wait()
        finally:
            for name in tuple(self._sockets):
                self._detach(name).close()
            if self._timer:
                self._timer.cancel()
            with contained("neighbours kept"):
                self._keep({})

    def _known(self) -> Mapping[PortKey, KnownNeighbour]:
        found = {}
        for key, place in self._places.items():
            name = place.interface or ""
            found[key] = lldp.known(place, self._ports.get(name), self._refused.get(name, ""))
        return found

    async def _expire(self) -> None:
        """Forget neighbours that sent no frame in time, and listen again where a port was deaf."""
        now = _now()
        for name in [name for name, port in self._ports.items() if port.until <= now]:
            flags = await asyncio.to_thread(self._flags, name)
            port = self._ports.get(name)
            if port and port.until <= now:  # else a frame or a look came meanwhile
                hint = lldp.firmware_hint(self._wanted[name], flags)
                self._ports[name] = lldp.expired(port, now, hint)

    async def _exchange(self) -> None:
        """Close the sockets of interfaces that need none any more, and open missing ones.

        A socket whose interface was renamed or has left the node is closed too.
        """
        wanted = {n for n in self._here if self._ports[n].unheard is not lldp.Unheard.RESTLESS}
        for name, one in tuple(self._sockets.items()):
            if name not in wanted or one.interface != name:
                await asyncio.to_thread(self._detach(name).close)
        for name in wanted - self._sockets.keys() - self._tried:
            self._tried.add(name)
            try:
                one = await asyncio.to_thread(self._opened, name)
            except OSError as error:
                self._refused[name] = error.strerror or str(error)
            else:
                self._sockets[name] = one
                self._tried.discard(name)
                self._refused.pop(name, None)
                asyncio.get_running_loop().add_reader(one.fileno(), self._hear, name)

    async def _share(self) -> None:
        """Hand the neighbours to `keep` if they have changed."""
        heard = ((key, one.neighbour) for key, one in self._told.items() if one.neighbour)
        kept = {f"{device}/{port}": str(switch) for (_, device, port), switch in heard}
        if kept != self._kept:
            self._kept = kept
            with contained("neighbours kept"):
                await asyncio.to_thread(self._keep, kept)

    def _hear(self, name: str) -> None:
        """Receive a frame on an interface; wake `run` if it changes what is known of the port."""
        frame, before = self._sockets[name].receive(), self._ports.get(name)
        if frame is None or before is None:
            return
        port = self._ports[name] = lldp.heard(before, lldp.announced(frame), _now())
        if (before.neighbour, before.unheard) != (port.neighbour, port.unheard):
            self._woken.set()
        self._arm()

    def _arm(self) -> None:
        """Set the timer that wakes `run` when the first interface's time is over."""
        if self._timer:
            self._timer.cancel()
        due = min((port.until for port in self._ports.values()), default=inf)
        loop = asyncio.get_running_loop()
        self._timer = None if due == inf else loop.call_at(due, self._woken.set)

    def _detach(self, name: str) -> LldpSocket:
        """Stop listening on an interface; return its socket, which a thread may close."""
        one = self._sockets.pop(name)
        asyncio.get_running_loop().remove_reader(one.fileno())
        return one


def _now() -> float:
    return asyncio.get_running_loop().time()
