"""Defines an RDMA device as the kernel shows it.

A Device has facts only; pools/rules/discovery decides whether it can be used, and why not. Terms
follow the kernel's RDMA core (include/rdma/ib_verbs.h) and the InfiniBand specification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Self

from kube_base.frozen import Frozen, field

_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# A network driver and the module that makes RDMA devices on it (drivers/infiniband/hw).
RDMA_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "mlx5_core": "mlx5_ib",
        "mlx4_core": "mlx4_ib",
        "bnxt_en": "bnxt_re",
        "ice": "irdma",
        "ionic": "ionic_rdma",
        "qede": "qedr",
        "cxgb4": "iw_cxgb4",
        "hns3": "hns_roce_hw_v2",
        "mana": "mana_ib",
    }
)


class PciAddress(str):
    """A PCI function, ``domain:bus:device.function`` in lower-case hexadecimal: 0000:81:00.0."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Raise ValueError when `text` is not a full PCI address."""
        if not _PCI.fullmatch(text.lower()):
            raise ValueError(f"not a PCI address: {text!r}")
        return super().__new__(cls, text.lower())


class LinkLayer(StrEnum):
    """The protocol of the wire below RDMA (sysfs ports/N/link_layer)."""

    ETHERNET = "Ethernet"
    INFINIBAND = "InfiniBand"
    UNKNOWN = "Unknown"


class PortState(StrEnum):
    """The logical state of a port (enum ib_port_state)."""

    NOP = "NOP"
    DOWN = "DOWN"
    INIT = "INIT"
    ARMED = "ARMED"
    ACTIVE = "ACTIVE"
    ACTIVE_DEFER = "ACTIVE_DEFER"
    UNKNOWN = "UNKNOWN"


class PhysicalState(StrEnum):
    """The physical state of a port (enum ib_port_phys_state), as sysfs spells it."""

    SLEEP = "Sleep"
    POLLING = "Polling"
    DISABLED = "Disabled"
    TRAINING = "PortConfigurationTraining"
    LINK_UP = "LinkUp"
    ERROR_RECOVERY = "LinkErrorRecovery"
    PHY_TEST = "Phy Test"
    UNKNOWN = "UNKNOWN"


class GidType(StrEnum):
    """The encapsulation of RDMA packets with a GID (sysfs gid_attrs/types)."""

    IB_OR_ROCE_V1 = "IB/RoCE v1"
    ROCE_V2 = "RoCE v2"
    UNKNOWN = "unknown"


class CharKind(StrEnum):
    """The user-space interface that a character device under /dev/infiniband opens."""

    UVERBS = "uverbs"
    UMAD = "umad"
    ISSM = "issm"
    RDMA_CM = "rdma_cm"


class Gid(Frozen):
    """One used entry of a port's GID table; all-zero entries are not kept."""

    index: int
    value: str  # eight groups of four hexadecimal digits, as sysfs prints them
    type: GidType
    netdev: str | None  # None on InfiniBand, or when the kernel no longer knows it


class Port(Frozen):
    """One port of a device."""

    number: int
    state: PortState
    physical_state: PhysicalState
    link_layer: LinkLayer
    rate_gbps: float | None
    netdev: str | None  # the Ethernet or IPoIB interface that this port belongs to
    gids: tuple[Gid, ...]
    lid: int | None = None  # local identifier on an InfiniBand subnet; None elsewhere or unset
    sm_lid: int | None = None  # of the subnet manager that this port obeys
    bond: str | None = None  # the bonding interface that the port's interface is enslaved to
    pkey: int | None = None  # partition key at index 0, 16 bits; None off InfiniBand
    # Of a switchdev card: it belongs to a function behind the switch, and has no GIDs by design.
    representor: bool = False
    neighbour: str | None = None  # the switch and its port, as the node's agent heard by LLDP


class CharDevice(Frozen):
    """A character device, named by the path that devtmpfs gives it (uevent DEVNAME)."""

    kind: CharKind
    path: str  # absolute, /dev/infiniband/uverbs0
    major: int
    minor: int


class PciPosition(Frozen):
    """The position of a PCI function: the bridges above it and its NUMA node."""

    pci: PciAddress
    root: str  # the host bridge, as pci0000:40
    # From the root complex down to the function itself, bridges and switches included: the
    # more of it two functions share, the nearer they are.
    path: tuple[PciAddress, ...]
    numa_node: int | None
    physical_function: PciAddress | None = None  # of a virtual one
    virtual_functions: tuple[PciAddress, ...] = ()  # of a physical one
    sriov_total: int | None = None  # how many the hardware can have; None: not SR-IOV capable


class Gpu(Frozen):
    """A GPU or other accelerator, known by its PCI class: 03xx (display) or 12xx (processing)."""

    position: PciPosition = field(name="seat")  # the name in a bundle and in -o json
    pci_class: int  # 24 bits as in sysfs `class`: 0x030200
    vendor: int
    device: int
    driver: str | None


