"""Defines the survey: the picture of a node's hardware that pools, health and labels are made of.

hardware/survey takes it by way of adapters/kernel, pools/rules/discovery judges it,
hardware/views/table shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from enum import StrEnum

from kube_base.frozen import Frozen, replace
from kube_rdma.model.card import Card, Function, Netdev, Use
from kube_rdma.model.device import CharDevice, Device, Gpu, PciAddress


class NamespaceMode(StrEnum):
    """The relation of RDMA devices to network namespaces (`rdma system`).

    SHARED: every namespace sees every device. EXCLUSIVE: a device belongs to one namespace.
    """

    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    UNKNOWN = "unknown"


class Fault(Frozen):
    """Something of the node that could not be read, and why. It is no error of kube-rdma."""

    path: str
    reason: str


class Survey(Frozen):
    """The RDMA devices (sorted by name), GPUs and network functions of a node at one moment."""

    devices: tuple[Device, ...]
    rdma_cm: CharDevice | None  # one for the node, not per device
    namespace_mode: NamespaceMode
    faults: tuple[Fault, ...] = ()
    gpus: tuple[Gpu, ...] = ()  # sorted by PCI address
    functions: tuple[Function, ...] = ()  # network functions, sorted by PCI address
    # Interfaces of any kind that the node is reached through: those with a default route or an
    # address of the node, and what they stand on, sorted. None: the kernel did not say.
    routed: tuple[str, ...] | None = ()
    # Devices of the subnet manager alone, of an XDR card (RDMA_DEVICE_TYPE_SMI), none of `devices`.
    management: tuple[Device, ...] = ()

    @property
    def interfaces(self) -> frozenset[str]:
        """Return the names of the interfaces of devices and functions."""
        ports = (port.netdev for device in self.devices for port in device.ports)
        netdevs = (netdev.name for one in self.functions for netdev in one.netdevs)
        return frozenset(filter(None, (*ports, *netdevs)))

    def with_neighbours(self, known: Mapping[str, str]) -> Survey:
        """Return the Survey with the neighbours of ports; `known` has keys like ``mlx5_0/1``."""

        def told(one: Device) -> Device:
            ports = (replace(p, neighbour=known.get(f"{one.name}/{p.number}")) for p in one.ports)
            return replace(one, ports=tuple(ports))

        return replace(self, devices=tuple(map(told, self.devices)))

    def with_uses(self, uses: Mapping[str, Use]) -> Survey:
        """Return the Survey with new uses of interfaces, given by the interfaces' names.

        Other interfaces of the same functions get no use (None).
        """
        return self.with_netdevs(uses, lambda one: replace(one, use=uses.get(one.name)))

    def with_netdevs(self, names: Container[str], change: Callable[[Netdev], Netdev]) -> Survey:
        """Return the Survey with a change of each function that has an interface in `names`.

        All interfaces of such a function are changed.
        """
        functions = (
            replace(one, netdevs=tuple(map(change, one.netdevs)))
            if any(netdev.name in names for netdev in one.netdevs)
            else one
            for one in self.functions
        )
        return replace(self, functions=tuple(functions))


class Verdict(Frozen):
    """The verdict whether a pod can get a device; `reasons` is empty exactly when it can."""

    device: Device
    reasons: tuple[str, ...]  # each names the missing thing and the remedy

    @property
    def usable(self) -> bool:
        """Return whether a pod can get this device."""
        return not self.reasons


# The tree of a node: GPUs and network cards below sockets, host bridges and PCIe switches.


class PlacedGpu(Frozen):
    """A GPU with its number on the node, as `kube-rdma devices --topology` counts GPUs."""

    number: int
    gpu: Gpu


class PlacedCard(Frozen):
    """A whole card, with the functions that are divided off it."""

    card: Card
    rail: int | None = None  # its number without a list; None for a card without an RDMA device
    functions: int = 0  # how many virtual ones
    parts: tuple[Card, ...] = ()  # virtual functions and sub-functions that have an RDMA device


class TopologyGroup(Frozen):
    """The devices below one PCIe switch, which is None for those right below a host bridge."""

    switch: PciAddress | None
    gpus: tuple[PlacedGpu, ...] = ()
    cards: tuple[PlacedCard, ...] = ()


class TopologyBridge(Frozen):
    """A host bridge such as ``pci0000:40``, with its devices; "" for devices on no PCI function."""

    root: str
    groups: tuple[TopologyGroup, ...]


class TopologySocket(Frozen):
    """A NUMA node, a socket on most machines, with its host bridges; None: not known."""

    numa_node: int | None
    bridges: tuple[TopologyBridge, ...]
