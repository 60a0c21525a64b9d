"""Defines what a node offers and what a container got of it: PoolSpec, Pool, Offer, Grant.

These values cross between packages. First pools/documents makes a PoolSpec out of a document, then
pools/rules/pools makes a Pool of it with the node's cards. At last adapters/kubelet sends the Offer
of the Pool, and pools/rules/allocation answers with a Grant.
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

# Acts on a virtual function for a pod: settings, and its driver bound anew.


class VlanProtocol(StrEnum):
    """The kind of VLAN tag: of the customer, or of the provider around the customer's."""

    CUSTOMER = "802.1q"
    PROVIDER = "802.1ad"


class LinkState(StrEnum):
    """The link state set for a virtual function: like the card's, always up, or always down."""

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


class FunctionSettings(Frozen):
    """The settings of a virtual function, made through its physical one.

    A field that is None is not to be changed, or was not read.
    """

    mac: str | None = None  # the administrative one; all zeros where none is set
    vlan: int | None = None  # 0 for none
    qos: int | None = None  # of the vlan
    protocol: VlanProtocol | None = None
    spoof_check: bool | None = None
    trust: bool | None = None
    link_state: LinkState | None = None
    min_rate: int | None = None  # Mbit/s, 0 for no limit
    max_rate: int | None = None
    node_guid: str | None = None  # InfiniBand, eight octets as 02:…:01; all zeros where none is set
    port_guid: str | None = None


class FunctionPlace(Frozen):
    """The place of a virtual function: its physical function, and its number there, from 0."""

    physical: PlannedHostLink
    pci: PciAddress  # of the physical function, which finds it under another name or index
    number: int


FunctionReports = tuple[tuple[FunctionPlace, FunctionSettings], ...]
"""The settings of virtual functions as their physical ones report them."""


class SetFunction(Frozen):
    """Set up a virtual function through its physical one, which has to be on the node.

    `previous` has the same fields as `wanted`, as they were before. It is done when the physical
    function reports what is wanted. The link of the function may be on the node or in the pod.
    """

    place: FunctionPlace
    wanted: FunctionSettings
    previous: FunctionSettings


class ResetFunction(Frozen):
    """Give a virtual function its previous settings back.

    It changes nothing if no virtual function has this number: its settings went with it.
    """

    place: FunctionPlace
    previous: FunctionSettings


class RebindFunction(Frozen):
    """Bind the driver of a virtual function anew, so that it takes the GUIDs that it was given.

    Its RDMA device and its link, wherever they are, end with the old binding. They are made anew on
    the node, maybe with another name and index, and found by `pci`. It is done when the RDMA device
    has the node GUID `guid`. It is undone by the same with the `previous` GUID, all ones for none,
    after ResetFunction and before GiveBackLink. The undoing is done only when the RDMA device is on
    the node too.
    """

    pci: PciAddress
    physical: PciAddress  # nobody else changes its functions meanwhile
    driver: str
    guid: str
    previous: str


# Rails: which network of a rail-optimized fabric a physical card is on, as a number from 0.


class RailRecord(Frozen):
    """A record of the agent: the physical cards that have a rail, in the order of their rails.

    Each is called by the address that it had when it was numbered. A card that is gone, or in a
    pod, keeps its place until another card replaces it.
    """

    functions: tuple[CardId, ...] = ()
    # Entries of the configured list, each with the card that had the name when it was last here.
    names: tuple[tuple[str, CardId], ...] = ()
    guids: tuple[tuple[CardId, str], ...] = ()  # node GUIDs, which find a card at another address
    places: tuple[tuple[CardId, CardId], ...] = ()  # address now, name; where the two differ
    boot: str = ""  # the node's start in which this was written
    waiting: tuple[CardId, ...] = ()  # not seen since then
    came: tuple[CardId, ...] = ()  # new since then


# Limits of a share, and the use of an RDMA device by a pod.

MOST = 2**31 - 2
"""The largest limit: the kernel keeps an int, and its largest one means no limit (S32_MAX)."""


class RdmaLimits(Frozen):
    """The most handles and objects of an RDMA device for a share or a pod; None: no limit."""

    handles: int | None = None
    objects: int | None = None


class DeviceLimits(Frozen):
    """The limits of a pod for an RDMA device, by the present name of the device."""

    device: str
    limits: RdmaLimits


class DeviceUse(Frozen):
    """The number of handles and objects of an RDMA device that a pod uses now."""

    device: str
    handles: int
    objects: int


class PodDeviceUse(Frozen):
    """The use that a named pod makes of an RDMA device, and its limits."""

    namespace: str
    pod: str
    use: DeviceUse
    limits: RdmaLimits


