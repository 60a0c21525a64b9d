"""Where GPUs and network cards of a node sit: below which socket, host bridge and PCIe switch.

pools/rules/node_topology makes it out of a Survey, `kube-rdma devices --svg` draws it.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.card import Card
from kube_rdma.model.device import Gpu, PciAddress


class PlacedGpu(Frozen):
    """A GPU with its number on the node, as `kube-rdma devices --topology` counts."""

    number: int
    gpu: Gpu


class PlacedCard(Frozen):
    """A card that is no part of another one, with what is divided off it.

    `rail` is the number that it has by itself, None for a card without an RDMA device. `functions`
    are its virtual functions, `parts` are those of them and of its sub-functions that have an RDMA
    device.
    """

    card: Card
    rail: int | None = None
    functions: int = 0
    parts: tuple[Card, ...] = ()


class TopologyGroup(Frozen):
    """What is below one PCIe switch: its upper side; None for right below the host bridge."""

    switch: PciAddress | None
    gpus: tuple[PlacedGpu, ...] = ()
    cards: tuple[PlacedCard, ...] = ()


class TopologyBridge(Frozen):
    """A host bridge, such as ``pci0000:40``; empty for what sits on no PCI function."""

    root: str
    groups: tuple[TopologyGroup, ...]


class TopologySocket(Frozen):
    """A NUMA node, which is a socket on most machines; None: the kernel does not know it."""

    numa_node: int | None
    bridges: tuple[TopologyBridge, ...]


class NodeTopology(Frozen):
    """The whole node."""

    sockets: tuple[TopologySocket, ...] = ()
