"""What role `plugin` needs of the API server: this node's label in, events out.

None of it is needed to serve cards. `Alone` is what an agent has that was given no API server, as
in the SCC document; online.py has the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kube_base.errors import Refused
from kube_rdma.model.node import NodeState
from kube_rdma.rules.health.damping import HealthChange


class NodeSide(Protocol):
    """The API server as role `plugin` sees it; nothing but `follow` takes any time."""

    async def follow(self, seen: Callable[[NodeState], None]) -> None:
        """Call `seen` with each state of this node's object, until cancelled."""

    def refused(self, error: Refused) -> None:
        """Tell that a configuration is not understood."""

    def overlap(self, sentence: str) -> None:
        """Tell that policies disagree."""

    def card(self, change: HealthChange, name: str, pods: Sequence[str]) -> None:
        """Tell that a card became ill or well, to the node and the pods that hold it."""

    def waiting(self, sentence: str) -> None:
        """Tell that a wish waits."""

    def applied(self, sentence: str) -> None:
        """Tell that a resource has changed its mode."""

    def functions(self, sentence: str, *, refused: bool) -> None:
        """Tell why a card has not the virtual functions that are wished."""

    def rails(self, sentence: str) -> None:
        """Tell of rails that no card is on."""

    def journal(self, sentence: str) -> None:
        """Tell of a record that this version of kube-rdma does not understand."""


class Alone:
    """No API server: nothing comes, and what would be sent stands in the log already."""

    async def follow(self, seen: Callable[[NodeState], None]) -> None:
        """Do nothing."""

    def refused(self, error: Refused) -> None:
        """Do nothing."""

    def overlap(self, sentence: str) -> None:
        """Do nothing."""

    def card(self, change: HealthChange, name: str, pods: Sequence[str]) -> None:
        """Do nothing."""

    def waiting(self, sentence: str) -> None:
        """Do nothing."""

    def applied(self, sentence: str) -> None:
        """Do nothing."""

    def functions(self, sentence: str, *, refused: bool) -> None:
        """Do nothing."""

    def rails(self, sentence: str) -> None:
        """Do nothing."""

    def journal(self, sentence: str) -> None:
        """Do nothing."""
