"""What is offered to the kubelet and what a container got of it: PoolSpec, Pool, Offer, Grant.

The few values that cross between neighbours: api makes a PoolSpec out of a document,
pools/rules/pools meets it with the node's cards, adapters/kubelet tells the Offer of the Pool,
pools/rules/allocation answers with a Grant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import NewType

from kube_base.errors import Refused
from kube_base.frozen import Frozen, field
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import CharKind, PciAddress, PlannedHostLink
from kube_rdma.model.kubernetes import Sentence, SparsePart, StatusPart, Word
from kube_rdma.model.settings import FabricProfile

# What is done to a virtual function for a pod, as values: settings, and its driver bound anew.


class VlanProtocol(StrEnum):
    """The tag that carries a VLAN: of the customer, or of the provider around that."""

    CUSTOMER = "802.1q"
    PROVIDER = "802.1ad"


class LinkState(StrEnum):
    """What a virtual function is told of its link: that of the card, always up, always down."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


class FunctionSettings(Frozen):
    """What a physical function decides about a virtual one. None: to be left, or not told.

    `mac` is the administrative one; all zeros where none is set. `qos` and `protocol` belong to
    `vlan`, which is 0 for none. Rates are in Mbit/s, 0 for no limit. GUIDs are of InfiniBand, eight
    octets as ``02:00:00:00:00:00:00:01``; all zeros where the physical function has set none.
    """

    mac: str | None = None
    vlan: int | None = None
    qos: int | None = None
    protocol: VlanProtocol | None = None
    spoof_check: bool | None = None
    trust: bool | None = None
    link_state: LinkState | None = None
    min_rate: int | None = None
    max_rate: int | None = None
    node_guid: str | None = None
    port_guid: str | None = None


class FunctionPlace(Frozen):
    """A virtual function by its number, from 0, at its physical one.

    `physical` stays on the node; `pci` is the address of the physical function, which finds that
    again when it has another name or index.
    """

    physical: PlannedHostLink
    pci: PciAddress
    number: int


class SetFunction(Frozen):
    """Set up a virtual function through its physical one, which stays on the node.

    `previous` has the same fields as `wanted`, as they were before. Done when the physical function
    tells what is wanted. The link of the function may be on the node or in the pod.
    """

    place: FunctionPlace
    wanted: FunctionSettings
    previous: FunctionSettings


class ResetFunction(Frozen):
    """Give a virtual function its previous settings back.

    Nothing to do where the physical function has none of this number: settings go with it.
    """

    place: FunctionPlace
    previous: FunctionSettings


class RebindFunction(Frozen):
    """Bind the driver of a virtual function anew, so that it takes the GUIDs that it was given.

    Its RDMA device and its link, wherever they are, end with the binding and are made anew on the
    node, with another name and index; whoever wants them finds them by `pci`. Done when the RDMA
    device has the node GUID `guid`. Undone by the same with the `previous` GUID, all ones for
    none, after ResetFunction and before GiveBackLink; then it is done only when the RDMA device is
    on the node too.
    """

    pci: PciAddress
    physical: PciAddress  # nobody else changes its functions meanwhile
    driver: str
    guid: str
    previous: str


# Rails: which network of a rail-optimized fabric a physical card is on, as a number from 0.


class RailRecord(Frozen):
    """A record of the agent: the physical cards that ever had a rail, in the order of their rails.

    Each is called by the address that it had when it was numbered; a card that is gone, or in a
    pod, keeps its place. `guids` are the node GUIDs by which a card is known at another address,
    `places` the addresses that cards have by now, where it is not that of their name. `names` are
    the interfaces and addresses by which a policy lists cards, each with the card that had the
    name when it was last on the node. `boot` is the node's start that this was written in: since
    then cards of `waiting` were not seen yet, and those of `came` are new.
    """

    functions: tuple[CardId, ...] = ()
    names: tuple[tuple[str, CardId], ...] = ()
    guids: tuple[tuple[CardId, str], ...] = ()
    places: tuple[tuple[CardId, CardId], ...] = ()  # address now, name
    boot: str = ""
    waiting: tuple[CardId, ...] = ()
    came: tuple[CardId, ...] = ()


# What a share may take of an RDMA device, and what a pod takes of one.

MOST = 2**31 - 2
"""The largest limit: the kernel keeps an int, and its largest one means no limit (S32_MAX)."""


class RdmaLimits(Frozen):
    """How many handles and objects; None: no limit."""

    handles: int | None = None
    objects: int | None = None


class DeviceLimits(Frozen):
    """What a pod may take of a device, by its current name."""

    device: str
    limits: RdmaLimits


class DeviceUse(Frozen):
    """What a pod takes of a device now."""

    device: str
    handles: int
    objects: int


class PodDeviceUse(Frozen):
    """The same of a pod by its name, with what it may take."""

    namespace: str
    pod: str
    use: DeviceUse
    limits: RdmaLimits


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


# Virtual functions as they are wished for, and the one act that makes or removes them.


