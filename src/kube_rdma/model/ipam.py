"""Addresses of a cluster: what pools wish for, which node holds what, which container has what.

Three kinds of truth, each with one owner (docs/decisions/0007-ipam-cells.md). Pools are written by
people. Blocks, node leases and boards are objects of the API server, changed by compare-and-swap
only. Bookings are a node's own, in its journal. rules/ipam decides over them, api compiles the
custom resources to them and back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NewType

from kube_base.frozen import Frozen
from kube_rdma.model.late_binding.binding import ContainerId as ContainerId  # noqa: PLC0414  the same for IPAM

NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)
NetworkName = NewType("NetworkName", str)
"""An address space of its own, a DNS label; equal addresses in two networks are two addresses."""

PodUid = NewType("PodUid", str)
InterfaceName = NewType("InterfaceName", str)  # inside the pod
Owner = NewType("Owner", str)
"""Who keeps an address over its pods' lives: ``namespace/pod/interface``."""

JournalId = NewType("JournalId", str)  # made at random with an empty journal, kept inside it
BootId = NewType("BootId", str)  # /proc/sys/kernel/random/boot_id
Version = NewType("Version", str)  # the API server's resourceVersion
Bits = NewType("Bits", int)
"""A set of addresses of one cell: bit n stands for the cell's first address plus n."""

Address = IPv4Address | IPv6Address
Subnet = IPv4Network | IPv6Network


def gid_of(address: Address) -> str:
    """The RoCE GID of an address as sysfs prints it: IPv4 mapped into IPv6, IPv6 itself.

    (rdma_ip2gid, include/rdma/ib_addr.h.)
    """
    if isinstance(address, IPv4Address):
        return IPv6Address(f"::ffff:{address}").exploded
    return address.exploded


CELL = 64
"""Addresses in a cell: a /26 of IPv4, a /122 of IPv6. Part of every object's name: it stays."""


class Family(IntEnum):
    """The Internet Protocol's version."""

    V4 = 4
    V6 = 6


class Span(Frozen):
    """Addresses from `first` to `last`, both ends in it."""

    first: Address
    last: Address


class IPRange(Frozen):
    """A part of a subnet that a pool gives from.

    Without `first` and `last` it is the subnet. `rail`: only for the NIC of this index. `source` is
    its place in its document, for messages.
    """

    subnet: Subnet
    first: Address | None = None
    last: Address | None = None
    gateway: Address | None = None
    rail: int | None = None
    source: str = ""


class Route(Frozen):
    """A route of the pod; without `via` it is the gateway of the address's range."""

    to: Subnet
    via: Address | None = None


class IPPool(Frozen):
    """What people wish for: every NIC that names the pool gets one address of each family in it.

    `block_size` is how many addresses a node claims at once, `rest` how many seconds an address is
    left alone after its release. `probe`: ask the network for each address before a pod uses it.
    `namespaces` are those whose pods may have addresses of it; none: every namespace's.
    """

    name: PoolName
    ranges: tuple[IPRange, ...]
    network: NetworkName = NetworkName("default")
    excludes: tuple[Span, ...] = ()
    routes: tuple[Route, ...] = ()
    block_size: int = 32
    rest: float = 60.0
    probe: bool = False
    namespaces: tuple[str, ...] = ()


