"""The agent's Node object at the API server: its state comes in, Events about node and pods go out.

None of it is needed to serve cards. An agent without an API server has `NodeEvents()`, which sends
nothing. Events never hold anything up: adapters/cluster/events keeps a bounded table and writes it
when the server answers. A process has one table; `follow` empties it for pod networks too. Role
plugin alone does not load the client, so imports of it are late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import structlog

from kube_rdma.adapters.bulkhead import start
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.pools.rules.absence import HealthChange

if TYPE_CHECKING:
    from kube_client.objects import Cluster
    from kube_rdma.adapters.cluster.events import Events

log = structlog.get_logger()


class NodeEvent(StrEnum):
    """The reason of an Event about the agent's Node."""

    CONFIGURATION_REFUSED = "ConfigurationRefused"
    POLICIES_OVERLAP = "PoliciesOverlap"
    MODE_CHANGE_PENDING = "ModeChangePending"
    MODE_CHANGE_APPLIED = "ModeChangeApplied"
    FUNCTIONS_PENDING = "VirtualFunctionsPending"
    FUNCTIONS_REFUSED = "VirtualFunctionsRefused"
    CARD_IN_NO_POOL = "CardInNoPool"
    RAILS_WITHOUT_CARDS = "RailsWithoutCards"
    JOURNAL_TROUBLE = "JournalTrouble"  # a record that this version does not understand

    @property
    def is_warning(self) -> bool:
        """Return whether an Event of this reason needs a person; others only report changes."""
        changes = (self.MODE_CHANGE_PENDING, self.MODE_CHANGE_APPLIED)
        return self not in (*changes, self.FUNCTIONS_PENDING)


class NodeEvents:
    """A watch of the agent's Node object, and a recorder of Events about it."""

    def __init__(
        self, cluster: Cluster | None = None, node: str = "", events: Events | None = None
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._events = events  # the process's table
        self.has_cluster = cluster is not None
        self._unreached = "The Node object was not read yet."

    def unreached(self) -> tuple[str, ...]:
        """Return why the Node object is unknown now, as a sentence; empty if it is known."""
        return (self._unreached,) if self._unreached else ()

    async def follow(self, seen: Callable[[NodeState], None]) -> None:
        """Call `seen` with each state of the Node object, and write Events, until cancelled.

        Return at once without a cluster.
        """
        if self._cluster is None or self._events is None:
            return
        from kube_client.watching import Cut, Deleted, Muddled, Synced
        from kube_rdma.adapters.cluster.nodes import Nodes

        async with asyncio.TaskGroup() as tasks:
            start(tasks, {"events": self._events.run})
            async for event in Nodes(self._cluster).watch(self._node):
                match event:
                    case NodeState():
                        seen(event)
                    case Deleted():
                        log.warning("Node object missing", node=self._node)
                    case Cut(why):
                        self._unreached = why
                        log.warning("Node object unavailable", why=why)
                    case Muddled(why=why):
                        log.warning("Node object unavailable", why=why)
                    case Synced():
                        self._unreached = ""

    def tell(self, event: NodeEvent, sentence: str) -> None:
        """Record an Event about the node."""
        self._record(event.value, sentence, warning=event.is_warning)

    def card(self, change: HealthChange, name: str, pods: Sequence[str]) -> None:
        """Record a card's new health as Events about the node and about the pods that hold it."""
        reason = "RDMACardHealthy" if change.healthy else "RDMACardUnhealthy"
        card = name if name == change.card else f"{name} ({change.card})"
        note = f"{card}: {'; '.join(change.reasons) or 'it can be used again'}"
        self._record(reason, note, warning=not change.healthy, pods=pods)

    def _record(self, reason: str, note: str, *, warning: bool, pods: Sequence[str] = ()) -> None:
        if self._events is None:
            return
        from kube_rdma.adapters.cluster.events import About

        # The kubelet too writes the node's name as its uid into Events.
        node = About("Node", self._node, uid=self._node)
        names = (pod.partition("/") for pod in pods)
        for about in (node, *(About("Pod", name, space) for space, _, name in names)):
            self._events.tell(about, reason, note, warning=warning)
