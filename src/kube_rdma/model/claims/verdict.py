"""Whether a claim can be met on a node, and what is against each device: what claims/rules says.

explain hands it to claims/views.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.claims.claim import AllocationResult, Claim
from kube_rdma.model.claims.device import SliceDevice


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
