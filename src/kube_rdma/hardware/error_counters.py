"""Reads the counters of ports: those of RDMA devices in sysfs, and those of their interfaces.

An interface's driver keeps counters of the cable and of pauses that sysfs has no file of.
hardware/rules/error_counters says which mean errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.ethtool import read_statistics
from kube_rdma.adapters.kernel.sysfs.counters import CounterFiles, PortName
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


def port_counters(files: CounterFiles, statistics: PortCounters) -> PortCounters:
    """Return the counters of each port from sysfs, with the interface statistics of its driver.

    Of two counters of one name that of sysfs counts.
    """
    ports = {
        (device.name, port.number): {**port.counters, **port.hw_counters}
        for device in files.read().devices
        for port in device.ports
    }
    names = {**ports, **statistics}
    return {port: {**statistics.get(port, {}), **ports.get(port, {})} for port in names}
