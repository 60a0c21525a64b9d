"""What is seen of a pod, or of a pod that may be, and what that comes to: `kube-rdma explain`.

explain/evidence collects a PodEvidence, explain/rules makes an Explanation of it,
explain/views shows that. A part that was not seen is None or empty, and a NotSeen says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.admission import PodTemplate
from kube_rdma.model.attach.attachment import Attached, Attachment, HostNetwork, Network, NetworkAsk
from kube_rdma.model.attach.steps import Step
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import AllocatedClaim, ClaimParameters, PodClaims
from kube_rdma.model.doctor import ObservedPod
from kube_rdma.model.finding import Finding, NotSeen
from kube_rdma.model.ipam import InterfaceName, IPPool, PoolName
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import Binding
from kube_rdma.model.pools import Pool


class NodeBasis(Frozen):
    """A node as far as planning for a pod needs it, and how that was seen.

    Not `exact`: it is made of the NodeReport, which has no MTU, no length of an address and no
    virtual functions' settings; what hangs on these is not judged. `state` is its Node object.
    `held` is what other pods on it ask for of each resource, `used_cards` those that they were told
    of, once for each interface. Not `reported`: nobody tells of its cards, so nothing is planned.
    """

    name: str
    pools: tuple[Pool, ...]
    host: HostNetwork
    state: NodeState | None = None
    exact: bool = False
    held: tuple[tuple[str, int], ...] = ()
    used_cards: tuple[CardId, ...] = ()
    reported: bool = True


class ClaimsEvidence(Frozen):
    """The claims of a pod, and what the scheduler has allocated to them.

    `parameters` are what class and claim say of a request, by the claim's uid; `misread` has what
    is wrong with them instead. `missing` are names of claims that are not there.
    """

    pod: PodClaims
    allocated: tuple[AllocatedClaim, ...] = ()
    parameters: Mapping[str, Mapping[str, ClaimParameters]] = {}
    misread: Mapping[str, tuple[Finding, ...]] = {}
    missing: tuple[str, ...] = ()


class PodEvidence(Frozen):
    """A pod with all that is known of it and for it.

    `phase` is empty for a pod that does not exist yet, `why` is what it waits for. `asks` are the
    entries of its annotation with the namespace of their network, `networks` those that they name,
    `ip_pools` the pools of these. `misread` are sentences about documents that nobody understands.
    `told` is its status annotation; `recorded` and `bindings` are the agent's own records of it.
    """

    template: PodTemplate
    node: str = ""
    phase: str = ""
    why: str = ""
    asks: tuple[NetworkAsk, ...] = ()
    networks: tuple[Network, ...] = ()
    ip_pools: Mapping[PoolName, IPPool] = {}
    unread: bool = False  # nobody could look for the networks
    pools_seen: bool = True
    misread: tuple[Finding, ...] = ()
    attached: tuple[Attached, ...] = ()
    recorded: tuple[Attachment, ...] | None = None
    bindings: tuple[Binding, ...] | None = None
    basis: NodeBasis | None = None
    findings: tuple[Finding, ...] = ()
    seen: ObservedPod | None = None
    not_seen: tuple[NotSeen, ...] = ()
    offered: tuple[str, ...] | None = None  # resources of all nodes, while no node has the pod
    other_networks: tuple[str, ...] = ()  # by namespace/name, where one that it asks for is missing
    claims: ClaimsEvidence | None = None  # None: it has none, or nobody could look


class ExplainedAsk(Frozen):
    """Shares that a container asks for; `offer` says what the node has of the resource."""

    container: str
    resource: str
    count: int
    offer: str = ""


class ExplainedClaim(Frozen):
    """A claim of the pod: its word for it, the ResourceClaim, and what its devices stand for."""

    name: str
    claim: str
    means: str


class ExplainedNetwork(Frozen):
    """A network that the pod asks for; `means` says what it is."""

    interface: InterfaceName
    name: str
    means: str


class ExplainedShare(Frozen):
    """A share with its card. `sure`: the pod holds it; else it is what the agent would prefer."""

    resource: str
    card: str
    name: str = ""  # what people call the card
    container: str = ""
    share: str = ""
    sure: bool = True


class StepsFrom(StrEnum):
    """How the Steps are known."""

    RECORD = "record"  # the journal of the agent
    RULES = "rules"  # planned now by the rules of the agent


class StandIn(Frozen):
    """A text that a Step has for what nobody knows yet: show `word` in its place.

    `meaning` is a sentence without its stop, empty where the word speaks for itself.
    """

    text: str
    word: str
    meaning: str = ""


class ExplainedPlan(Frozen):
    """The Steps of an interface in their order; `done` None: nobody knows."""

    interface: InterfaceName
    network: str
    steps: tuple[Step, ...]
    stand_ins: tuple[StandIn, ...] = ()
    done: bool | None = None


class SeenInterface(Frozen):
    """An interface as programs in the pod see it; empty parts are not known."""

    name: InterfaceName
    network: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int | None = None
    device: str = ""
    gid: str = ""
    gid_index: int | None = None


class SeenFrom(StrEnum):
    """How it is known what programs see."""

    POD = "pod"  # its processes and its network namespace were looked at
    STATUS = "status"  # the agent has told the pod so, in its annotation
    RULES = "rules"  # a plan: nobody looked


class RdmaCmAddress(Frozen):
    """An address by which RDMA_CM takes `device`, and the interface that has it.

    Not `inside`: it is the node's, and the pod has none of its own on the card.
    """

    device: str
    interface: str
    address: str
    inside: bool = True


class Explanation(Frozen):
    """All of it. `settings` are files of the container, by path, with their lines: a plan always.

    `findings` are in the way of the pod, or what its author may want to know; each has its stage.
    `interfaces_from` and `doors_from` say how interfaces and device nodes are known.
    """

    pod: str
    node: str
    phase: str
    why: str
    asks: tuple[ExplainedAsk, ...]
    networks: tuple[ExplainedNetwork, ...]
    wishes: tuple[str, ...]  # what else its annotations say to kube-rdma
    shares: tuple[ExplainedShare, ...]
    plans: tuple[ExplainedPlan, ...]
    source: StepsFrom | None
    interfaces: tuple[SeenInterface, ...]
    doors: tuple[tuple[str, tuple[str, ...]], ...]  # by container its device nodes
    settings: tuple[tuple[str, tuple[str, ...]], ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    interfaces_from: SeenFrom = SeenFrom.RULES
    doors_from: SeenFrom = SeenFrom.RULES
    rdma_cm: tuple[RdmaCmAddress, ...] = ()
    claims: tuple[ExplainedClaim, ...] = ()
    pinned: tuple[tuple[str, int], ...] = ()  # by container with devices the bytes in use by verbs

    @property
    def is_refused(self) -> bool:
        """Whether the pod cannot have what it asks for."""
        return any(one.is_error for one in self.findings)
