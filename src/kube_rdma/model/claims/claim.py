"""What a ResourceClaim asks for, and what claims hold.

adapters/cluster/kinds/claim_objects reads it, claims/rules/verdicts judges it. Fields are those of
resource.k8s.io/v1 (k8s.io/api v0.36.3, resource/v1/types.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.devices import ListedSlice, SliceDevice
from kube_rdma.model.ipam import InterfaceName, PoolName
from kube_rdma.model.pools import ShareId


class DeviceToleration(Frozen):
    """A taint of devices that a request takes; an empty key or effect stands for all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ClaimRequest(Frozen):
    """One request, or one of the choices of `firstAvailable`: its `name` is then parent/choice."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()  # in CEL
    every: bool = False  # allocationMode All
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, Fraction] = {}


class RequestChoices(Frozen):
    """A request as the claim has it: one way to meet it, or several, the best first."""

    name: str
    choices: tuple[ClaimRequest, ...]


class ClaimConstraint(Frozen):
    """What the devices of the named `requests`, of all if none is named, share or differ in."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class AllocationResult(Frozen):
    """A device of an allocation; `share` tells apart those who hold a shared one."""

    device: SliceDevice
    request: str = ""
    admin: bool = False
    share: str | None = None
    capacity: Mapping[str, Fraction] = {}


class Claim(Frozen):
    """A ResourceClaim; `held` is None while it is not allocated."""

    namespace: str
    name: str
    requests: tuple[RequestChoices, ...] = ()
    constraints: tuple[ClaimConstraint, ...] = ()
    held: tuple[AllocationResult, ...] | None = None
    reserved_for: tuple[str, ...] = ()  # pod/NAME


class DeviceClass(Frozen):
    """What every request of the class asks of a device beside its own selectors.

    `resource` is the extended resource that it stands for, empty for none.
    """

    name: str
    selectors: tuple[str, ...] = ()
    resource: str = ""


class ClaimNode(Frozen):
    """A node, as far as slices choose it."""

    name: str
    labels: Mapping[str, str] = {}


# What a person wants a claim template to ask for, as the options of `kube-rdma claim` say it.

CARD_CLASS, SHARED_CLASS = "rdma", "rdma-shared"
GPU_CLASS = "gpu.nvidia.com"
NEWEST = 99
"""The minor version that stands for the newest Kubernetes."""


class Reach(StrEnum):
    """How far from its GPU a card may be: at the same PCIe root, the same NUMA node, or anywhere.

    A wider one takes a nearer card first.
    """

    ROOT = "root"
    NUMA_NODE = "numa-node"
    ANY = "any"


class ClaimWish(Frozen):
    """Devices of one claim, for a pod of Kubernetes 1.`minor`.

    `cards` is None for one beside each GPU, or one without GPUs. `rails`: so many cards, all on
    different rails. `reach` is None where nearness does not count. `gbps` is the rate of a card, or
    of a share of one. An empty `card_class` is that of whole cards or of shares.
    """

    name: str = "rdma"
    cards: int | None = None
    rails: int | None = None
    gpus: int = 0
    reach: Reach | None = None
    shared: bool = False
    gbps: int | None = None
    card_class: str = ""
    gpu_class: str = GPU_CLASS
    network: str = ""  # a NetworkAttachmentDefinition, with its namespace or without
    minor: int = NEWEST


# What a claim or its class asks of the interface that a device becomes in the pod.

MOST_PARAMETERS = 10 << 10
"""Bytes of one configuration: OpaqueParametersMaxLength, k8s.io/api@v0.36.3 resource/v1."""


class NetworkReference(Frozen):
    """A network by name; without a namespace it is in that of the claim."""

    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ClaimParameters(Frozen):
    """What one document says, or several say together; None is what none of them says.

    `network` is a NetworkAttachmentDefinition; without it the interface is of `kind` and `mode`,
    with addresses of `pool`.
    """

    network: NetworkReference | None = None
    kind: NetworkKind | None = None
    mode: str | None = None  # of a macvlan or ipvlan interface
    interface: InterfaceName | None = None
    mtu: int | None = None  # 0: that of the card
    pool: PoolName | None = None
    addresses: tuple[AskedAddress, ...] | None = None
    routes: tuple[NetworkRoute, ...] | None = None
    default_route: bool | None = None
    mac: str | None = None
    guid: str | None = None


