"""Addresses of a cluster: what pools give, which node holds what, which container has what.

There are three kinds of facts (docs/decisions/0007-ipam-cells.md). People write pools, or the
configurations of their networks bring them. Blocks, node leases and borrow queues live at the API
server and change by compare-and-swap only. Allocation records are a node's own, in its journal.
ipam/rules decides over these values; ipam/ip_pool.py and ipam/objects.py make them of documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Literal, NewType

from kube_base.frozen import Frozen
from kube_rdma.model.kubernetes import SparsePart, Word
from kube_rdma.model.late_binding import ContainerId as ContainerId  # noqa: PLC0414  the same for IPAM

NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)
NetworkName = NewType("NetworkName", str)
"""An address space of its own, a DNS label; equal addresses in two networks are two addresses."""

PodUid = NewType("PodUid", str)
InterfaceName = NewType("InterfaceName", str)  # inside the pod
FIRST = InterfaceName("eth0")  # of the cluster's network at each runtime (go-cni, ocicni)
Owner = NewType("Owner", str)
"""Owner is the interface of a pod that keeps its address over restarts: namespace/pod/interface.

Of a slice it is the node: node/NAME/ADDRESS.
"""

JournalId = NewType("JournalId", str)  # made at random with an empty journal, kept inside it
BootId = NewType("BootId", str)  # /proc/sys/kernel/random/boot_id
Version = NewType("Version", str)  # the API server's resourceVersion
Bits = NewType("Bits", int)
"""A set of addresses of one block: bit n stands for the block's first address plus n."""

Address = IPv4Address | IPv6Address
FamilyName = Literal["IPv4", "IPv6"]
Subnet = IPv4Network | IPv6Network


def is_default(to: Subnet) -> bool:
    """Return whether routes to this subnet are default routes, or half of one (0.0.0.0/1)."""
    return to.prefixlen < 2


def gid_of(address: Address) -> str:
    """Return the RoCE GID of an address as sysfs prints it: IPv4 mapped into IPv6, IPv6 itself.

    The kernel makes it so in rdma_ip2gid (include/rdma/ib_addr.h).
    """
    if isinstance(address, IPv4Address):
        return IPv6Address(f"::ffff:{address}").exploded
    return address.exploded


# Annotations of IPPools, which no agent may write: an administrator changed what it gives, or
# `kube-rdma ip migrate` did, for pods of whereabouts.
EDITED, IMPORTED = "kube-rdma.io/edited", "kube-rdma.io/whereabouts-addresses"
MOST_MADE_RANGES, MOST_MADE_EXCLUDES = 16, 256  # of a pool that a network's configuration brings
BLOCK_ADDRESSES = 64
"""Addresses in a block: a /26 of IPv4, a /122 of IPv6. Names of IPBlocks depend on it: it stays."""


class Family(IntEnum):
    """The version of the Internet Protocol: IPv4 or IPv6."""

    V4 = 4
    V6 = 6

    @property
    def title(self) -> FamilyName:
        """Return the family's name in documents: IPv4 or IPv6."""
        return "IPv4" if self is Family.V4 else "IPv6"

    def address(self, number: int) -> Address:
        """Return the address of this family with this number."""
        return IPv4Address(number) if self is Family.V4 else IPv6Address(number)


class Span(Frozen):
    """The addresses from `first` to `last`, both included."""

    first: Address
    last: Address


class NodeSlice(Frozen):
    """A slice of a range that people chose for a node."""

    node: NodeName
    subnet: Subnet
    gateway: Address | None = None  # None: by the index of PerNode


class PerNode(Frozen):
    """The division of a range into one slice for each node."""

    prefix: int  # of each slice, in bits
    gateway: int | None = None  # the index of the router's address in each slice
    nodes: tuple[NodeSlice, ...] = ()  # that people chose
    # The slices are parts of one subnet, so a pod's address has the prefix length of the range;
    # else each is a subnet of its own, with a router to the others.
    is_one_subnet: bool = False


