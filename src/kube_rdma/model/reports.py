"""Describes a node's report of itself, the facts of a whole cluster, and the grid of its cards.

First reports/rules/node_report makes a NodeReport of each survey of the agent, then
reports/node_report makes it the status of an object. Lists and texts have a limit there, so an
object has one too. Columns of kubectl, which show one value each, have texts of their own. The
facts of a cluster come from reports/gather, and reports/rules/cluster judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Meta

from kube_base.frozen import Frozen, field
from kube_rdma.model import kubernetes
from kube_rdma.model.attach.attachment import Network
from kube_rdma.model.card import CardId
from kube_rdma.model.finding import NotSeen
from kube_rdma.model.measures import Bandwidth, gbps
from kube_rdma.model.pools import PolicyAtNode
from kube_rdma.model.repair import RepairEntry


class ReportedNeighbour(kubernetes.SparsePart):
    """The switch port that a card's port is plugged into, as the switch itself says it."""

    switch: kubernetes.Word
    """switch is the name of the switch, or its chassis ID if it tells no name. Example: leaf-1."""
    port: kubernetes.Word
    """port is the port of the switch, by its port ID. Example: Ethernet1/1."""
    chassis: kubernetes.Word = ""
    """chassis is the chassis ID of the switch, mostly a MAC address. Left out: switch is the
    chassis ID. Example: 52:54:00:aa:00:01.
    """

    def __str__(self) -> str:
        """Return switch and port, as ``leaf-1 Ethernet1/1``."""
        return f"{self.switch} {self.port}"


OLD_SECONDS = 480.0  # an agent renews its report within 400 s


def is_old(age: float | None) -> bool:
    """Decide whether a report of so many seconds says too little of now; None is not known."""
    return age is None or age > OLD_SECONDS


PortKey = tuple[CardId, str, int]
"""The card, RDMA device and number of a port."""


class KnownNeighbour(Frozen):
    """All that an agent knows of a port's neighbour; `unheard` says why there is none."""

    neighbour: ReportedNeighbour | None = None
    unheard: str = ""


class ReportedPort(kubernetes.SparsePart):
    """A port of an RDMA device."""

    device: kubernetes.Word
    """device is the RDMA device of the port. Example: mlx5_0."""
    number: int
    """number is the number of the port on its device. Example: 1."""
    state: kubernetes.Word
    """state is the state of the port as the kernel spells it; a port carries traffic if it is
    ACTIVE. Other values are DOWN, INIT, ARMED, ACTIVE_DEFER, NOP and UNKNOWN.
    """
    link_layer: kubernetes.Word
    """linkLayer is what the port speaks: InfiniBand, Ethernet (RoCE) or Unknown."""
    rate: Bandwidth | None = None
    """rate is the speed of the port in bit/s, a quantity. Left out: the kernel does not tell it.
    Example: 400G.
    """
    rate_gbps: float | None = None
    """rateGbps is the old form of rate, in Gbit/s; it is removed in the next release. Agents of the
    previous release write it.
    """
    netdev: kubernetes.Word | None = None
    """netdev is the network interface of the port, of Ethernet or IPoIB. Left out: the node sees
    none. Example: ens2f0np0.
    """
    bond: kubernetes.Word | None = None
    """bond is the bond that the interface is enslaved to. Left out: none. Example: bond0."""
    neighbour: ReportedNeighbour | None = None
    """neighbour is the switch port at the other end of the cable, by LLDP. Left out: no pool has
    the card, the agent does not listen, or nothing was heard.
    """
    unheard: kubernetes.Sentence = ""
    """unheard is why nothing was heard, with a remedy. Left out: neighbour is known, a frame may
    still come, or nobody listens. Example: no LLDP frame came to ens2f0np0 for 121 s: LLDP may be
    off at the switch.
    """

    @property
    def gbps(self) -> float | None:
        """Return the port's rate in Gbit/s; None where the kernel does not tell it."""
        return self.rate_gbps if self.rate is None else gbps(self.rate)