# Pools: specs, shares, offers and grants.

DATA_FILES = (CharKind.UVERBS, CharKind.RDMA_CM)  # what programs open that move data
ShareId = NewType("ShareId", str)  # the device id that the kubelet sees; it allows 63 characters


class Mode(StrEnum):
    """The way in which cards are given to pods; pools/rules/modes has a row for each mode."""

    HCA = "hca"
    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    SHARED_MULTI = "shared-multi"
    SRIOV = "sriov"


class Bind(StrEnum):
    """The meaning of a share: the whole pool with all its cards, or one card."""

    POOL = "pool"
    PER_CARD = "per-card"


class Attach(StrEnum):
    """The moment at which the devices of a container are bound to it.

    NONE: at Allocate, as plain device nodes. REQUIRED: when its pod's network is attached, and it
    does not start before. AUTO: like REQUIRED for a pod that asks for a network, before the start
    of the container for one that does not.
    """

    NONE = "none"
    REQUIRED = "required"
    AUTO = "auto"


class Preference(StrEnum):
    """The order in which free shares are given.

    PACK: fill a card before the next is begun. SPREAD: as many cards as possible. LEAST_LOADED: the
    cards with the fewest shares in use. NUMA: cards near the GPUs of the pod's claims, else near
    free ones.
    """

    PACK = "pack"
    SPREAD = "spread"
    LEAST_LOADED = "least-loaded"
    NUMA = "numa"


class Serving(StrEnum):
    """The API of the kubelet by which pods get the cards of a pool on a node.

    PLUGIN: shares of the device plugin. CLAIMS: devices of slices, for ResourceClaims and for the
    resource's own name (KEP-5004); the plugin stays registered and lists no share.
    """

    PLUGIN = "plugin"
    CLAIMS = "claims"


class Variables(StrEnum):
    """The environment variables that a container gets.

    PCIDEVICE: those of the SR-IOV network device plugin.
    """

    NONE = "none"
    PCIDEVICE = "pcidevice"


class FunctionRange(Frozen):
    """Virtual functions, or sub-functions, of a physical function, as ``ens2f0#0,2-7``.

    `parent` is the interface or the PCI address of the physical function. `indexes` are ranges with
    both ends included; without any, the physical function and all its virtual ones are meant.
    """

    parent: str
    indexes: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        """Return the range as documents write it: ``ens2f0#0,2-7``."""
        spans = (str(a) if a == b else f"{a}-{b}" for a, b in self.indexes)
        return f"{self.parent}#{','.join(spans)}" if self.indexes else self.parent


class Selector(Frozen):
    """A choice of cards: each field that is set must hold, each is a choice of values.

    Vendors and devices are four hexadecimal digits in lower case.
    """

    source: str = ""  # the selector's place in its document, for messages
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
    """Additional facts about a card; `card` "*" means every card.

    Containers get them only with the PCIDEVICE variables.
    """

    card: str
    facts: tuple[tuple[str, str], ...]


class PoolSpec(Frozen):
    """A pool as a document asks for it; the mode decides shares, bind, attach and prefer if None.

    `source` is its place in the document (file, line), for messages. Without selectors every card
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
    """A record of the agent: the pool specs by which shares that pods hold were made.

    It also has specs that are not configured any more, as long as pods hold shares of them.
    """

    specs: tuple[PoolSpec, ...]


class Share(Frozen):
    """A share of a pool, as the kubelet gives it to containers.

    `card` is None where it stands for the whole pool.
    """

    id: ShareId
    healthy: bool
    numa_nodes: tuple[int, ...] = ()
    card: CardId | None = None


class Pool(Frozen, dict=True):
    """A pool as it is on the node: the spec, its cards, sorted by id, and their shares in order."""

    spec: PoolSpec
    shares: tuple[Share, ...]
    cards: tuple[Card, ...]
    rdma_cm: str | None = None  # path of the connection manager's node

    @cached_property
    def index(self) -> Mapping[ShareId, Share]:
        """Return the shares by id, computed only once, as each Allocate asks for them."""
        return MappingProxyType({share.id: share for share in self.shares})

    @property
    def unusable(self) -> tuple[Card, ...]:
        """Return the pool's cards that are not usable."""
        return tuple(card for card in self.cards if not card.usable)


class Offer(Frozen):
    """The offer of a resource to the kubelet: its shares, and which calls the kubelet makes.

    The calls are settled at registration, so a change of them registers anew.
    """

    resource: str
    shares: tuple[Share, ...]
    prefers: bool = False  # the kubelet should ask which free shares to take
    gated: bool = False  # it should ask before the start of each container with a share


