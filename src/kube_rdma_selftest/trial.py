"""The hardware self-test as values: what is tried on which card, and what came of it.

`kube-rdma verify --hardware-selftest` runs the very plans of the agent on real cards. A Scene is
the node at one moment; kube_rdma_selftest/choice makes Trials out of it and compares two of them,
kube_rdma_selftest/run runs a Trial, kube_rdma_selftest/table shows Results.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import HostLink, HostNetwork, Plan
from kube_rdma.model.attach.steps import Step, Undo
from kube_rdma.model.card import Card
from kube_rdma.model.pools import FunctionPlace, FunctionSettings


class TrialKind(StrEnum):
    """What is tried on a card.

    MACVLAN, IPVLAN, IPOIB: a virtual link on it, which leaves the card itself alone. TAKE: its own
    link moves. FUNCTION: that of a virtual function moves, set up by its physical one.
    """

    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"
    IPOIB = "ipoib"
    TAKE = "take"
    FUNCTION = "function"

    @property
    def moves(self) -> bool:
        """Whether whoever uses the card is interrupted."""
        return self in (TrialKind.TAKE, TrialKind.FUNCTION)


class SelftestRequest(Frozen):
    """What a person chose: cards by name or PCI address, kinds; all that is idle where empty."""

    cards: tuple[str, ...] = ()
    kinds: tuple[TrialKind, ...] = ()


class SelftestScene(Frozen):
    """The node at one moment.

    `functions` are the settings of virtual functions, `routed` the interfaces with a default route,
    `above` by interface those that stand on it (bond, bridge, vlan, …), `rdma` the names of all
    RDMA devices, those of pods too. `altnames` are by interface its further names.
    """

    cards: tuple[Card, ...]
    network: HostNetwork
    functions: tuple[tuple[FunctionPlace, FunctionSettings], ...] = ()
    routed: tuple[str, ...] = ()
    above: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rdma: tuple[str, ...] = ()
    altnames: tuple[tuple[str, tuple[str, ...]], ...] = ()


class SelftestSystem(Frozen):
    """What ran: kube-rdma's version, the kernel's release and machine as `uname` has them."""

    version: str
    kernel: str
    machine: str


class Trial(Frozen):
    """One plan for one card, whose interface on the node is `link`."""

    card: Card
    link: HostLink
    kind: TrialKind
    plan: Plan


class UntriedCard(Frozen):
    """A card, or one kind on it, that is not tried; `reason` is a sentence without its stop."""

    card: Card
    reason: str
    kind: TrialKind | None = None


class TrialStage(StrEnum):
    """How far a Trial was: each plan is run, run again, taken back, and lost with its namespace."""

    ATTACH = "attach"
    REPEAT = "repeat"
    UNDO = "undo"
    END = "end"


class Trouble(Frozen):
    """Something that went wrong. `act` failed with `message`; None: a look showed it.

    `left`: the node is not as it was before.
    """

    stage: TrialStage
    message: str
    act: Step | Undo | None = None
    left: bool = False


class TrialResult(Frozen):
    """What came of a Trial.

    `milliseconds` are those of the plan's first run, None where it did not come to its end.
    `stopped`: somebody ended the self-test before this one was through.
    """

    trial: Trial
    milliseconds: float | None
    troubles: tuple[Trouble, ...] = ()
    stopped: bool = False

    @property
    def passed(self) -> bool:
        """Whether all was as planned, and the node as before."""
        return not self.troubles and not self.stopped