class ReportedCard(kubernetes.SparsePart):
    """A card, in a pool or not; the operator reads `carries` and `addresses` before it acts."""

    id: Annotated[CardId, Meta(max_length=253)]
    """id is the name of the card that survives renames and reboots, mostly its PCI address.
    Example: 0000:81:00.0.
    """
    name: kubernetes.Word
    """name is what people call the card: its RDMA devices, else its interfaces, else its id.
    Example: mlx5_0.
    """
    resources: Annotated[tuple[kubernetes.Word, ...], Meta(max_length=16)] = ()
    """resources are the resource names whose pools have the card. Left out: no pool has it.
    Example: [rdma/hca].
    """
    numa_node: int | None = None
    """numaNode is the NUMA node that the card is near to. Left out: it is not known."""
    ports: Annotated[tuple[ReportedPort, ...], Meta(max_length=16)] = ()
    """ports are the ports of the card's RDMA devices. Left out: the node sees no RDMA device of the
    card.
    """
    reasons: Annotated[tuple[kubernetes.Sentence, ...], Meta(max_length=8)] = ()
    """reasons are why the card cannot be given to pods. For a healthy card without resources they
    say which name in a selector was probably meant for the card. Left out: the card is healthy.
    Example: no port is ACTIVE; port 1 is DOWN (Disabled).
    """
    gone: bool | None = None
    """gone is true if a pool had the card and the node no longer has it. Left out: the card is
    there.
    """
    carries: Annotated[tuple[kubernetes.Sentence, ...], Meta(max_length=8)] = ()
    """carries is what the node itself uses the card for: its default route, further routes, mounted
    storage, a virtual machine's own interface. The operator does not change the driver of such a
    node. Left out: none of these.
    """
    addresses: Annotated[tuple[kubernetes.Word, ...], Meta(max_length=16)] = ()
    """addresses are the IP addresses of the node on the card's interfaces, without prefix length.
    Left out: none. Example: [192.0.2.7].
    """
    rail: int | None = None
    """rail is the rail of the card, as pools of addresses by rail count it, from 0. Left out: the
    card has no rail, or an agent of an older release wrote the report. Example: 3.
    """
    driver: kubernetes.Word = ""
    """driver is the kernel driver of the card's function. Left out: no function, or none is bound.
    Example: mlx5_core.
    """
    firmware: kubernetes.Word = ""
    """firmware is the version of the firmware, of the card's first RDMA device that says one. Left
    out: none does. Example: 28.39.1002.
    """
    part_of: Annotated[str, Meta(max_length=253)] = ""
    """partOf is the physical card of which this one is a virtual function or a sub-function, by its
    id. Left out: this is a physical card. Example: 0000:81:00.0.
    """
    degraded: kubernetes.Sentence = ""
    """degraded is which error counter rises, how fast, since when, and what ends this; pods get the
    card as before. Left out: none rises for long, or the agent has just restarted. Example:
    link_downed of port 1 of mlx5_0 rises by 0.4 a minute since 2026-11-30T08:15:00Z (…).
    """


class ReportedPool(kubernetes.SparsePart):
    """A resource as the agent offers it to the kubelet."""

    resource: kubernetes.Word
    """resource is the resource name that pods ask for. Example: rdma/hca."""
    mode: kubernetes.Word
    """mode is how the pool gives its cards to pods: hca, exclusive, shared, shared-multi or sriov.
    """
    shares: int
    """shares is how many shares the pool has, healthy or not."""
    healthy: int
    """healthy is how many of these shares are healthy; the kubelet gives no others to pods."""
    cards: int
    """cards is how many cards the pool has, healthy or not."""
    serve: kubernetes.Word = ""
    """serve is claims where pods get the cards as devices of claims. The kubelet lists no share
    then, and kubectl describe node shows 0. Left out: the device plugin serves the pool.
    """
    bind: kubernetes.Word = ""
    """bind is pool where a share of the pool has all of its cards. Left out: a share has one card,
    or an agent of an older release wrote the report.
    """

    @property
    def by_claims(self) -> bool:
        """Return whether pods get the pool's cards by claims, not by the device plugin."""
        return self.serve == "claims"

    def __str__(self) -> str:
        """Return resource and shares: ``rdma/hca 1000/1000``, or ``rdma/hca 8/8 by claims``."""
        way = " by claims" if self.by_claims else ""
        return f"{self.resource} {self.healthy}/{self.shares}{way}"


