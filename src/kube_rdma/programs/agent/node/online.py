"""The API server for an agent that has access to it: its node's label, events on node and pods.

Events are news for people, so they never hold anything up: adapters/cluster/events keeps a bounded
table and writes it when the server answers. A process has one table; `follow` empties it for pod
networks too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_client.watching import Cut, Deleted, Muddled, Synced
from kube_rdma.adapters.bulkhead import start
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model.node import NodeState
from kube_rdma.rules.health.damping import HealthChange

log = structlog.get_logger()


class Online:
    """This node's side of one cluster; `events` is the process's table, which `follow` empties."""

    def __init__(self, cluster: Cluster, node: str, events: Events) -> None:
        self._cluster = cluster
        self._events = events
        self._node = node
        self._about = About("Node", node, uid=node)  # the kubelet too tells its name for its uid

    async def follow(self, seen: Callable[[NodeState], None]) -> None:
        """Watch the node and write events, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            start(tasks, {"events": self._events.run})
            async for notice in Nodes(self._cluster).watch(self._node):
                match notice:
                    case NodeState():
                        seen(notice)
                    case Deleted():
                        log.warning("Node object missing", node=self._node)
                    case Cut(why) | Muddled(why=why):
                        log.warning("Node object unavailable", why=why)
                    case Synced():
                        pass

    def refused(self, error: Refused) -> None:
        """Tell the node that its configuration is not understood."""
        self._events.tell(self._about, "ConfigurationRefused", str(error), warning=True)

    def overlap(self, sentence: str) -> None:
        """Tell the node that policies disagree and nobody has decided."""
        self._events.tell(self._about, "PoliciesOverlap", sentence, warning=True)

    def card(self, change: HealthChange, name: str, pods: Sequence[str]) -> None:
        """Tell the node and the pods that hold the card how it is now."""
        reason = "RDMACardHealthy" if change.healthy else "RDMACardUnhealthy"
        card = name if name == change.card else f"{name} ({change.card})"
        note = f"{card}: {'; '.join(change.reasons) or 'it can be used again'}"
        pod_names = (pod.partition("/") for pod in pods)
        for about in (self._about, *(About("Pod", name, space) for space, _, name in pod_names)):
            self._events.tell(about, reason, note, warning=not change.healthy)

    def waiting(self, sentence: str) -> None:
        """Tell the node that a change of mode waits."""
        self._events.tell(self._about, "ModeChangePending", sentence)

    def applied(self, sentence: str) -> None:
        """Tell the node that a resource has changed its mode, after a wait or at once."""
        self._events.tell(self._about, "ModeChangeApplied", sentence)

    def functions(self, sentence: str, *, refused: bool) -> None:
        """Tell the node why a card has not the virtual functions that are wished."""
        reason = "VirtualFunctionsRefused" if refused else "VirtualFunctionsPending"
        self._events.tell(self._about, reason, sentence, warning=refused)

    def rails(self, sentence: str) -> None:
        """Tell the node of rails that no card is on."""
        self._events.tell(self._about, "RailsWithoutCards", sentence, warning=True)

    def journal(self, sentence: str) -> None:
        """Tell the node of a record that this version of kube-rdma does not understand."""
        self._events.tell(self._about, "JournalTrouble", sentence, warning=True)
