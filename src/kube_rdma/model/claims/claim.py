"""ResourceClaims: what they ask for, what they hold, and what became of it on a node and in pods.

adapters/cluster/kinds/resource_api reads them, claims/rules/verdicts judges waiting claims, and
claims/rules/prepare books allocated ones. Fields are those of resource.k8s.io/v1
(k8s.io/api v0.36.3, resource/v1/types.go).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction

from kube_base.frozen import Frozen, field
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.devices import DRIVER, ResourceSlice, SliceDevice, TaintRules
from kube_rdma.model.ipam import InterfaceName, PoolName
from kube_rdma.model.kubernetes import NamespacedName, Toleration
from kube_rdma.model.pools import ShareId

SLOTS = "slots"
"""The capacity of a device of kube-rdma's driver that several claims share."""


class ClaimRequest(Frozen):
    """A request for devices in a claim, or one choice of a request's `firstAvailable`."""

    name: str  # of a choice parent/choice
    device_class: str
    selectors: tuple[str, ...] = ()  # in CEL
    every: bool = False  # allocationMode All
    count: int = 1
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: Mapping[str, Fraction] = {}


class RequestChoices(Frozen):
    """A request of a claim: one way to fulfil it, or several, the best first."""

    name: str
    choices: tuple[ClaimRequest, ...]


class ClaimConstraint(Frozen):
    """An attribute in which devices of a claim have to agree or to differ.

    It is about the devices of `requests`, or of all requests if none is named.
    """

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class AllocationResult(Frozen, rename="camel"):
    """A device that the scheduler allocated for a request (status.allocation.devices.results)."""

    request: str = ""  # main, or main/sub
    driver: str = ""
    pool: str = ""
    device: str = ""
    share: str | None = field(default=None, name="shareID")  # of a device that several claims share
    admin: bool | None = field(default=None, name="adminAccess")  # only to look at the device
    capacity: Mapping[str, Fraction] = field(default_factory=dict, name="consumedCapacity")
    tolerations: tuple[Toleration, ...] = ()

    @property
    def id(self) -> SliceDevice:
        """Return the full name of the device: driver, pool and device."""
        return SliceDevice(self.driver, self.pool, self.device)

    @property
    def slots(self) -> int | None:
        """Return how many slots of a shared device the claim takes; None if the result has none."""
        consumed = self.capacity.get(SLOTS, self.capacity.get(f"{DRIVER}/{SLOTS}"))
        return None if consumed is None else math.ceil(consumed)


class ClaimName(NamespacedName):
    """The name of a ResourceClaim, which may be used again, with its `uid`, which never is."""

    uid: str


class ClaimUser(Frozen):
    """A consumer of a claim, an entry of its status.reservedFor: a pod, or an owner of several."""

    resource: str  # pods
    name: str
    uid: str


class ConfigOrigin(StrEnum):
    """The origin of a configuration: the class or the claim (AllocationConfigSource)."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


class OpaqueConfig(Frozen):
    """A configuration for a driver, with which a claim was allocated."""

    origin: ConfigOrigin
    driver: str
    parameters: bytes  # JSON of whatever form
    requests: tuple[str, ...] = ()  # main, or main/sub; none: it is for all


class ResourceClaim(Frozen):
    """A ResourceClaim of the cluster, with devices and configurations of any driver."""

    claim: ClaimName
    requests: tuple[RequestChoices, ...] = ()
    constraints: tuple[ClaimConstraint, ...] = ()
    allocated: tuple[AllocationResult, ...] | None = None  # None: it is not allocated
    users: tuple[ClaimUser, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    pod_claim: str = ""  # its name in the pod that a template made it for

    @property
    def devices(self) -> tuple[AllocationResult, ...]:
        """Return the devices that are allocated to the claim, () before that."""
        return self.allocated or ()


class DeviceClass(Frozen):
    """A DeviceClass: conditions that all requests of the class add to their own selectors."""

    name: str
    selectors: tuple[str, ...] = ()
    resource: str = ""  # the extended resource that it stands for


class ClaimNode(Frozen):
    """A node with the facts by which slices choose nodes."""

    name: str
    labels: Mapping[str, str] = {}


# The parameters of a claim or its class, for the interface that a device becomes in the pod.

MOST_PARAMETERS = 10 << 10
"""Bytes of one configuration: OpaqueParametersMaxLength, k8s.io/api@v0.36.3 resource/v1."""


class NetworkReference(Frozen):
    """The name of a network; without a namespace it is in that of the claim."""

    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ClaimParameters(Frozen):
    """The parameters of kube-rdma's driver for devices of a claim; None: not set."""

    network: NetworkReference | None = None  # a NetworkAttachmentDefinition, in place of the kind
    kind: NetworkKind | None = None
    mode: str | None = None  # of a macvlan or ipvlan interface
    interface: InterfaceName | None = None
    mtu: int | None = None  # 0: that of the card
    pool: PoolName | None = None  # that addresses are taken from
    addresses: tuple[AskedAddress, ...] | None = None
    routes: tuple[NetworkRoute, ...] | None = None
    default_route: bool | None = None
    mac: str | None = None
    guid: str | None = None


class ParameterFault(Frozen):
    """A contradiction between parameters of a claim."""

    field: str  # the one at fault, as documents call it
    problem: str
    remedy: str


class AskedDevices(Frozen):
    """The number of devices that a claim's request asks for, with their parameters."""

    request: str  # main, or main/sub
    count: int | None  # None: all that there are
    parameters: ClaimParameters


# Claims that the kubelet has prepared: the answer to it, and the booking on this node.

CLAIM_KIND = "kube-rdma.io/claim"
"""The kind of CDI devices that stand for the devices of a claim."""