class FunctionsSpec(Frozen):
    """How many virtual functions each physical one that any selector chooses should have.

    `autoprobe`: the kernel binds a driver to each new one. `force`: also where the node's default
    route leads through the card, and in place of functions that somebody else made or set up.
    `source` is where the wish was written, for messages.
    """

    selectors: tuple[Selector, ...]
    count: int
    source: str
    autoprobe: bool = True
    force: bool = False


class SetFunctions(Frozen):
    """Give a physical function `wanted` virtual ones in place of the `now` that it has.

    The kernel takes a number only where there is none (sriov_numvfs_store, drivers/pci/iov.c), so
    a change of a number removes every function first.
    """

    physical: PciAddress
    name: str  # what people call it: its interface, else its address
    now: int
    wanted: int
    autoprobe: bool = True

    def __str__(self) -> str:
        """What is done, for the log."""
        return f"{self.name} gets {self.wanted} virtual functions in place of {self.now}"


class FunctionsPlan(Frozen):
    """What follows from the wishes now.

    `acts` can be done, `waits` are sentences about what cannot yet, `refusals` what a person has to
    change. `kept` are the physical functions that have what was wished. `waiting` has those of
    `waits` that end by themselves, each behind the source of its wish.
    """

    acts: tuple[SetFunctions, ...] = ()
    waits: tuple[str, ...] = ()
    refusals: tuple[Refused, ...] = ()
    kept: tuple[PciAddress, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()


class MadeFunctions(Frozen):
    """A record of the agent: since this boot, it answers for the virtual functions of a card.

    `begun`: it has begun to make them, and they may have no drivers yet.
    """

    physical: PciAddress
    boot: str  # the kernel's random/boot_id; no virtual function outlives a boot
    begun: bool = False


# What a NodePolicy of the cluster wishes of the nodes that it selects, and what became of it.


class ClusterNodePolicy(Frozen):
    """One policy. Its selector is a set of labels that a node has to have, all of them."""

    name: str
    selector: tuple[tuple[str, str], ...]
    priority: int
    pools: tuple[PoolSpec, ...]
    functions: tuple[FunctionsSpec, ...] = ()
    rails: tuple[str, ...] = ()
    generation: int = 0  # of the object; 0 for one that no API server has


class NodeSpecs(Frozen):
    """What the policies of one node come to; `overlaps` are sentences about those that disagree.

    `policies` are those that select the node, the one that wins over the others first.
    """

    pools: tuple[PoolSpec, ...] = ()
    functions: tuple[FunctionsSpec, ...] = ()
    rails: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
    policies: tuple[ClusterNodePolicy, ...] = ()


class PolicyOutcome(StrEnum):
    """What became of a policy on one node.

    Overruled: a policy of a higher priority, or the node's own file, says otherwise.
    """

    APPLIED = "applied"
    PENDING = "pending"
    REFUSED = "refused"
    OVERRULED = "overruled"


class PolicyAtNode(SparsePart):
    """A NodePolicy that selects the node, as the agent has seen it, and what became of it."""

    name: Word
    """name is the name of the NodePolicy."""
    generation: int
    """generation is the metadata.generation of the policy that the agent has seen."""
    outcome: PolicyOutcome = field(name="state")
    """state is applied, pending, refused or overruled. pending: it waits. refused: the node cannot
    do it, or a policy of the same priority contradicts it. overruled: a policy of higher priority,
    or the node's own file, says otherwise.
    """
    sentence: Sentence = field(name="message", default="")
    """message is why the policy is not applied. Left out: it is applied."""


class PolicyRemark(StatusPart):
    """A node where the policy is not applied, and why."""

    node: Word
    """node is the name of the node."""
    outcome: PolicyOutcome = field(name="state")
    """state is pending, refused or overruled, as the fields of these names say."""
    sentence: Sentence = field(name="message")
    """message says why the policy is not applied on the node."""


class PolicyRollup(Frozen):
    """A policy over its nodes: how many there are of each outcome, and why, worst first."""

    counts: tuple[tuple[PolicyOutcome, int], ...] = ()
    remarks: tuple[PolicyRemark, ...] = ()

    @property
    def nodes(self) -> int:
        """How many nodes the policy selects."""
        return sum(count for _, count in self.counts)

    def count(self, outcome: PolicyOutcome) -> int:
        """On how many of them this became of it."""
        return dict(self.counts).get(outcome, 0)


# Which names the kubelet takes for an extended resource: ``rdma/hca``.

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
PREFIX = (
    r"(?!requests\.)(?![^/]*kubernetes\.io(?:/|$))(?=[^/]{1,244}(?:/|$))"
    rf"{_LABEL}(?:\.{_LABEL})*"
)
NAME = "(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
RESOURCE = f"{PREFIX}/{NAME}"  # patterns for the whole of a text

_RESOURCE = re.compile(RESOURCE)


def is_extended_resource(name: str) -> bool:
    """Whether the kubelet takes `name` for a resource of a plugin."""
    return _RESOURCE.fullmatch(name) is not None