class PendingMode(kubernetes.SparsePart):
    """A change of a resource's mode that waits."""

    resource: kubernetes.Word
    """resource is the resource name that the change is for. Example: rdma/hca."""
    mode: kubernetes.Word
    """mode is the mode that the resource is to have. Example: shared."""
    sentence: kubernetes.Sentence = field(name="message")
    """message is what the change waits for, such as pods that have to end."""


def seconds_since(time: str, now: datetime) -> float | None:
    """Return the seconds from a time in RFC 3339 until now; None for another text."""
    with suppress(ValueError, TypeError):  # what is no time, or one without a zone
        return (now - datetime.fromisoformat(time)).total_seconds()
    return None


class NodeReport(kubernetes.SparsePart):
    """The report of a node's agent on its last survey."""

    version: kubernetes.Word = field(name="agentVersion")
    """agentVersion is the version of kube-rdma that the agent of the node has. Example: 0.1.0."""
    cards: Annotated[tuple[ReportedCard, ...], Meta(max_length=256)] = ()
    """cards are all cards of the node's pools, and other RDMA cards that could be used. If there is
    no room for all cards, healthy ones are left out first.
    """
    rejected: Annotated[tuple[ReportedCard, ...], Meta(max_length=64)] = ()
    """rejected are RDMA cards that no pool has and that cannot be used, with the reasons. Left out:
    none.
    """
    pools: Annotated[tuple[ReportedPool, ...], Meta(max_length=64)] = ()
    """pools are the resources that the agent offers to the kubelet. Left out: none."""
    pending: Annotated[tuple[PendingMode, ...], Meta(max_length=64)] = ()
    """pending are resources whose configured mode is not in force yet, and what each waits for.
    Left out: none.
    """
    refusals: Annotated[tuple[kubernetes.Sentence, ...], Meta(max_length=16)] = ()
    """refusals are sentences about configuration that the agent refuses. Left out: none.
    """
    troubles: Annotated[tuple[kubernetes.Sentence, ...], Meta(max_length=16)] = ()
    """troubles are sentences about configuration that contradicts itself or the node, such as two
    pools that name one card. Left out: none.
    """
    rerouted: Annotated[tuple[kubernetes.Sentence, ...], Meta(max_length=64)] = ()
    """rerouted are pods whose default route leads through an interface of a network, whether they
    asked for this route or not. Left out: none. Example: train/worker-0 by net1.
    """
    omitted: int = 0
    """omitted is how many cards had no room in cards and rejected. Left out: none."""
    policies: Annotated[tuple[PolicyAtNode, ...], Meta(max_length=64)] = ()
    """policies are the NodePolicies that select the node, with what became of each. Left out: none.
    """
    metrics: kubernetes.Sentence = ""
    """metrics is why the agent does not serve its metrics, as when another program has the port.
    Left out: the agent serves its metrics, or they are off.
    """
    renew_time: kubernetes.Word = ""
    """renewTime is when the agent last wrote the report, in RFC 3339. The agent writes it every few
    minutes, also without a change. Left out: an agent of an older release wrote it.
    """

    def age(self, now: datetime) -> float | None:
        """Return the seconds since the report was renewed; None if that is not known."""
        return seconds_since(self.renew_time, now)

    @property
    def pooled(self) -> tuple[ReportedCard, ...]:
        """Return the cards that are in pools, or were until they were gone."""
        return tuple(card for card in self.cards if card.resources or card.gone)

    @property
    def left_out(self) -> tuple[ReportedCard, ...]:
        """Return the usable cards that no pool has, but a selector was probably meant to name."""
        return tuple(c for c in self.cards if c.reasons and not (c.resources or c.gone))

    @property
    def ill(self) -> tuple[ReportedCard, ...]:
        """Return the cards of pools that cannot be given to pods now."""
        return tuple(card for card in self.pooled if card.reasons)