class PreparedDevice(Frozen):
    """A device of a claim that the agent has made ready for containers."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()  # of the claim that it answers; none: all
    cdi: tuple[str, ...] = ()  # names of CDI devices, which exist by now
    share: str | None = None  # of a device that several claims share (KEP-5075)


class ClaimShare(Frozen):
    """A device that a claim was allocated, as the agent of its node has booked it."""

    request: str
    pool: str
    device: str
    share_id: str | None
    resource: str
    # Its name among the shares of the resource; nobody else gets it, unless it is the card itself.
    share: ShareId
    cards: tuple[CardId, ...]
    slots: int
    # The device nodes of the CDI device. With none the CDI device does not exist and a container
    # that names it does not start, as is meant where a network comes first (Attach.REQUIRED).
    char_paths: tuple[str, ...]
    cdi: str = ""  # empty: the card has no device node
    admin: bool = False
    parameters: ClaimParameters = ClaimParameters()

    @property
    def makes_interface(self) -> bool:
        """Return whether this device becomes an interface of the pod, as its parameters say."""
        return not self.admin and self.parameters != ClaimParameters()


class ClaimDevice(Frozen):
    """A device of a pod's claim that becomes an interface of the pod."""

    claim: ClaimName
    share: ClaimShare

    @property
    def source(self) -> str:
        """Return a text that names the device's claim and request, for messages."""
        return f"claim {self.claim}: request {self.share.request}"


class PreparedClaim(Frozen):
    """A record of the agent: a claim that it has prepared for the kubelet."""

    claim: ClaimName
    shares: tuple[ClaimShare, ...]
    users: tuple[ClaimUser, ...]
    boot: str  # the boot of the node in which its device nodes have these paths
    when: float  # seconds of the wall clock, for people and to tell which of two came later
    pod_claim: str = ""  # as in ResourceClaim


# The status of the devices that kube-rdma gave for a claim (status.devices).


class DeviceCondition(Frozen):
    """A condition in the status of a claim's device."""

    type: str
    holds: bool
    reason: str  # one word, for programs
    message: str  # a sentence


class DeviceStatus(Frozen):
    """The entry of kube-rdma's driver about one device in a claim's status."""

    pool: str
    device: str
    share_id: str | None
    conditions: tuple[DeviceCondition, ...]
    interface: str = ""  # in the pod; empty: none
    addresses: tuple[str, ...] = ()  # CIDRs
    mac: str = ""


# Pods with their claims, and the containers that use them.


class ClaimUse(Frozen):
    """A container's use of a claim of its pod, or of one request of the claim."""

    container: str
    claim: str  # its name in the pod (spec.resourceClaims)
    request: str = ""  # empty: all requests of the claim


class PodClaims(NamespacedName):
    """A pod with its claims; a claim from a template is missing until it exists."""

    uid: str
    # Pairs of the name in the pod and that of the ResourceClaim; both are the same for a claim that
    # the scheduler made for extended resources.
    claims: tuple[tuple[str, str], ...] = ()
    uses: tuple[ClaimUse, ...] = ()
    templates: tuple[str, ...] = ()  # names in the pod of claims that were made for it
    resources: tuple[str, ...] = ()  # extended resources that its containers ask for


# Explanations of claims that wait: what the scheduler looks at, and what claims/rules says of it.


class ClaimWorld(Frozen):
    """A claim and all that the scheduler reads to allocate it, at one moment."""

    claim: ResourceClaim
    nodes: tuple[ClaimNode, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()  # in the order of their list
    others: tuple[ResourceClaim, ...] = ()  # claims that hold devices
    taints: TaintRules = TaintRules()  # which explain_claim adds to the slices


class Reason(StrEnum):
    """The reason why a device cannot be allocated, in the order of the checks."""

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
    """A reason why a device cannot be allocated, with a sentence without full stop."""

    reason: Reason
    text: str
    rule: str = ""  # the DeviceTaintRule that is the reason, with its taint


class DeviceVerdict(Frozen):
    """The verdict on a device for a request; without an objection it could be allocated."""

    device: SliceDevice
    request: str
    objection: Objection | None = None
    chosen: bool = False  # it would be allocated


class ClaimOutcome(StrEnum):
    """The outcomes of a claim on a node, the worst first."""

    REFUSED = "refused"  # the scheduler gives up, on every node
    NOT_MET = "notMet"
    NOT_JUDGED = "notJudged"
    MET = "met"


class ClaimVerdict(Frozen):
    """The verdict on a claim on one node."""

    node: str
    outcome: ClaimOutcome
    granted: tuple[AllocationResult, ...] = ()  # what it would be given there
    why: str = ""  # of one that is REFUSED or NOT_JUDGED
    # Of one that is NOT_MET: how many devices the best attempt lacked of how many, and the request
    # at which it ended.
    wanted: int = 0
    lacking: int = 0
    stuck: str = ""
    devices: tuple[DeviceVerdict, ...] = ()


class ClaimExplanation(Frozen):
    """A claim, with a verdict for each node."""

    claim: ResourceClaim
    nodes: tuple[ClaimVerdict, ...]
    headline: str
    notes: tuple[str, ...] = ()  # sentences that a reader has to know

    @property
    def is_met(self) -> bool:
        """Return whether the claim is allocated or could be now.

        One that is not allocated could be if some node meets it, and the scheduler would not give
        it up (REFUSED).
        """
        outcomes = {verdict.outcome for verdict in self.nodes}
        could = ClaimOutcome.MET in outcomes and ClaimOutcome.REFUSED not in outcomes
        return self.claim.allocated is not None or could
