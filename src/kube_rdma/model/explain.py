"""The evidence of a pod, or of a pod that does not exist yet, and its Explanation.

explain/evidence collects a PodEvidence, explain/rules makes an Explanation of it,
explain/views shows that. A part that was not seen is None or empty, and a NotSeen says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.attach import attachment
from kube_rdma.model.attach.steps import Step
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import ClaimParameters, PodClaims, ResourceClaim
from kube_rdma.model.doctor import ObservedPod
from kube_rdma.model.finding import Finding, NotSeen
from kube_rdma.model.ipam import InterfaceName, IPPool, PoolName
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import Binding
from kube_rdma.model.names import PublishedName
from kube_rdma.model.pools import Pool


class NodeBasis(Frozen):
    """A node as planning for a pod needs it, read from its kernel (`exact`) or its NodeReport."""

    name: str
    pools: tuple[Pool, ...]
    host: attachment.HostNetwork
    state: NodeState | None = None  # of its Node object
    # Not exact: made of the NodeReport, which has no MTU, no length of an address and no settings
    # of virtual functions; rules that need these are not asked.
    exact: bool = False
    held: tuple[tuple[str, int], ...] = ()  # by resource the shares that other pods ask for
    used_cards: tuple[CardId, ...] = ()  # of other pods, once for each of their interfaces
    reported: bool = True  # False: its cards are unknown, so nothing is planned
    recorded: bool = False  # a node of files, which have its pools

    @property
    def by_resource(self) -> Mapping[str, Pool]:
        """Return the node's pools by the name of their resource."""
        return {pool.spec.resource: pool for pool in self.pools}

    @property
    def card_names(self) -> Mapping[str, str]:
        """Return the names of the cards in the node's pools, for people; the keys are card ids."""
        return {card.id: card.name for pool in self.pools for card in pool.cards}


class ClaimsEvidence(Frozen):
    """The ResourceClaims of a pod, with the devices allocated to them."""

    pod: PodClaims
    allocated: tuple[ResourceClaim, ...] = ()
    parameters: Mapping[str, Mapping[str, ClaimParameters]] = {}  # by claim's uid, by request
    misread: Mapping[str, tuple[Finding, ...]] = {}  # by uid: the faults of its parameters
    missing: tuple[str, ...] = ()  # names of claims that are not there


class PodEvidence(Frozen):
    """All evidence about a pod from which `kube-rdma explain` draws its conclusions."""

    template: PodTemplate
    node: str = ""
    phase: str = ""  # "": the pod does not exist yet
    why: str = ""  # the reason that it waits for
    # Of its annotation, with the namespace of the network.
    asks: tuple[attachment.NetworkAsk, ...] = ()
    networks: tuple[attachment.Network, ...] = ()  # those that it asks for
    ip_pools: Mapping[PoolName, IPPool] = {}  # of these networks
    unread: bool = False  # nobody could look for the networks
    pools_seen: bool = True
    misread: tuple[Finding, ...] = ()  # about documents that nobody understands
    attached: tuple[attachment.AttachedInterface, ...] = ()  # by its status annotation
    recorded: tuple[attachment.Attachment, ...] | None = None  # by its agent's journal
    bindings: tuple[Binding, ...] | None = None  # likewise
    basis: NodeBasis | None = None
    findings: tuple[Finding, ...] = ()
    seen: ObservedPod | None = None
    not_seen: tuple[NotSeen, ...] = ()
    nodes: tuple[NodeState, ...] = ()  # all, while no node has the pod
    other_networks: tuple[str, ...] = ()  # by namespace/name, where one that it asks for is missing
    claims: ClaimsEvidence | None = None  # None: it has none, or nobody could look
    names: tuple[PublishedName, ...] = ()  # of its addresses
    preflight: tuple[str, ...] = ()  # in sentences, how far that is


class ExplainedAsk(Frozen):
    """A container's request for shares, with what the node offers of the resource."""

    container: str
    resource: str
    count: int
    offer: str = ""  # the pool of the node, in words


class ExplainedClaim(Frozen):
    """A claim of the pod, and a description of its devices."""

    name: str  # in the pod's spec
    claim: str  # the ResourceClaim
    means: str


class ExplainedNetwork(Frozen):
    """A network that the pod asks for; `means` is its description."""

    interface: InterfaceName
    name: str
    means: str


class ExplainedShare(Frozen):
    """A share that a container holds, or would get, with its card."""

    resource: str
    card: str
    name: str = ""  # what people call the card
    container: str = ""
    share: str = ""
    sure: bool = True  # the pod holds it; else the agent would prefer it


class StepsFrom(StrEnum):
    """The source of the Steps of an Explanation."""

    RECORD = "record"  # the journal of the agent
    RULES = "rules"  # planned now by the rules of the agent


class StandIn(Frozen):
    """A text in a Step for a value that is decided later, and the word that is shown instead."""

    text: str
    word: str
    meaning: str = ""  # a sentence without its stop; "" where the word speaks for itself


class ExplainedPlan(Frozen):
    """The Steps by which an interface is made, in their order."""

    interface: InterfaceName
    network: str
    steps: tuple[Step, ...]
    stand_ins: tuple[StandIn, ...] = ()
    done: bool | None = None  # None: nobody knows


class SeenInterface(Frozen):
    """An interface as programs in the pod see it, or would; empty fields are not known."""

    name: InterfaceName
    network: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int | None = None
    device: str = ""
    gid: str = ""
    gid_index: int | None = None


class SeenFrom(StrEnum):
    """The source of a fact about the inside of a pod."""

    POD = "pod"  # its processes and its network namespace were looked at
    STATUS = "status"  # the agent has written it into the pod's annotation
    RULES = "rules"  # a plan: nobody looked


class RdmaCmAddress(Frozen):
    """The address by which RDMA_CM finds `device`, and the interface that has the address."""

    device: str
    interface: str
    address: str
    inside: bool = True  # False: it is the node's, and the pod has none of its own on the card


class Explanation(Frozen):
    """The conclusions of `kube-rdma explain` about a pod."""

    pod: str
    node: str
    phase: str
    why: str
    asks: tuple[ExplainedAsk, ...]
    networks: tuple[ExplainedNetwork, ...]
    annotations: tuple[str, ...]  # what else the pod says to kube-rdma
    shares: tuple[ExplainedShare, ...]
    plans: tuple[ExplainedPlan, ...]
    source: StepsFrom | None
    interfaces: tuple[SeenInterface, ...]
    device_nodes: tuple[tuple[str, tuple[str, ...]], ...]  # by container
    settings: tuple[tuple[str, tuple[str, ...]], ...]  # by file its lines; a plan always
    findings: tuple[Finding, ...]  # in the pod's way, or worth knowing; each has its stage
    notes: tuple[str, ...]
    interfaces_from: SeenFrom = SeenFrom.RULES
    device_nodes_from: SeenFrom = SeenFrom.RULES
    rdma_cm: tuple[RdmaCmAddress, ...] = ()
    claims: tuple[ExplainedClaim, ...] = ()
    pinned: tuple[tuple[str, int], ...] = ()  # by container with devices the bytes in use by verbs
    names: tuple[PublishedName, ...] = ()  # of its addresses, by Services that ask for them
    preflight: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the pod as commands take it: pod/NAMESPACE/NAME."""
        return f"pod/{self.pod}"

    @property
    def is_refused(self) -> bool:
        """Return whether the pod cannot have what it asks for."""
        return any(one.is_error for one in self.findings)
