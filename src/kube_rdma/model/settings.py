"""What an administrator says that programs on a fabric should use: classes, timeouts, tuning.

A part of a pool (model/pools), for a pool's cards are ports of one fabric.
pools/documents/node_policy reads it, attach/rules/settings writes it for the containers
that hold shares.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen, field
from kube_rdma.model.device import PciAddress, PciPosition


class FabricProfile(Frozen):
    """Values by the fields of InfiniBand's queue pairs; None leaves it to the program.

    `traffic_class` is the byte of the IPv6 header (RoCE: DSCP times 4), `service_level` has 4 bits.
    `timeout` is the exponent of an acknowledgement's, 4.096 µs × 2^timeout, tried `retry_count`
    times more. `variables` are further ones of NCCL and UCX by name.
    """

    traffic_class: int | None = None
    service_level: int | None = None
    timeout: int | None = None
    retry_count: int | None = None
    qps_per_connection: int | None = None
    variables: tuple[tuple[str, str], ...] = ()


# What a topology file of NCCL says besides where devices sit: functions, their links, processors.


class PlacedNet(Frozen):
    """An RDMA device by its name and where it sits; without a seat it is by its NUMA node alone."""

    name: str
    seat: PciPosition | None
    numa_node: int | None


class PciFacts(Frozen):
    """A PCI function or bridge, each text as its file in sysfs has it, empty without one.

    `link_speed` and `link_width` are the most that its end and the port above it can both do;
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
    """What all processors of the machine are; `arch` as NCCL calls it: x86_64, arm64, ppc64.

    Family and model are those of the kernel (/proc/cpuinfo), and of x86 alone.
    """

    arch: str
    vendor: str = ""
    family: int = 0
    model: int = 0


class TopologyFacts(Frozen):
    """Of one machine: functions by address, processors by NUMA node, with their mask (cpumap)."""

    functions: Mapping[PciAddress, PciFacts] = field(default_factory=dict)
    masks: Mapping[int, str] = field(default_factory=dict)
    processor: Processor | None = None  # None: of a recorded tree, which does not say