class ReportSummary(kubernetes.SparsePart):
    """The columns that kubectl shows for a NodeReport."""

    cards: int
    """cards is how many cards the pools of the node have, cards that are gone included."""
    healthy: int
    """healthy is how many of these cards can be given to pods."""
    pools: kubernetes.Word = ""
    """pools is each resource with its healthy shares and all of them, and "by claims" where claims
    serve it. Example: rdma/hca 1000/1000.
    """
    mode: kubernetes.Word = ""
    """mode is the mode of the pools, or several with commas between them. Example: hca."""
    pending: kubernetes.Word = ""
    """pending is each resource that waits and the mode that it is to have. Left out: none waits.
    Example: rdma/hca to shared.
    """
    problems: kubernetes.Word = ""
    """problems is the first problem, and how many others there are. Left out: there is none.
    Example: mlx5_3: no port is ACTIVE (+2).
    """


class BurnInReceipt(kubernetes.SparsePart):
    """The record that a node's cards were measured before the node took pods."""

    time: kubernetes.Word
    """time is when the measurements ended, in RFC 3339."""
    policy: kubernetes.Word
    """policy is the name of the RepairPolicy whose burnIn asked for them. Example: cards."""
    result: kubernetes.Sentence
    """result is what was measured. Example: All 24 pairs are well, 96 to 98 Gb/s."""
    peers: Annotated[tuple[kubernetes.Word, ...], Meta(max_length=16)] = ()
    """peers are the nodes that the node was measured with. Left out: none. Example: [node-1]."""
    firmware: Annotated[tuple[kubernetes.Word, ...], Meta(max_length=64)] = ()
    """firmware is the firmware of each card then. Left out: no card says it. Example: [mlx5_0
    28.39.1002].
    """
    remark: kubernetes.Sentence = ""
    """remark is what the measurement does not show, as of the first nodes of a cluster, which have
    no good node beside them. Left out: nothing.
    """


class NodeReportStatus(NodeReport, kw_only=True):
    """A report as the status of its object: short enough, with what people ask for first."""

    summary: ReportSummary
    """summary has a short text or number for each column of kubectl get."""
    conditions: Annotated[tuple[kubernetes.Condition, ...], Meta(max_length=16)] = ()
    """conditions are CardsHealthy, ConfigurationAccepted, ConfigurationApplied and Ready. Ready is
    True if the three others are True.
    """
    receipt: BurnInReceipt | None = None
    """receipt says how the cards were measured before the node took pods; the controller writes it.
    Left out: they were not.
    """


class ExpectedCable(kubernetes.SparsePart):
    """A cable that a node is to have."""

    card: Annotated[CardId, Meta(max_length=253)]
    """card is the id of the card, as in status.cards. Example: 0000:81:00.0."""
    switch: kubernetes.Word
    """switch is the name of the switch that the cable leads to. Example: leaf-1."""
    port: int = 1
    """port is the number of the port on the card. Default: 1."""
    switch_port: kubernetes.Word = ""
    """switchPort is the port of the switch. Left out: any port of that switch. Example:
    Ethernet1/1.
    """


class NodeReportSpec(kubernetes.SparsePart):
    """The expectations of an administrator about a node; kube-rdma fabric accept writes them."""

    cabling: Annotated[tuple[ExpectedCable, ...], Meta(max_length=256)] = ()
    """cabling are the cables that the node is to have; a card whose cable leads elsewhere is
    reported. Left out: any cable will do.
    """


