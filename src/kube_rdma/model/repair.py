"""Repair: nodes with bad cards get a taint by a policy, and lose it when their cards are well.

Of a node the controller changes only the taint and the annotation of one key. All else belongs to
others, taints with other keys too. Of these it removes one, whose key is BURN_IN. A single card
that claims use gets DeviceTaintRules instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from kube_base.frozen import Frozen
from kube_rdma.model.claims.devices import TaintRuleSpec
from kube_rdma.model.kubernetes import Condition, Sentence, SparsePart, StatusPart, Taint, Word
from kube_rdma.model.verify import BandwidthCheckStatus

KEY = "kube-rdma.io/repair"
"""The taint of a node with bad cards, whose value is the policy; the annotation that says why.

DeviceTaintRules have it as a label, with the name of the policy.
"""

CARD = "kube-rdma.io/repair-card"
"""The annotation of a DeviceTaintRule that names its card by its id."""

IGNORED = "kube-rdma.io/repair-ignored"
"""The annotation by which a person keeps all policies from a node; its value may say why."""

BURN_IN = "kube-rdma.io/burn-in"
"""The taint of a node whose cards were not measured yet; the annotation that says why it keeps the
taint; the label of the BandwidthCheck that measures it, whose value is the policy.
"""

PAUSED = "kube-rdma.io/repair-paused"
"""The annotation of a RepairPolicy that neither adds nor removes a taint; it may say why."""

EFFECTS = ("PreferNoSchedule", "NoSchedule", "NoExecute")
"""The effects of the taint, the stronger one later. NoExecute also ends pods on the node."""

MOST_ENTRIES, MOST_ACTIONS = 64, 32  # of a status

EntryState = Literal[
    "Tainted", "Clearing", "WouldTaint", "OverBudget", "BurnIn", "BurnInFailed", "WouldBurnIn"
]
ActionKind = Literal["Tainted", "Cleared", "BurnInPassed", "BurnInFailed"]


class BurnInSpec(Frozen):
    """The measurement of new nodes before they take pods."""

    check: str  # a BandwidthCheck in kube-rdma's own namespace, whose spec is copied
    at_once: int = 4  # nodes
    soak_seconds: int = 600


class RepairSpec(Frozen):
    """A RepairPolicy: what counts as bad, and what follows."""

    name: str
    selector: tuple[tuple[str, str], ...] = ()
    cards_below: int | None = None  # healthy cards
    errors: bool = False
    slow: bool = False
    wrong_cables: bool = False
    effect: str = "NoSchedule"
    most_nodes: int = 1  # with the taint at a time
    most_per_leaf: int | None = None
    device_taint: str | None = None  # the effect on a single card that claims use
    most_cards: int = 8  # with device taints at a time
    clear_after: int = 300  # seconds for which the cards are well
    enforce: bool = False
    paused: bool = False
    burn_in: BurnInSpec | None = None
    uid: str = ""

    def selects(self, node: RepairNode) -> bool:
        """Decide whether the policy is for a node."""
        return not node.ignored and dict(self.selector).items() <= node.labels.items()


class RepairNode(Frozen):
    """The facts of a Node object on which repair depends."""

    name: str
    labels: Mapping[str, str]
    taint: Taint | None = None  # that of KEY
    ignored: bool = False
    cables: str = ""  # faults of its cables, as FabricNodes wrote them
    is_new: bool = False  # it has the taint BURN_IN
    failed: str = ""  # the annotation BURN_IN: when and why its cards were found bad
    cordoned: bool = False
    created: str = ""  # RFC 3339


class BurnInRound(Frozen):
    """The BandwidthCheck that measures new nodes of a policy."""

    generation: int
    created: str  # RFC 3339
    nodes: tuple[str, ...]
    partners: frozenset[str]  # which of them were not new
    spec: Mapping[str, Any]  # without nodes
    status: BandwidthCheckStatus | None


class CardRule(Frozen):
    """A DeviceTaintRule that taints a card, or a part of a card that several pods share."""

    name: str
    policy: str
    owner: str  # the uid of the policy
    card: str  # its id
    spec: TaintRuleSpec

    @property
    def node(self) -> str:
        """Return the node, whose pool of devices has its name; "" if somebody changed the rule."""
        selector = self.spec.device_selector
        return (self.card and selector and selector.pool) or ""


class RepairEntry(SparsePart):
    """A node or a card that a policy finds bad, or that has its taint."""

    node: Word
    """node is the name of the node."""
    state: EntryState
    """state is Tainted, Clearing (its cards are well, but not for long enough), WouldTaint (the
    policy is a dry run or paused) or OverBudget. Of a node with the taint kube-rdma.io/burn-in it
    is BurnIn, BurnInFailed, or WouldBurnIn (the policy is a dry run or paused).
    """
    why: Sentence
    """why is the evidence: which cards are bad, and how; of BurnIn it is how far that is."""
    card: Word = ""
    """card is the id of the card if it alone is meant. Left out: the node. Example: 0000:81:00.0.
    """


class RepairAction(SparsePart):
    """A taint that the controller wrote or removed."""

    time: Word
    """time is when the controller did it, in RFC 3339."""
    node: Word
    """node is the name of the node."""
    action: ActionKind
    """action is Tainted, Cleared, BurnInPassed or BurnInFailed."""
    why: Sentence
    """why is the evidence for the action."""
    card: Word = ""
    """card is the id of the card if it alone is meant. Left out: the node. Example: 0000:81:00.0.
    """


def place(one: RepairEntry | RepairAction) -> str:
    """Return a node in words, with its card if that alone is meant."""
    return f"{one.node} {one.card}".strip()


class RepairPolicyStatus(StatusPart):
    """The status of a RepairPolicy."""

    observed_generation: int
    """observedGeneration is metadata.generation of the policy that this status is about."""
    result: Sentence = ""
    """result is how many nodes and cards are tainted, and how many others are bad. Example: 2
    tainted, 1 over the budget.
    """
    nodes: Annotated[tuple[RepairEntry, ...], Meta(max_length=MOST_ENTRIES)] = ()
    """nodes are the first 64 nodes and cards that are bad, or have the taint of the policy."""
    history: Annotated[tuple[RepairAction, ...], Meta(max_length=MOST_ACTIONS)] = ()
    """history are the last 32 taints that were written or removed and burn-ins that failed, the
    newest first.
    """
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16)] = ()
    """conditions are Ready (the policy is understood), and Stalled where only a new spec helps."""
    remark: Sentence = ""
    """remark is what the policy asks for and the cluster does not offer. Empty: nothing."""


class SeenRepair(Frozen):
    """A RepairPolicy as stored: its policy or the reason for its refusal, and its status."""

    name: str
    uid: str
    version: str
    generation: int
    policy: RepairSpec | None
    refusal: str
    status: RepairPolicyStatus | None
