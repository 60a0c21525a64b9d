"""Defines settings that an administrator gives to programs on a fabric, and topology facts.

FabricProfile is a part of a pool (model/pools), for a pool's cards are ports of one fabric. The
module pools/documents/node_policy reads it, attach/rules/settings writes it for the containers that
have its cards.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen, field
from kube_rdma.model.device import PciAddress, PciPosition


class FabricProfile(Frozen):
    """Values for queue pairs on a fabric, for NCCL and UCX; None leaves a value to the program."""

    traffic_class: int | None = None  # the byte of the IPv6 header; RoCE: DSCP times 4
    service_level: int | None = None  # 4 bits
    timeout: int | None = None  # exponent of an acknowledgement's time, 4.096 µs × 2^timeout
    retry_count: int | None = None
    qps_per_connection: int | None = None
    variables: tuple[tuple[str, str], ...] = ()  # further ones of NCCL and UCX, by name


# Facts for a topology file of NCCL, besides where devices sit: functions, links, processors.


class PlacedNet(Frozen):
    """An RDMA device with its place in the machine; without a PCI place only its NUMA node."""

    name: str
    position: PciPosition | None
    numa_node: int | None


class PciFacts(Frozen):
    """A PCI function or bridge, with texts as in the files of sysfs, "" for a missing one.

    `link_speed` and `link_width` are the most that the function and the port above it both support;
    0 lanes: not known.
    """

    pci_class: str = ""
    vendor: str = ""
    device: str = ""
    subsystem_vendor: str = ""
    subsystem_device: str = ""
    link_speed: str = ""
    link_width: int = 0


class Processor(Frozen):
    """The kind of all processors of the machine; `arch` as NCCL calls it: x86_64, arm64, ppc64.

    Family and model are as in /proc/cpuinfo, and for x86 alone.
    """

    arch: str
    vendor: str = ""
    family: int = 0
    model: int = 0


class TopologyFacts(Frozen):
    """The facts for NCCL's topology file: PCI functions, processors, CPU masks of NUMA nodes."""

    functions: Mapping[PciAddress, PciFacts] = field(default_factory=dict)
    masks: Mapping[int, str] = field(default_factory=dict)  # cpumap of the kernel
    processor: Processor | None = None  # None: of a tree of files, which does not say