class NodeReportObject(kubernetes.StatusPart):
    """NodeReport says which RDMA cards a node has, what its agent offers, and what is wrong.

    The agent of the node writes the status. A NodeReport has the name of its node, and is deleted
    with the node.
    """

    api_version: Literal["kube-rdma.io/v1alpha1"]
    kind: Literal["NodeReport"]
    spec: NodeReportSpec | None = None
    """spec is what an administrator expects of the node. Left out: nothing."""
    status: NodeReportStatus | None = None
    """status is what the agent of the node reports. The agent restores it when another client
    changes it.
    """


# A cluster at one moment, as its API server tells it.

# Without these nothing can be said of a cluster's health.
_ESSENTIAL = frozenset(
    {"nodes", "DaemonSets and Deployments", "pods of agents and controllers", "NodeReport"}
)


class ProgramRole(StrEnum):
    """The program of kube-rdma that a pod or workload runs."""

    AGENT = "agent"
    CONTROLLER = "controller"


class ProgramTemplate(Frozen):
    """The image and command line of a workload's container, by which its program is known."""

    workload: str  # name of the DaemonSet or Deployment
    image: str
    words: tuple[str, ...] = ()


class ChosenNodes(Frozen):
    """The node labels and tolerations by which a pod or workload chooses its nodes."""

    labels: tuple[tuple[str, str], ...] = ()  # of its nodeSelector
    tolerations: tuple[kubernetes.Toleration, ...] = ()


class Workload(Frozen):
    """A DaemonSet or a Deployment; it has a role if it runs agents or a controller."""

    role: ProgramRole | None  # None: not judged, or of another program
    namespace: str
    name: str
    desired: int
    ready: int
    updated: int
    image: str = ""
    networks: bool = False  # it gives pods their networks
    reports: bool = False  # its agents have the roles node and plugin, so they report
    nodes: ChosenNodes = ChosenNodes()
    words: tuple[str, ...] = ()  # command and arguments of its first container
    labels: tuple[tuple[str, str], ...] = ()  # they choose its pods

    @property
    def template(self) -> ProgramTemplate:
        """Return the image and command line, by which the workload's program is known."""
        return ProgramTemplate(self.name, self.image, self.words)

    @property
    def title(self) -> str:
        """Return the workload as namespace/name."""
        return f"{self.namespace}/{self.name}"


class ProgramPod(Frozen):
    """A pod of one of kube-rdma's workloads, and why it is not ready."""

    workload: str  # its title
    namespace: str
    name: str
    node: str
    ready: bool
    why: str = ""  # what its container waits for, or why it ended


class PolicyState(Frozen):
    """The facts of a NicClusterPolicy's status by which its health is judged."""

    title: str  # with its namespace; without, where the definition is for the whole cluster
    state: str
    reason: str
    notes: tuple[str, ...] = ()  # of conditions that do not hold
    ours: bool = True  # kube-rdma's operator wrote the status


class NodePolicyState(Frozen):
    """The facts of a NodePolicy's status by which its health is judged."""

    name: str
    seen: bool = False  # a controller has looked at this version
    nodes: int = 0
    applied: int = 0
    pending: int = 0
    refused: int = 0
    overruled: int = 0
    reason: str = ""  # of the first condition that does not hold; "" where all do
    message: str = ""


class AddressPool(Frozen):
    """The facts of an IPPool's status by which its health is judged."""

    name: str
    ranges: str
    used: str
    free: str
    broken: str = ""  # a sentence; "" where all is well
    scarce: str = ""
    short: tuple[str, ...] = ()  # nodes that cannot serve a pod
    routed: bool = False  # it has a default route


class ClusterEvent(Frozen):
    """A Kubernetes Event about an object; `last` is the time of its last occurrence (RFC 3339)."""

    kind: str
    namespace: str
    name: str
    reason: str
    note: str
    last: str = ""
    is_warning: bool = True


