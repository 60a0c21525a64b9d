"""Reads the counters of ports: those of RDMA devices in sysfs, and those of their interfaces.

An interface's driver keeps counters of the cable and of pauses that sysfs has no file of.
hardware/rules/error_counters says which mean errors. The doctor reads them twice. The agent reads
them with each renewal of its NodeReport (agent/node/report). A new agent knows no earlier readings:
a verdict ends with its agent, and comes again if the errors go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.ethtool import read_statistics
from kube_rdma.adapters.kernel.sysfs.counters import CounterFiles, PortName
from kube_rdma.hardware.rules.error_counters import LIMITS, PortEvidence, active_ports, judged
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import Device

PortCounters = Mapping[PortName, Mapping[str, int]]


class InterfaceStatistics:
    """A reader of the interface statistics of RDMA devices, by port.

    Soft devices such as rxe are left out.
    """

    def __init__(
        self, devices: Iterable[Device], ask: Callable[[str], Mapping[str, int]] = read_statistics
    ) -> None:
        """Take the devices whose ports are read.

        `ask` returns the statistics of an interface, or raises Unavailable.
        """
        self._interfaces = {
            (device.name, port.number): port.netdev
            for device in devices
            for port in device.own_ports
            if device.pci and port.netdev
        }
        self._ask = ask
        self.refused: Unavailable | None = None  # the first reason why an interface said nothing

    def read(self) -> PortCounters:
        """Return the current counters by port, without interfaces whose driver gives none."""
        read = {}
        for port, interface in self._interfaces.items():
            try:
                read[port] = self._ask(interface)
            except Unavailable as error:
                self.refused = self.refused or error
        return read


def port_counters(
    files: CounterFiles, statistics: PortCounters, devices: Collection[str] | None = None
) -> PortCounters:
    """Return the counters of each port from sysfs, with the interface statistics of its driver.

    Of two counters of one name that of sysfs counts. Of `devices`, if named, no others are read.
    """
    ports = {
        (device.name, port.number): {**port.counters, **port.hw_counters}
        for device in files.read(devices).devices
        for port in device.ports
    }
    names = {**ports, **statistics}
    return {port: {**statistics.get(port, {}), **ports.get(port, {})} for port in names}


class CardErrors:
    """The evidence of error counters about the cards of pools; `clock` does not jump.

    A device in the network namespace of a pod is out of sight: nothing is learned of it there.
    """

    def __init__(
        self,
        sysfs: Path = Path("/sys"),
        ask: Callable[[str], Mapping[str, int]] = read_statistics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._ask, self._clock = CounterFiles(sysfs, gid_tables=0), ask, clock
        self._cards: Mapping[CardId, Card] = {}
        self._evidence: Mapping[tuple[CardId, str, int], PortEvidence] = {}

    def look(self, cards: Iterable[Card]) -> Mapping[CardId, str]:
        """Remember the cards of pools; return a sentence on each that is degraded.

        Of its ports the first counts.
        """
        self._cards = {card.id: card for card in cards}
        found = sorted((key, one.sentence) for key, one in self._evidence.items() if one.why)
        return {key[0]: sentence for key, sentence in reversed(found) if key[0] in self._cards}

    async def read(self, wall: datetime) -> None:
        """Read the counters of the cards in a thread, at this time of day, and judge them."""
        devices = [device for card in self._cards.values() for device in card.devices if device.pci]
        read = await asyncio.to_thread(self._read, devices)
        at = self._clock()
        known = {key: one for key, one in self._evidence.items() if key[0] in self._cards}
        active = {
            (card.id, device.name, port.number): read.get((device.name, port.number), {})
            for card in self._cards.values()
            for device, port in active_ports(card.devices)
        }
        for key in {**known, **active}:
            port = f"port {key[2]} of {key[1]}"
            known[key] = judged(known.get(key, PortEvidence()), at, active.get(key, {}), wall, port)
        self._evidence = known

    def _read(self, devices: Sequence[Device]) -> PortCounters:
        """Return the counters of hardware devices that can show a degraded port."""
        statistics = InterfaceStatistics(devices, self._ask).read()
        read = port_counters(self._files, statistics, {device.name for device in devices})
        return {port: {n: c[n] for n in LIMITS if n in c} for port, c in read.items()}