class Device(Frozen):
    """One RDMA device (struct ib_device) with everything read about it."""

    name: str
    # It outlives renames and moves between namespaces: the PCI address, else the auxiliary device,
    # else ``<link name>@<netdev>`` of a soft device.
    identity: str
    node_guid: str | None
    node_type: str  # "CA", "RNIC", "unspecified", …: text after the number in sysfs node_type
    driver: str | None
    firmware: str | None
    pci: PciAddress | None
    numa_node: int | None
    ports: tuple[Port, ...]
    char_devices: tuple[CharDevice, ...]
    # Of the PCI function at or above it, or below a soft device's netdev.
    position: PciPosition | None = field(default=None, name="seat")  # likewise
    auxiliary: str | None = None  # the auxiliary device below it (mlx5_core.sf.4)
    subfunction: int | None = None  # user's number of a sub-function (sysfs sfnum)
    switchdev: bool = False  # its function shows representors: RoCE is on those behind them

    @property
    def own_ports(self) -> tuple[Port, ...]:
        """Return the device's own ports, without representors of functions behind its switch."""
        return tuple(port for port in self.ports if not port.representor)

    @property
    def is_soft(self) -> bool:
        """Return whether the device has no hardware of its own (rxe, siw), by its identity."""
        return self.pci is None and self.identity.partition("@")[0] == self.name

    @property
    def lacks_guid(self) -> bool:
        """Return whether the node GUID was read, and is one that no device can use."""
        return self.node_guid is not None and not is_usable_guid(guid_of_sysfs(self.node_guid))


# The PCIe link of a card, which metrics export; the doctor judges those of switches above it, too.


class PcieLink(Frozen):
    """A PCIe link's lanes and speed in GT/s a lane: now, and the most that both ends support."""

    pci: PciAddress  # the card's function, or the upper port of a switch
    width: int
    speed: float
    most_width: int
    most_speed: float


# A queue pair of a process, as adapters/kernel/netlink reads it.


class QueuePair(Frozen):
    """A queue pair of a process, as the kernel lists it."""

    device: str
    type: str  # the transport: RC, UC, UD, DRIVER
    pid: int  # as the asking process sees it
    ready: bool = False  # it is connected, so it may send


# A network interface: as a plan found it on the node, and as a pod's namespace shows it.


class PlannedHostLink(Frozen):
    """A link of the node as planning found it; `index` is the kernel's, `name` is for people."""

    index: int
    name: str


class PodLink(Frozen):
    """An interface inside a pod. `pci` is the function it belongs to, None for a virtual one."""

    name: str
    up: bool  # administratively
    carrier: bool | None  # None: not readable, which the kernel says of an interface that is down
    pci: PciAddress | None


# GUIDs of devices and their ports are EUI-64: eight octets, here as 02:00:00:00:00:00:00:01. sysfs
# prints four groups of four digits, and the address of an IPoIB interface ends with the GUID of its
# port (RFC 4391, 9.1.1).

NO_GUID = "ff:ff:ff:ff:ff:ff:ff:ff"
"""The GUID that a function without a GUID of its own is set back to."""

_GUID_OF_NO_MAC = "00:00:00:ff:fe:00:00:00"  # what mlx5 makes of an administrative MAC of zeros

_GUID_LENGTH = len("00:00:00:00:00:00:00:00")
_ADDRESS_LENGTH = 59  # characters of an IPoIB interface's address


def wrong_guid(guid: str) -> str | None:
    """Return why a text is not the GUID of a port; None if it can be one."""
    octets = guid.split(":")
    try:
        first, *_ = numbers = [int(octet, 16) for octet in octets]
    except ValueError:
        numbers = []
    if len(numbers) != 8 or any(len(octet) != 2 for octet in octets):
        return "is not a GUID of eight octets"
    if guid.lower() in (NO_GUID, _GUID_OF_NO_MAC) or not any(numbers):
        return "stands for no GUID"
    return "is the GUID of a group, for its first octet is odd" if first & 1 else None


def is_usable_guid(guid: str | None) -> bool:
    """Return whether a GUID can be used on a fabric."""
    return guid is not None and wrong_guid(guid) is None


def guid_of_sysfs(text: str | None) -> str | None:
    """Return a GUID of sysfs (``0200:0000:0000:0001``) as ``02:00:…:01``; None for None."""
    if text is None:
        return None
    digits = text.replace(":", "").lower()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def guid_of_address(mac: str) -> str | None:
    """Return the port GUID in an IPoIB interface's hardware address; None for other addresses."""
    return mac.lower()[-_GUID_LENGTH:] if len(mac) == _ADDRESS_LENGTH else None