class Cell(Frozen, order=True):
    """CELL addresses of one network, aligned: the grid that all pools of a network share.

    Overlapping pools meet in the same cells, so an address has one place where it is held.
    """

    network: NetworkName
    family: Family
    first: int  # a multiple of CELL

    @property
    def name(self) -> str:
        """Of its object, a DNS subdomain: ``default.10-0-0-64``, ``rail.fd00-0-0-0-0-0-0-40``."""
        if self.family is Family.V4:
            parts = [f"{self.first >> shift & 0xFF}" for shift in range(24, -1, -8)]
        else:
            parts = [f"{self.first >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
        return f"{self.network}.{'-'.join(parts)}"

    def address(self, place: int) -> Address:
        """The address at `place`, 0 to CELL - 1."""
        number = self.first + place
        return IPv4Address(number) if self.family is Family.V4 else IPv6Address(number)


class CellHolding(Frozen):
    """What one node holds of a cell: nobody else may give these addresses away."""

    node: NodeName
    bits: Bits


class Pin(Frozen):
    """The address that `owner` had last; free for others only when nothing else is."""

    owner: Owner
    place: int


class Block(Frozen):
    """A cell's object: who holds what in it. What nobody holds is free.

    Every write raises `edition`, so that no two writes are equal and each that succeeds makes all
    older ones that are still under way fail. `version` None: the object is not there yet.
    """

    cell: Cell
    holdings: tuple[CellHolding, ...] = ()
    pins: tuple[Pin, ...] = ()
    edition: int = 0
    version: Version | None = None


class NodeLease(Frozen):
    """A node's right to grant, renewed by its agent (coordination.k8s.io Lease).

    `journal` says who renews it: a rebuilt node has another journal. `duration` is T in seconds, as
    the node itself counts it. `fenced`: the controller has taken the right away.
    """

    node: NodeName
    journal: JournalId
    boot: BootId
    beat: int = 0  # raised by every write
    duration: float = 600.0
    fenced: bool = False
    version: Version | None = None


class Want(Frozen):
    """A node cannot serve a pod: others give back `count` spare addresses, or just `address`."""

    node: NodeName
    family: Family
    rail: int | None
    count: int
    address: Address | None = None


class Board(Frozen):
    """The wants of one pool, oldest first; kept in the pool's status."""

    pool: PoolName
    wants: tuple[Want, ...] = ()
    version: Version | None = None


class Timing(Frozen):
    """The seconds that nodes and controller agree on; every one is measured by one clock alone."""

    contact: float = 600.0  # T: how long a node grants after the last renewal that it began
    margin: float = 60.0  # what reclaiming waits beyond T
    patience: float = 5.0  # how long a request waits for addresses that others give back
    recall: float = 60.0  # how long a node claims nothing after the store went back

    @property
    def silence(self) -> float:
        """After this long without a renewal, a node has surely stopped to grant."""
        return self.contact + self.margin


class NicAsk(Frozen):
    """Addresses for one interface, one of each family that the pool has for the rail.

    `addresses` are static: just these, or nothing. `owner` keeps its address while it is spare:
    `prefer` says where its pins lie.
    """

    interface: InterfaceName
    pool: PoolName
    rail: int | None = None
    addresses: tuple[Address, ...] = ()
    owner: Owner | None = None
    prefer: tuple[Address, ...] = ()


class Ask(Frozen):
    """All NICs of one container's request: it gets all addresses or none.

    `namespace` is the pod's, as the runtime tells it; empty where nobody told.
    """

    container: ContainerId
    pod: PodUid
    nics: tuple[NicAsk, ...]
    namespace: str = ""


class Lease(Frozen):
    """One address that a container has; with the booking its key is network, pod, container, NIC.

    `resting`: released, but not yet given to others; `rest` is for how many seconds.
    """

    network: NetworkName
    interface: InterfaceName
    pool: PoolName
    address: Address
    subnet: Subnet
    gateway: Address | None = None
    rest: float = 0.0
    owner: Owner | None = None
    resting: bool = False


@dataclass(frozen=True, slots=True)
class Booking:
    """All that one container has or had of this node: one record of the journal.

    `began` is when its newest lease was granted, by the clock of the process that did; a process
    that loads the record sets it to its own start.
    """

    container: ContainerId
    pod: PodUid
    leases: tuple[Lease, ...]
    began: float = field(default=0.0, compare=False)

    @property
    def live(self) -> tuple[Lease, ...]:
        """Those that the container still has."""
        return tuple(lease for lease in self.leases if not lease.resting)


class JournalIdentity(Frozen):
    """The record that is made with an empty journal of bookings and never changed."""

    journal: JournalId


class Usage(Frozen):
    """How full a pool is, for its status: addresses of one family and rail."""

    pool: PoolName
    family: Family
    rail: int | None
    size: int
    held: int
    nodes: int

    @property
    def free(self) -> int:
        """What no node holds."""
        return self.size - self.held
