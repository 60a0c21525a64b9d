"""What is offered to the kubelet and what a container got of it: PoolSpec, Pool, Offer, Grant.

The few values that cross between neighbours: api makes a PoolSpec out of a document,
pools/rules/pools meets it with the node's cards, adapters/kubelet tells the Offer of the Pool,
pools/rules/allocation answers with a Grant.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import NewType

from kube_base.frozen import Frozen
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import CharKind, PciAddress
from kube_rdma.model.pools.rdma_limits import RdmaLimits
from kube_rdma.model.settings.fabric import FabricProfile

DATA_FILES = (CharKind.UVERBS, CharKind.RDMA_CM)  # what programs open that move data
ShareId = NewType("ShareId", str)  # the device id that the kubelet sees; it allows 63 characters


class Mode(StrEnum):
    """How cards are given to pods; pools/rules/modes has a row for each."""

    HCA = "hca"
    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    SHARED_MULTI = "shared-multi"
    SRIOV = "sriov"


class Bind(StrEnum):
    """A share stands for the pool (every card in it) or for one card."""

    POOL = "pool"
    PER_CARD = "per-card"


class Attach(StrEnum):
    """When a container's devices are bound to it.

    NONE: at Allocate, as plain device nodes. REQUIRED: when its pod's network is attached, and it
    does not start before. AUTO: like REQUIRED for a pod that asks for a network, before the start
    of the container for one that does not.
    """

    NONE = "none"
    REQUIRED = "required"
    AUTO = "auto"


class Preference(StrEnum):
    """Which free shares to take first.

    PACK: fill a card before the next is begun. SPREAD: as many cards as possible. LEAST_LOADED: the
    cards with the fewest shares in use. NUMA: cards beside the GPUs that are still free.
    """

    PACK = "pack"
    SPREAD = "spread"
    LEAST_LOADED = "least-loaded"
    NUMA = "numa"


class Serving(StrEnum):
    """By which way of the kubelet pods get the cards of a pool: never by both on a node.

    PLUGIN: shares of the device plugin. CLAIMS: devices of slices, for ResourceClaims and for the
    resource's own name (KEP-5004); the plugin stays registered and lists no share.
    """

    PLUGIN = "plugin"
    CLAIMS = "claims"


class Variables(StrEnum):
    """Which variables a container gets. PCIDEVICE: those of the SR-IOV network device plugin."""

    NONE = "none"
    PCIDEVICE = "pcidevice"


class FunctionRange(Frozen):
    """Virtual functions of a physical one: ``ens2f0#0,2-7``.

    `parent` is the interface or the PCI address of the physical function, `indexes` are ranges with
    both ends; without any, the physical function itself and all its virtual ones are meant.
    """

    parent: str
    indexes: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        """As documents write it."""
        spans = (str(a) if a == b else f"{a}-{b}" for a, b in self.indexes)
        return f"{self.parent}#{','.join(spans)}" if self.indexes else self.parent


class Selector(Frozen):
    """Which cards: each field that is set must hold, each is a choice of values.

    Vendors, devices: four hexadecimal digits in lower case. `source` is the selector's place in its
    document, for messages.
    """

    source: str = ""
    vendors: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    link_types: tuple[str, ...] = ()
    pci_addresses: tuple[PciAddress, ...] = ()
    acpi_indexes: tuple[int, ...] = ()
    physical: tuple[FunctionRange, ...] = ()  # by interface of the physical function
    roots: tuple[FunctionRange, ...] = ()  # by address of the physical function
    auxiliary_types: tuple[str, ...] = ()  # "sf"
    rdma_devices: tuple[str, ...] = ()  # names of RDMA devices
    pkeys: tuple[int, ...] = ()  # partition key at index 0, without the membership bit
    rdma: bool | None = None  # whether it must have an RDMA device


class ExtraInfo(Frozen):
    """Facts that a document adds to what its containers are told; `card` "*" means every one."""

    card: str
    facts: tuple[tuple[str, str], ...]


class PoolSpec(Frozen):
    """A pool as it is wished for; what it leaves unsaid (None) is said by the mode.

    `source` is where the wish was written (file, line), for messages. Without selectors every card
    that the mode can take belongs to the pool; with several, a card belongs to it by any of them.
    """

    resource: str  # extended resource name, rdma/hca
    mode: Mode
    source: str
    selectors: tuple[Selector, ...] = ()
    shares: int | None = None
    bind: Bind | None = None
    attach: Attach | None = None
    prefer: Preference | None = None
    numa_hints: bool = True
    variables: Variables = Variables.NONE
    extra_info: tuple[ExtraInfo, ...] = ()
    device_files: tuple[CharKind, ...] = DATA_FILES  # which of its cards a container opens
    extra_paths: tuple[str, ...] = ()  # further device nodes that every container gets
    host_network: bool = False  # its pods use the node's own network namespace
    fabric: FabricProfile | None = None  # what programs on its cards should use
    serve: Serving | None = None  # None: the node's label says it, else the plugin serves it
    bare_ids: bool = False  # shares of the pool are 0, 1, …, as the shared device plugin calls them
    limits: RdmaLimits | None = None  # what a share may take of an RDMA device


class AppliedPools(Frozen):
    """A record of the agent: the wishes that are met, by which the shares that pods hold were made.

    Also those that nobody has any more, as long as pods hold shares of them.
    """

    specs: tuple[PoolSpec, ...]


class Share(Frozen):
    """One unit that the kubelet can give away; `card` is None where it stands for the pool."""

    id: ShareId
    healthy: bool
    numa_nodes: tuple[int, ...] = ()
    card: CardId | None = None


class Pool(Frozen, dict=True):
    """A pool as it is: the wish met with one Survey. Cards are sorted by id."""

    spec: PoolSpec
    shares: tuple[Share, ...]
    cards: tuple[Card, ...]
    rdma_cm: str | None = None  # path of the connection manager's node

    @cached_property
    def index(self) -> Mapping[ShareId, Share]:
        """The shares by id: made once, for there can be thousands and each Allocate asks."""
        return MappingProxyType({share.id: share for share in self.shares})

    @property
    def unusable(self) -> tuple[Card, ...]:
        """Those of `cards` that cannot be given away now."""
        return tuple(card for card in self.cards if not card.usable)


class Offer(Frozen):
    """What the kubelet is told about a resource.

    `prefers`: it should ask which free shares to take. `gated`: it should ask before the start of
    each container. Both are told at registration, so a change of them registers anew.
    """

    resource: str
    shares: tuple[Share, ...]
    prefers: bool = False
    gated: bool = False


class FileMount(Frozen):
    """A file or folder of the host that the container sees, read-only."""

    host_path: str
    container_path: str


class Grant(Frozen):
    """What one container holds: shares of one pool, their device nodes, variables and mounts.

    `cards` are those that the shares stand for, every card of the pool where they stand for it.
    `cdi` names CDI devices that the runtime looks up when it creates the container.
    """

    resource: str
    shares: tuple[ShareId, ...]
    char_paths: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cdi: tuple[str, ...] = ()
    cards: tuple[CardId, ...] = ()
    mounts: tuple[FileMount, ...] = ()


class DeviceInfo(Frozen):
    """What a granted function tells to CNI plugins; `physical` is set for a virtual one."""

    pci: PciAddress
    rdma_devices: tuple[str, ...]
    physical: PciAddress | None = None
