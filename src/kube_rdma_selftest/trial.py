"""The hardware self-test as values: trials of cards, and their outcomes.

`kube-rdma verify --hardware-selftest` runs the very plans of the agent on real cards. A
SelftestScene is the node at one moment; kube_rdma_selftest/choice makes Trials out of one,
kube_rdma_selftest/run runs them.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import HostLink, HostNetwork, Plan
from kube_rdma.model.attach.steps import Step, Undo
from kube_rdma.model.card import Card
from kube_rdma.model.pools import FunctionPlace, FunctionSettings


class TrialKind(StrEnum):
    """A way to test a card.

    MACVLAN, IPVLAN and IPOIB put a virtual link on it, which leaves the card itself alone. TAKE
    moves its own link. FUNCTION sets up a virtual function through its physical one, and moves its
    link.
    """

    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"
    IPOIB = "ipoib"
    TAKE = "take"
    FUNCTION = "function"

    @property
    def moves(self) -> bool:
        """Decide whether a trial of this kind interrupts programs that use the card."""
        return self in (TrialKind.TAKE, TrialKind.FUNCTION)


class SelftestRequest(Frozen):
    """The cards, by name or address, and kinds of trial that a user chose; empty: all that fit."""

    cards: tuple[str, ...] = ()
    kinds: tuple[TrialKind, ...] = ()


class SelftestScene(Frozen):
    """The state of the node's cards, interfaces and routes at one moment."""

    cards: tuple[Card, ...]
    network: HostNetwork
    functions: tuple[tuple[FunctionPlace, FunctionSettings], ...] = ()  # virtual ones
    routed: tuple[str, ...] = ()  # interfaces with a default route
    above: tuple[tuple[str, tuple[str, ...]], ...] = ()  # what stands on an interface: bond, …
    rdma: tuple[str, ...] = ()  # the names of the RDMA devices that the node sees
    altnames: tuple[tuple[str, tuple[str, ...]], ...] = ()  # further names of an interface


class SelftestSystem(Frozen):
    """The version of kube-rdma, and the kernel's release and machine as `uname` shows them."""

    version: str
    kernel: str
    machine: str


class Trial(Frozen):
    """A plan that tests one card in one way; `link` is the card's interface on the node."""

    card: Card
    link: HostLink
    kind: TrialKind
    plan: Plan


class UntriedCard(Frozen):
    """A card that is not tried, or one kind of trial on it; `reason` lacks its full stop."""

    card: Card
    reason: str
    kind: TrialKind | None = None


class TrialStage(StrEnum):
    """The stages of a trial: attach, attach again, undo, and end with its namespace."""

    ATTACH = "attach"
    REPEAT = "repeat"
    UNDO = "undo"
    END = "end"


class Trouble(Frozen):
    """A fault that a trial met: its stage, a message, and the step or undo that failed."""

    stage: TrialStage
    message: str
    act: Step | Undo | None = None  # failed with the message, if any
    left: bool = False  # the node is not as it was before


class TrialResult(Frozen):
    """The outcome of a trial: its time, its troubles, and whether somebody stopped it."""

    trial: Trial
    milliseconds: float | None  # of the plan's first run; None where it did not end
    troubles: tuple[Trouble, ...] = ()
    stopped: bool = False  # somebody ended the self-test before this one was through

    @property
    def passed(self) -> bool:
        """Decide whether the trial ran to its end without trouble."""
        return not self.troubles and not self.stopped