class IPRange(Frozen):
    """A part of a subnet from which a pool gives addresses."""

    subnet: Subnet
    first: Address | None = None  # None: the first of the subnet
    last: Address | None = None  # None: the last of the subnet
    gateway: Address | None = None
    rail: int | None = None  # of the cards it is for; None: of rails without a range
    source: str = ""  # the place in its document, for messages
    per_node: PerNode | None = None

    @property
    def span(self) -> Span:
        """Return the first and the last address of the range."""
        first = self.subnet.network_address if self.first is None else self.first
        return Span(first, self.subnet.broadcast_address if self.last is None else self.last)


class Route(Frozen):
    """A route that pods get with an address."""

    to: Subnet
    via: Address | None = None  # None: the gateway of the address's range


class IPPool(Frozen):
    """An IPPool: the addresses that it has, and how pods get them."""

    name: PoolName
    ranges: tuple[IPRange, ...]
    network: NetworkName = NetworkName("default")
    excludes: tuple[Span, ...] = ()
    routes: tuple[Route, ...] = ()
    block_size: int = 32  # addresses that a node acquires ahead at once, at most
    cooldown: float = 60.0  # seconds that an address is left alone after its release
    probe: bool = False  # ask the network for each address before a pod uses it
    namespaces: tuple[str, ...] = ()  # whose pods may have addresses of it; none: all

    @property
    def routed(self) -> bool:
        """Return whether the pool has a default route."""
        return any(is_default(route.to) for route in self.routes)