class WaitingPod(kubernetes.NamespacedName):
    """A pod in phase Pending."""

    node: str = ""
    resources: tuple[str, ...] = ()  # the extended ones that it asks for
    networks: bool = False  # its annotations ask for networks
    nodes: ChosenNodes = ChosenNodes()
    preflight: bool = False  # it asks for one


class ClusterFacts(Frozen, dict=True):
    """All that was read of a cluster to judge its health.

    None means not seen (`not_seen`), or that there is no such kind (`missing`).
    """

    nodes: tuple[kubernetes.NodeState, ...] | None = None
    workloads: tuple[Workload, ...] | None = None
    pods: tuple[ProgramPod, ...] | None = None
    reports: Mapping[str, NodeReport] | None = None
    receipts: Mapping[str, BurnInReceipt] | None = None  # of nodes measured before use
    cabling: Mapping[str, tuple[ExpectedCable, ...]] | None = None  # that nodes are to have
    policies: tuple[PolicyState, ...] | None = None
    node_policies: tuple[NodePolicyState, ...] | None = None
    repairs: Mapping[str, tuple[RepairEntry, ...]] | None = None  # by RepairPolicy
    pools: tuple[AddressPool, ...] | None = None
    networks: tuple[Network, ...] | None = None
    waiting: tuple[WaitingPod, ...] | None = None
    events: tuple[ClusterEvent, ...] | None = None
    guarded: bool | None = None  # the policy that holds agents to their nodes is in force
    measured: bool | None = None  # the policy that refuses pods without their preflight is in force
    missing: tuple[str, ...] = field(default=())  # kinds that are not installed
    not_seen: tuple[NotSeen, ...] = ()
    read_at: datetime | None = None  # None: nobody can say how old a report is

    def age(self, time: str) -> float | None:
        """Return the seconds since a time, as of a report; None if that is not known."""
        return seconds_since(time, self.read_at) if self.read_at else None

    @cached_property
    def agents(self) -> Mapping[str, tuple[ProgramPod, ...]]:
        """Return the pods of kube-rdma's agents, by node."""
        titles = {w.title for w in self.workloads or () if w.role is ProgramRole.AGENT}
        pods: dict[str, tuple[ProgramPod, ...]] = {}
        for pod in self.pods or ():
            if pod.workload in titles and pod.node:
                pods[pod.node] = (*pods.get(pod.node, ()), pod)
        return pods

    @property
    def is_blind(self) -> bool:
        """Return whether a part is unread without which the cluster's health cannot be judged."""
        return any(one.part in _ESSENTIAL for one in self.not_seen)

    @property
    def is_unreported(self) -> bool:
        """Return whether agents are to write NodeReports, but that kind is not installed."""
        return "NodeReport" in self.missing and any(w.reports for w in self.workloads or ())

    @property
    def hides_cards(self) -> bool:
        """Return whether no NodeReport could be read, or agents cannot write any."""
        return self.is_unreported or any(one.part == "NodeReport" for one in self.not_seen)


class ClusterHealth(StrEnum):
    """The health of a cluster: healthy, with problems, or too little was seen of it."""

    HEALTHY = "healthy"
    PROBLEMS = "problems"
    UNKNOWN = "unknown"


# The cards of all nodes as a grid: a row for each node, a place for each card.


class CardState(StrEnum):
    """The states of a card as its node reports them, in the order of a legend."""

    WELL = "can be given to pods"
    PORT_DOWN = "can be given, a port carries no data"
    ILL = "cannot be given"
    GONE = "gone"
    UNSEEN = "not known: no agent reports it now"


class GridCard(Frozen):
    """A card in the grid of nodes and cards; `why` is the first reason why it is not well."""

    name: str
    state: CardState
    why: str = ""


class GridRow(Frozen):
    """A node in the grid, with its cards in the order of their ids."""

    node: str
    cards: tuple[GridCard, ...]
    why: str = ""  # what is wrong with the node's agent or report
