"""Defines the object ``kind: RepairPolicy``: which nodes get a taint for their cards, and when not.

The controller that leads writes its status, by server-side apply of the whole (repair/loop).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from kube_base.errors import Refused
from kube_rdma.lib.text.document import of_json
from kube_rdma.lib.text.faults import Slip, slips, validate
from kube_rdma.lib.text.typed import OfPrograms, Typed, validations
from kube_rdma.lib.text.words import Labels, ObjectName
from kube_rdma.model import repair as model

_LONGEST = 63  # characters of a taint's value
_ONE = "say what counts: healthyCardsBelow, errors, slow or wrongCables"
_NOTHING = "Say what makes a node bad (when), or how new nodes are measured (burnIn)"


class RepairWhen(Typed):
    """The faults of a node that count; one is enough."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            ("has(self.healthyCardsBelow) || self.errors || self.slow || self.wrongCables", _ONE)
        )
    )

    healthy_cards_below: int | None = Field(default=None, ge=1, le=256)
    """healthyCardsBelow is the number of healthy cards of the node's pools below which the node is
    bad. Left out: the number does not count. Example: 8.
    """
    errors: bool = False
    """errors is whether a card with error counters that keep rising makes its node bad. An agent
    that starts anew needs half an hour to say so again: set clearAfterSeconds to 3600. Left out:
    false.
    """
    slow: bool = False
    """slow is whether a node is bad that a BandwidthCheck of the last 24 hours suspects, or whose
    card it suspects. Only checks in the namespace of kube-rdma count. Left out: false.
    """
    wrong_cables: bool = False
    """wrongCables is whether a node is bad whose cables are plugged in wrongly, as status reports
    it. It needs the value controller.nodeLabels. Left out: false.
    """


class RepairBudget(Typed):
    """The limits on the number of nodes and cards with the taint."""

    nodes: int = Field(default=1, ge=1, le=1000)
    """nodes is the number of nodes that may have the taint of the policy at a time. Left out: 1."""
    per_leaf: int | None = Field(default=None, ge=1, le=1000)
    """perLeaf is the number of nodes with one value of the label kube-rdma.io/leaf that may have
    the taint at a time. Left out: only nodes counts.
    """
    cards: int = Field(default=8, ge=1, le=1000)
    """cards is the number of cards that may have deviceTaint at a time. Left out: 8."""


class RepairBurnIn(Typed):
    """The measurement of nodes that have the taint kube-rdma.io/burn-in."""

    check: ObjectName = Field(examples=["nightly"])
    """check is the name of a BandwidthCheck with a template in the namespace of kube-rdma. New
    nodes are measured as it says, apart from its fields nodes, pairs, everySeconds and againstLast.
    """
    at_once: int = Field(4, ge=1, le=64)
    """atOnce is how many new nodes are measured at a time. Left out: 4."""
    soak_seconds: int = Field(600, ge=0, le=86_400)
    """soakSeconds is for how long all pairs have to be good, run after run. 0 is one run. Left out:
    600.
    """


class RepairPolicySpec(Typed):
    """The nodes of a policy, what makes one bad, and what follows."""

    model_config = ConfigDict(
        json_schema_extra=validations(("has(self.when) || has(self.burnIn)", _NOTHING))
    )

    node_selector: Labels = Field(default_factory=dict)
    """nodeSelector is the labels of the nodes that the policy is for; a node needs all of them.
    Left out: all nodes.
    """
    when: RepairWhen | None = Field(None, examples=[{"healthyCardsBelow": 8}])
    """when says what makes a node bad. Left out: nothing does, and burnIn is given."""
    burn_in: RepairBurnIn | None = Field(None, examples=[{"check": "nightly"}])
    """burnIn says how nodes with the taint kube-rdma.io/burn-in are measured, before the controller
    removes that taint. Left out: the taint stays.
    """
    taint: Literal["PreferNoSchedule", "NoSchedule", "NoExecute"] = "NoSchedule"
    """taint is the effect of the taint kube-rdma.io/repair. NoExecute also ends the pods on the
    node that do not tolerate it, whatever their PodDisruptionBudgets say. Left out: NoSchedule.
    """
    device_taint: Literal["NoSchedule", "NoExecute"] | None = None
    """deviceTaint is the effect of a DeviceTaintRule (Kubernetes 1.37) for a single card with
    errors, or slow, if claims use it; its node then gets no taint for that. NoExecute also ends
    pods with the card. Left out: such a card taints its node.
    """
    budget: RepairBudget = Field(default_factory=RepairBudget)
    """budget limits how many nodes have the taint at a time. Left out: one node."""
    clear_after_seconds: int = Field(300, ge=10, le=86_400)
    """clearAfterSeconds is for how long a node has to be well before the taint is removed. Left
    out: 300.
    """
    enforce: bool = False
    """enforce is true to write taints, false to report only what would be done. Left out: false."""

    @model_validator(mode="after")
    def _does_something(self) -> RepairPolicySpec:
        if self.when is None and self.burn_in is None:
            raise slips(Slip("it asks for nothing", _NOTHING))
        return self


class RepairMetadata(Typed):
    """The name of a policy; all other metadata is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[ObjectName, Field(max_length=_LONGEST)] = Field(examples=["cards"])
    """name is the name of the policy, which is the value of its taint."""


class RepairPolicy(Typed):
    """RepairPolicy defines when nodes get a taint because of their cards, and when they lose it."""

    api_version: Literal["kube-rdma.io/v1alpha1"]
    """apiVersion is kube-rdma.io/v1alpha1."""
    kind: Literal["RepairPolicy"]
    """kind is RepairPolicy."""
    metadata: RepairMetadata = Field(examples=[{"name": "cards"}])
    """metadata is that of every object."""
    spec: RepairPolicySpec = Field(examples=[{"when": {"healthyCardsBelow": 8}}])
    """spec says what makes a node bad, and what follows, and how new nodes are measured."""
    status: OfPrograms[model.RepairPolicyStatus] | None = None
    """status says which nodes are bad, and what was done. kube-rdma writes it."""


def load_policy(data: bytes, name: str, *, paused: bool) -> model.RepairSpec:
    """Return the policy that the JSON of a spec describes; raise Refused with all of its faults."""
    document = of_json(data, f"RepairPolicy {name}", ("spec",))
    if len(name) > _LONGEST:
        raise Refused(
            f"its name has {len(name)} characters, and the value of its taint {_LONGEST} at most",
            remedy="Create it under a shorter name",
            where=f"RepairPolicy {name}",
        )
    spec = validate(RepairPolicySpec, document)
    when, new = spec.when or RepairWhen(), spec.burn_in
    return model.RepairSpec(
        name,
        tuple(sorted(spec.node_selector.items())),
        when.healthy_cards_below,
        when.errors,
        when.slow,
        when.wrong_cables,
        spec.taint,
        spec.budget.nodes,
        spec.budget.per_leaf,
        spec.device_taint,
        spec.budget.cards,
        spec.clear_after_seconds,
        spec.enforce,
        paused,
        model.BurnInSpec(new.check, new.at_once, new.soak_seconds) if new else None,
    )
