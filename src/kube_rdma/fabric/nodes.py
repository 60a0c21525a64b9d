"""Writes on each node which leaf and block it is on, and tells when its cables are wrong.

    NodeReports, labels of nodes ─► wake ─► one look: rules ─► one patch for a node that differs

The leading copy of the controller runs it. A node's new neighbours count once they have been the
same for a while, so that a flapping switch causes no writes. The node's annotations say
which labels were written and which faults were reported, so a new leader repeats nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import structlog

from kube_base.backoff import has_happened, rarely
from kube_base.errors import KubeError
from kube_base.frozen import Frozen, field, replace
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.kinds import Stored
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.fabric.cluster import stored_cables
from kube_rdma.fabric.rules import leaves as rules
from kube_rdma.fabric.rules.cabling import cable_faults, node_fault_texts
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.model.fabric import FAULTS, CardPort, NodeCables
from kube_rdma.model.kubernetes import LabelChange, NodeState, cut

Change: TypeAlias = Callable[[NodeState], LabelChange | None]

_FEW = 3  # failed writes after which the others wait: a right is missing, or the server is away

log = structlog.get_logger()


class FabricTiming(Frozen):
    """The waits of FabricNodes, in seconds."""

    # A switch sends LLDP every 30 s (IEEE 802.1AB, msgTxInterval): what is plugged in is heard
    # within one interval, and counts before the second one ends.
    settle: float = 20.0  # that the neighbours of a node are the same, before they count
    silent: float = 100.0  # the same where a port hears none, as after the start of an agent
    apart: float = 5.0  # between two looks, at least
    again: float = 10.0  # after a failure
    pause: Callable[[int], float] = field(default=rarely)


class FabricNodes:
    """The part of the controller that keeps labels of leaves, and reports wrong cables.

    `labels` is the value controller.nodeLabels; with `leave` this part does not run.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        labels: str = "write",
        timing: FabricTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._events, self._labels = cluster, events, labels
        self._timing, self._clock = timing or FabricTiming(), clock
        self._wake = asyncio.Event()
        self._reports = Mirror(NODE_REPORT, stored_cables, self._reported)
        self._nodes = Mirror(NODE, _judged, self._changed)
        self._since: dict[str, float] = {}  # when a node's neighbours last changed
        self._settled: dict[str, tuple[CardPort, ...]] = {}  # its ports as they were for long
        self._notices = Notices()

    async def run(self) -> None:
        """Write labels and annotations after changes until cancelled; wait for the API server."""
        mirrors: tuple[Mirror[Any], ...] = (self._reports, self._nodes)
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, self._timing.pause, *mirrors)
            while True:
                self._wake.clear()
                well = await self.look() and not any(mirror.trouble for mirror in mirrors)
                await asyncio.sleep(self._timing.apart)
                waits = [self._due(name) - self._clock() for name in self._since]
                waits += [] if well else [self._timing.again]
                await has_happened(self._wake, max(0.0, min(waits)) if waits else None)

    async def look(self) -> bool:
        """Write what differs in labels and annotations of nodes; return False if a write failed."""
        for name in [name for name in self._since if self._due(name) <= self._clock()]:
            del self._since[name]
            self._settled[name] = self._reports.values[name].ports
        nodes = self._nodes.values
        lacking = [(name, change) for name, change in self._changes() if change(nodes[name])]
        failures = 0
        for name, change in lacking:
            failures += not await self._write(name, change)
            if failures == _FEW:
                break
        return not failures

    def _changes(self) -> Iterator[tuple[str, Change]]:
        """Yield each node to judge, with the function that returns its change."""
        nodes = self._nodes.values
        if self._labels == "remove":
            yield from ((name, partial(rules.label_change, labels={}, leaves={})) for name in nodes)
            return
        seen = {n: replace(self._reports.values[n], ports=p) for n, p in self._settled.items()}
        faults = node_fault_texts(cable_faults(seen.values()))
        ports = {
            name: rules.leaves_by_port(cables, rules.remembered_leaves(nodes[name]))
            for name, cables in seen.items()
            if name in nodes
        }
        meant = {name: {**on, **rules.accepted_leaves(seen[name])} for name, on in ports.items()}
        blocks = rules.blocks({name: tuple(leaves.values()) for name, leaves in meant.items()})
        for name, leaves in ports.items():
            told = cut(faults.get(name, ""))
            if name in self._since:  # while its cables change, for the others may follow
                told = dict(nodes[name].annotations).get(FAULTS, "")
            labels = rules.wanted_labels(leaves, blocks.get(name), self._labels)
            yield name, partial(rules.label_change, labels=labels, leaves=leaves, faults=told)

    async def _write(self, name: str, change: Change) -> bool:
        """Write a node's change, and an Event if its faults changed; return False on failure."""
        try:
            made = await Nodes(self._cluster).relabel(name, change)
        except Conflict:
            return False  # somebody wrote the node just now
        except KubeError as error:
            self._notices.warn(log, "labels of leaves not written", name, str(error), node=name)
            return False
        self._notices.over(name)
        if made and FAULTS in made.annotations and self._labels != "remove":
            faults = made.annotations[FAULTS]
            reason = "CablesWrong" if faults else "CablesMended"
            note = faults or "Nothing is wrong with the cables any more"
            about = About("Node", name, uid=name)  # as kubelets write it
            self._events.tell(about, reason, note, warning=bool(faults))
        return True

    def _reported(self, old: NodeCables | None, new: NodeCables | None) -> None:
        if new is None:
            self._since.pop(old.node if old else "", None)
            self._settled.pop(old.node if old else "", None)
        elif old is None or (old.heard, old.gone) != (new.heard, new.gone):
            self._since[new.node] = self._clock()
        elif new.node not in self._since:
            self._settled[new.node] = new.ports  # cards may have other names
        self._changed(old, new)

    def _due(self, node: str) -> float:
        """Return when the neighbours of a node have been the same for long enough."""
        is_whole = all(port.at for port in self._reports.values[node].ports)
        return self._since[node] + (self._timing.settle if is_whole else self._timing.silent)

    def _changed(self, old: object, new: object) -> None:
        if old != new:
            self._wake.set()


def _judged(stored: Stored[Any, Any]) -> NodeState:
    """Return a node's labels and annotations, without the status, which changes all the time."""
    return NodeState(stored.name, labels=stored.labels, annotations=stored.annotations)