class ConfigOrigin(StrEnum):
    """Who wrote a configuration, by Kubernetes' words (AllocationConfigOrigin)."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


class OpaqueConfig(Frozen):
    """One entry of the configuration that a claim was allocated with.

    `requests` are those that it is for (``main``, or ``main/sub``), all if there are none.
    `parameters` is JSON of whatever form.
    """

    origin: ConfigOrigin
    driver: str
    parameters: bytes
    requests: tuple[str, ...] = ()


class ParameterFault(Frozen):
    """Parameters that do not go together: the `field` at fault as documents call it."""

    field: str
    problem: str
    remedy: str


class AskedDevices(Frozen):
    """The devices that one request asks for, with the parameters that they will have.

    `request` is ``main`` or ``main/sub``; `count` is None for all that there are.
    """

    request: str
    count: int | None
    parameters: ClaimParameters


# What the kubelet asks of a driver of dynamic resource allocation, and what it is answered.

CLAIM_KIND = "kube-rdma.io/claim"
"""Of CDI devices that stand for what a claim holds."""


class ClaimName(Frozen):
    """A ResourceClaim: its name may be used again, its `uid` never."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """namespace/name, as in messages of Kubernetes."""
        return f"{self.namespace}/{self.name}"


class PreparedDevice(Frozen):
    """A device of a claim that is ready for containers.

    `requests` are those of the claim that it answers, all if there are none. `cdi` are names of
    CDI devices, which have to exist by now.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share: str | None = None  # of a device that several claims share (KEP-5075)


class ClaimUser(Frozen):
    """Who may use a claim (status.reservedFor): a pod, or what stands for several, by its kind."""

    resource: str  # pods
    name: str
    uid: str


class AllocatedDevice(Frozen):
    """What the scheduler gave for a request of a claim (status.allocation.devices.results).

    `request` is ``main`` or ``main/sub``. `slots` are what was consumed of the capacity of that
    name, None for a device that is nobody's besides. `admin`: it is for looking at the device, and
    takes nothing away. `tolerant`: the request bears taints of devices.
    """

    request: str
    driver: str
    pool: str
    device: str
    share: str | None = None
    slots: int | None = None
    admin: bool = False
    tolerant: bool = False


