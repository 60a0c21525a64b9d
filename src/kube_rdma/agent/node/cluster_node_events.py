"""The API server for an agent that has access to it: its node's label, events on node and pods.

Events are news for people, so they never hold anything up: adapters/cluster/events keeps a bounded
table and writes it when the server answers. A process has one table; `follow` empties it for pod
networks too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from kube_client.objects import Cluster
from kube_client.watching import Cut, Deleted, Muddled, Synced
from kube_rdma.adapters.bulkhead import start
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.agent.node.node_events import NodeEvent
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.pools.rules.absence import HealthChange

log = structlog.get_logger()


class ClusterNodeEvents:
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
            async for event in Nodes(self._cluster).watch(self._node):
                match event:
                    case NodeState():
                        seen(event)
                    case Deleted():
                        log.warning("Node object missing", node=self._node)
                    case Cut(why) | Muddled(why=why):
                        log.warning("Node object unavailable", why=why)
                    case Synced():
                        pass

    def tell(self, event: NodeEvent, sentence: str) -> None:
        """Tell the node what happened."""
        self._events.tell(self._about, event.value, sentence, warning=event.is_warning)

    def card(self, change: HealthChange, name: str, pods: Sequence[str]) -> None:
        """Tell the node and the pods that hold the card how it is now."""
        reason = "RDMACardHealthy" if change.healthy else "RDMACardUnhealthy"
        card = name if name == change.card else f"{name} ({change.card})"
        note = f"{card}: {'; '.join(change.reasons) or 'it can be used again'}"
        pod_names = (pod.partition("/") for pod in pods)
        for about in (self._about, *(About("Pod", name, space) for space, _, name in pod_names)):
            self._events.tell(about, reason, note, warning=not change.healthy)
