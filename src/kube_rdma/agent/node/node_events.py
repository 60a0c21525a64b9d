"""What role `plugin` exchanges with the API server: its Node object comes in, Events go out.

None of it is needed to serve cards. `NullNodeEvents` is what an agent has that was given no API
server, as in the SCC document; cluster_node_events.py has the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from kube_rdma.model.kubernetes import NodeState
from kube_rdma.pools.rules.absence import HealthChange


class NodeEvent(StrEnum):
    """The Events about the Node object that are a sentence, by their reason."""

    CONFIGURATION_REFUSED = "ConfigurationRefused"
    POLICIES_OVERLAP = "PoliciesOverlap"
    MODE_CHANGE_PENDING = "ModeChangePending"
    MODE_CHANGE_APPLIED = "ModeChangeApplied"
    FUNCTIONS_PENDING = "VirtualFunctionsPending"
    FUNCTIONS_REFUSED = "VirtualFunctionsRefused"
    RAILS_WITHOUT_CARDS = "RailsWithoutCards"
    JOURNAL_TROUBLE = "JournalTrouble"  # a record that this version does not understand

    @property
    def is_warning(self) -> bool:
        """Whether a person has to act; the others end by themselves."""
        return self not in {
            self.MODE_CHANGE_PENDING,
            self.MODE_CHANGE_APPLIED,
            self.FUNCTIONS_PENDING,
        }


class NodeEvents(Protocol):
    """The API server as role `plugin` sees it; nothing but `follow` takes any time."""

    async def follow(self, seen: Callable[[NodeState], None]) -> None:
        """Call `seen` with each state of this node's object, until cancelled."""

    def tell(self, event: NodeEvent, sentence: str) -> None:
        """Tell the node what happened."""

    def card(self, change: HealthChange, name: str, pods: Sequence[str]) -> None:
        """Tell that a card became unhealthy or healthy, to the node and the pods that hold it."""


class NullNodeEvents:
    """No API server: nothing comes, and what would be sent stands in the log already."""

    async def follow(self, seen: Callable[[NodeState], None]) -> None:
        """Do nothing."""

    def tell(self, event: NodeEvent, sentence: str) -> None:
        """Do nothing."""

    def card(self, change: HealthChange, name: str, pods: Sequence[str]) -> None:
        """Do nothing."""