class AllocatedClaim(Frozen):
    """A ResourceClaim as it stands in the cluster; `devices` and `configs` are of every driver.

    `pod_claim` is what its pod calls it, where it was made for the pod by a template.
    """

    claim: ClaimName
    devices: tuple[AllocatedDevice, ...]
    users: tuple[ClaimUser, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    pod_claim: str = ""


class ClaimShare(Frozen):
    """A device of a claim as it is booked: what it stands for on this node.

    `share` is its name among the shares of the resource, which nobody had before and nobody gets
    later, but where a share is the card itself. `char_paths` are the device nodes that the CDI
    device `cdi` has. Without any the device does not exist: a container that names it does not
    start, which is meant where a network has to come first (Attach.REQUIRED). No `cdi`: the card
    has no node to give. `parameters` say what interface the device becomes in a pod.
    """

    request: str
    pool: str
    device: str
    share_id: str | None
    resource: str
    share: ShareId
    cards: tuple[CardId, ...]
    slots: int
    char_paths: tuple[str, ...]
    cdi: str = ""
    admin: bool = False
    parameters: ClaimParameters = ClaimParameters()

    @property
    def makes_interface(self) -> bool:
        """Whether a pod gets an interface by it, without saying so itself."""
        return not self.admin and self.parameters != ClaimParameters()


class ClaimDevice(Frozen):
    """A device of a claim of a pod that is going to be an interface of it."""

    claim: ClaimName
    share: ClaimShare

    @property
    def source(self) -> str:
        """What messages call it."""
        return f"claim {self.claim}: request {self.share.request}"


class PreparedClaim(Frozen):
    """A record of the agent: a claim that the kubelet has been told to be prepared.

    `boot` is the boot of the node in which its device nodes have these paths, `pod_claim` is as
    AllocatedClaim has it.
    """

    claim: ClaimName
    shares: tuple[ClaimShare, ...]
    users: tuple[ClaimUser, ...]
    boot: str
    when: float  # seconds of the wall clock, for people and to tell which of two came later
    pod_claim: str = ""


# What the status of a claim says of a device that kube-rdma gave for it (status.devices).


class DeviceCondition(Frozen):
    """A condition of a device. `reason` is one word for programs, `message` a sentence."""

    type: str
    holds: bool
    reason: str
    message: str


class DeviceStatus(Frozen):
    """One device of a claim. `interface` "" is none in a pod; `addresses` are CIDRs."""

    pool: str
    device: str
    share_id: str | None
    conditions: tuple[DeviceCondition, ...]
    interface: str = ""
    addresses: tuple[str, ...] = ()
    mac: str = ""


# Which claims a pod has, and which of its containers use them.


class ClaimUse(Frozen):
    """A container that names a claim of its pod; without a `request` it means all of them."""

    container: str
    claim: str  # as the pod calls it (spec.resourceClaims)
    request: str = ""


class PodClaims(Frozen):
    """A pod with its claims.

    `claims` are pairs: what the pod calls a claim, and the name of the ResourceClaim; a claim that
    is not made yet is left out. That of extended resources has the same word for both. `templates`
    are the pod's words for claims that were made for it.
    """

    namespace: str
    name: str
    uid: str
    claims: tuple[tuple[str, str], ...] = ()
    uses: tuple[ClaimUse, ...] = ()
    templates: tuple[str, ...] = ()


# What decides about a claim, read at one time: the claim and all that the scheduler looks at.


class ClaimWorld(Frozen):
    """`others` are claims that hold devices; `slices` are in the order of their list."""

    claim: Claim
    nodes: tuple[ClaimNode, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[ListedSlice, ...] = ()
    others: tuple[Claim, ...] = ()


# Whether a claim can be met on a node, and what is against each device: what claims/rules says.


class Reason(StrEnum):
    """What is against a device for a request, in the order in which the scheduler looks."""

    POOL_INCOMPLETE = "poolIncomplete"
    POOL_INVALID = "poolInvalid"
    IN_USE = "inUse"  # of another claim, or chosen for this one already
    CLASS_SELECTOR = "classSelector"
    SELECTOR = "selector"
    NODE_SELECTOR = "nodeSelector"  # the device is not for this node
    CAPACITY_UNKNOWN = "capacityUnknown"  # it lacks a capacity that is asked for
    CAPACITY = "capacity"
    COUNTER = "counter"
    TAINT = "taint"
    CONSTRAINT = "constraint"
    NOT_EVALUATED = "notEvaluated"  # a selector has what kube-rdma does not evaluate


class Objection(Frozen):
    """What is against a device, and a sentence without its stop."""

    reason: Reason
    text: str


class DeviceVerdict(Frozen):
    """A device for a request: without an `objection` it could be had, `chosen` if it would be."""

    device: SliceDevice
    request: str
    objection: Objection | None = None
    chosen: bool = False


class ClaimOutcome(StrEnum):
    """What becomes of the claim on a node. The order is that of the page, the worst first."""

    REFUSED = "refused"  # the scheduler gives up, on every node
    NOT_MET = "notMet"
    NOT_JUDGED = "notJudged"
    MET = "met"


class ClaimVerdict(Frozen):
    """A node. `granted` is what the claim would be given there.

    `why` is for a REFUSED or NOT_JUDGED claim. Of a claim that is NOT_MET, `lacking` is how many
    devices the best attempt lacked, of `wanted`, and `stuck` the request that it ended at.
    """

    node: str
    outcome: ClaimOutcome
    granted: tuple[AllocationResult, ...] = ()
    why: str = ""
    wanted: int = 0
    lacking: int = 0
    stuck: str = ""
    devices: tuple[DeviceVerdict, ...] = ()


class ClaimExplanation(Frozen):
    """The claim with the verdicts of all nodes, and sentences that a reader has to know."""

    claim: Claim
    nodes: tuple[ClaimVerdict, ...]
    headline: str
    notes: tuple[str, ...] = ()

    @property
    def is_met(self) -> bool:
        """Whether it is allocated, or could be: what stops the scheduler stops it on all nodes."""
        outcomes = {verdict.outcome for verdict in self.nodes}
        could = ClaimOutcome.MET in outcomes and ClaimOutcome.REFUSED not in outcomes
        return self.claim.held is not None or could