class FileMount(Frozen):
    """A file or folder of the host that is mounted read-only into a container."""

    host_path: str
    container_path: str


class Grant(Frozen):
    """The grant of one container: shares of one pool, device nodes, variables and mounts."""

    resource: str
    shares: tuple[ShareId, ...]
    char_paths: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cdi: tuple[str, ...] = ()  # CDI devices that the runtime looks up when it makes the container
    cards: tuple[CardId, ...] = ()  # of the shares; all of the pool where they stand for it
    mounts: tuple[FileMount, ...] = ()


class DeviceInfo(Frozen):
    """The facts of a granted PCI function for CNI plugins; `physical` is that of a virtual one."""

    pci: PciAddress
    rdma_devices: tuple[str, ...]
    physical: PciAddress | None = None


# Virtual functions of a node: specs, and the one act that makes or removes them.


class FunctionsSpec(Frozen):
    """The number of virtual functions for each physical one that any selector chooses.

    `autoprobe`: the kernel binds a driver to each new one. `force`: also where the node is reached
    through the physical one, and in place of functions that somebody else made or set up. `source`
    is its place in the document, for messages.
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
        """Return what is done to the card, for the log."""
        return f"{self.name} gets {self.wanted} virtual functions in place of {self.now}"


class FunctionsPlan(Frozen):
    """The acts for the specs of virtual functions now, and what has to wait or is refused."""

    acts: tuple[SetFunctions, ...] = ()
    waits: tuple[str, ...] = ()  # sentences about what cannot be done yet
    refusals: tuple[Refused, ...] = ()  # what a person has to change
    kept: tuple[PciAddress, ...] = ()  # physical functions that have what was asked for
    waiting: tuple[tuple[str, str], ...] = ()  # a spec's source and one of `waits` that can end


class MadeFunctions(Frozen):
    """A record that the agent has made the virtual functions of a card in this boot.

    `begun`: it has begun to make them, and they may have no drivers yet.
    """

    physical: PciAddress
    boot: str  # the kernel's random/boot_id; no virtual function outlives a boot
    begun: bool = False


# NodePolicies of the cluster, and their outcome on the nodes that they select.

HARDWARE = "kube-rdma.io/hardware"
"""The annotation of a NodePolicy with its nodes' hardware, and the label that tells groups apart.

Agents do not write this label.
"""


class ClusterNodePolicy(Frozen):
    """A NodePolicy, for the nodes that have all labels of its selector."""

    name: str
    selector: tuple[tuple[str, str], ...]
    priority: int
    pools: tuple[PoolSpec, ...]
    functions: tuple[FunctionsSpec, ...] = ()
    rails: tuple[str, ...] = ()
    generation: int = 0  # of the object; 0 for one that no API server has


class NodeSpecs(Frozen):
    """The pools, functions and rails that policies want on one node."""

    pools: tuple[PoolSpec, ...] = ()
    functions: tuple[FunctionsSpec, ...] = ()
    rails: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()  # sentences about policies that disagree
    policies: tuple[ClusterNodePolicy, ...] = ()  # that select the node, the winner first


class PolicyOutcome(StrEnum):
    """The outcome of a policy on one node.

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
    """state is applied, pending, refused or overruled. pending: the node waits. refused: the node
    cannot do what the policy says, or a policy of the same priority says otherwise. overruled: a
    policy of higher priority, or the node's own file, says otherwise.
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
    """The nodes of a policy: how many have each outcome, and remarks about those not applied."""

    counts: tuple[tuple[PolicyOutcome, int], ...] = ()
    remarks: tuple[PolicyRemark, ...] = ()

    @property
    def nodes(self) -> int:
        """Return how many nodes the policy selects."""
        return sum(count for _, count in self.counts)

    def count(self, outcome: PolicyOutcome) -> int:
        """Return on how many nodes the policy had this outcome."""
        return dict(self.counts).get(outcome, 0)


# Names of extended resources, such as ``rdma/hca``, as the kubelet takes them.

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
PREFIX = (
    r"(?!requests\.)(?![^/]*kubernetes\.io(?:/|$))(?=[^/]{1,244}(?:/|$))"
    rf"{_LABEL}(?:\.{_LABEL})*"
)
NAME = "(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
RESOURCE = f"{PREFIX}/{NAME}"  # patterns for the whole of a text

_RESOURCE = re.compile(RESOURCE)


def is_extended_resource(name: str) -> bool:
    """Return whether a name is that of an extended resource to the kubelet."""
    return _RESOURCE.fullmatch(name) is not None