class BlockKey(Frozen, order=True):
    """The identity of a block, which is BLOCK_ADDRESSES aligned addresses of one network.

    Overlapping pools of a network meet in the same blocks, so each address is held in one place.
    """

    network: NetworkName
    family: Family
    first: int  # a multiple of BLOCK_ADDRESSES

    @property
    def name(self) -> str:
        """Return the name of the block's IPBlock: ``default.10-0-0-64``."""
        if self.family is Family.V4:
            parts = [f"{self.first >> shift & 0xFF}" for shift in range(24, -1, -8)]
        else:
            parts = [f"{self.first >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
        return f"{self.network}.{'-'.join(parts)}"

    def address(self, offset: int) -> Address:
        """Return the address at `offset` in the block, from 0 to BLOCK_ADDRESSES - 1."""
        return self.family.address(self.first + offset)


class NodeHolding(Frozen):
    """The addresses of a block that one node holds: no other node may allocate them."""

    node: NodeName
    bits: Bits


class Pin(Frozen):
    """The address that `owner` had last; pods that may have any address get others first."""

    owner: Owner
    offset: int


class Block(Frozen):
    """An IPBlock: which node holds which of its addresses; all others are free."""

    key: BlockKey
    holdings: tuple[NodeHolding, ...] = ()
    pins: tuple[Pin, ...] = ()
    # Every write raises it, so no two writes are equal, and each that succeeds makes all older ones
    # that are still under way fail.
    edition: int = 0
    version: Version | None = None  # None: the object does not exist yet
    is_labelled: bool = True  # False: its holders do not see it, for an earlier release wrote it
    is_plain: bool = True  # False: its text is not as agents write it, so it could keep theirs out


class NodeLease(Frozen):
    """A node's right to allocate, renewed by its agent (coordination.k8s.io Lease)."""

    node: NodeName
    journal: JournalId  # of the agent that renews it: a rebuilt node has another
    boot: BootId
    heartbeat: int = 0  # raised by every write
    duration: float = 600.0  # T in seconds, as the node itself counts it
    fenced: bool = False  # the controller has revoked the right
    version: Version | None = None


class BorrowRequest(SparsePart, kw_only=True):
    """A request of a node for addresses that others hold: one of status.wants of an IPPool."""

    node: Word
    """node is the node that lacks addresses for a pod."""
    family: FamilyName
    """family is the family of the addresses that the node lacks: IPv4 or IPv6."""
    rail: int | None = None
    """rail is the rail that the addresses are for. Left out: NICs whose rail has no range of its
    own.
    """
    count: int
    """count is the number of addresses that the node lacks."""
    address: Word | None = None
    """address is the certain address that a pod waits for. Left out: any address will do."""

    def __post_init__(self) -> None:
        """Raise ValueError for a text that is no address, or has a zone."""
        if self.address is not None and ("%" in self.address or not ip_address(self.address)):
            raise ValueError(self.address)


class BorrowQueue(Frozen):
    """The borrow requests for one pool: status.wants of its IPPool.

    Nodes are in the order in which they began to ask.
    """

    pool: PoolName
    requests: tuple[BorrowRequest, ...] = ()
    version: Version | None = None


class Timing(Frozen):
    """The seconds that nodes and controller agree on; each is measured by one clock alone."""

    contact: float = 600.0  # T: how long a node allocates after the start of its last renewal
    margin: float = 60.0  # what reclaiming waits beyond T
    patience: float = 5.0  # how long a request waits for addresses that others give back
    recall: float = 60.0  # how long a node acquires nothing after etcd was restored to earlier data
    sight: float = 60.0  # how long a node watches others' blocks after it lacked addresses

    @property
    def silence(self) -> float:
        """Return the seconds after its last renewal until a node surely allocates no more."""
        return self.contact + self.margin


class NicRequest(Frozen):
    """A request for addresses of one interface, one of each family of its rail's ranges."""

    interface: InterfaceName
    pool: PoolName
    rail: int | None = None
    addresses: tuple[Address, ...] = ()  # static: just these, or nothing
    owner: Owner | None = None  # gets its last address again if possible
    prefer: tuple[Address, ...] = ()  # that the owner's pins name


class AddressRequest(Frozen):
    """A request for all interfaces of a container.

    The container gets addresses for all of them, or none at all.
    """

    container: ContainerId
    pod: PodUid
    nics: tuple[NicRequest, ...]
    namespace: str = ""  # the pod's; empty where the runtime names none


class AddressAllocation(Frozen):
    """One address of an interface of a container; its record names pod and container."""

    network: NetworkName
    interface: InterfaceName
    pool: PoolName
    address: Address
    subnet: Subnet
    gateway: Address | None = None
    cooldown: float = 0.0  # seconds
    owner: Owner | None = None
    cooling: bool = False  # released, and only for its owner until its cool-down ends
    node_slice: Subnet | None = None  # of the node, in pools whose nodes have slices


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    """The allocations of one container on this node: one record of the journal."""

    container: ContainerId
    pod: PodUid
    allocations: tuple[AddressAllocation, ...]
    # When its newest address was allocated, by the clock of this process: a process that loads the
    # record sets it to its own start.
    began: float = field(default=0.0, compare=False)

    @property
    def live(self) -> tuple[AddressAllocation, ...]:
        """Return the allocations that were not released."""
        return tuple(allocation for allocation in self.allocations if not allocation.cooling)


class JournalIdentity(Frozen):
    """The record with the identity of a journal, written when the journal is made."""

    journal: JournalId


class Usage(SparsePart, kw_only=True):
    """Addresses of a pool of one family and rail: one of status.usage of its IPPool."""

    family: FamilyName
    """family is the family of the addresses: IPv4 or IPv6."""
    rail: int | None = None
    """rail is the rail whose NICs get these addresses. Left out: NICs whose rail has no range of
    its own.
    """
    size: int
    """size is the number of addresses that pods can get, without excluded and reserved ones; with
    perNode, of all addresses of the slices. 9007199254740991 means this many or more.
    """
    held: int
    """held is the number of addresses that nodes hold: for pods, resting, or in advance."""
    free: int
    """free is the number of addresses that no node holds."""
    nodes: int
    """nodes is the number of nodes that hold addresses."""
