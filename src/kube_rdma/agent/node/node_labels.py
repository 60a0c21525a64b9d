"""Keeps the labels of this node in line with its cards, kernel and pools.

NodeLabels is a NodeKeeper: pools/rules/labels makes the labels of a survey and the change to write.
The patch names the version that it was made from, so a label that another client writes meanwhile
is never overwritten. An agent that ends leaves its labels, for DaemonSets select nodes by them.
Role `node` alone does nothing else.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import Frozen
from kube_client.errors import Conflict
from kube_rdma import __version__
from kube_rdma.adapters.bulkhead import start
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.adapters.files.host_release import read_kernel, read_os_release
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.hardware import kernel_events
from kube_rdma.hardware.kernel_events import CardEvents, KernelSources
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Mode
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.labels import (
    HostRelease,
    LabelFacts,
    WantedLabels,
    label_change,
    wanted_labels,
)
from kube_rdma.reports.node_keeper import NodeKeeper, WritePace
from kube_rdma.reports.rules.node_report import AgentLook

log = structlog.get_logger()


def host_release(host: Path) -> HostRelease:
    """Return the distribution and kernel; log once if the host's os-release is not mounted.

    It is read at the agent's start alone. A new kernel needs a reboot, and a distribution replaces
    its os-release, which a mounted file does not follow.
    """
    try:
        return HostRelease(read_kernel(), read_os_release(host))
    except Unavailable as error:
        log.warning(
            "labels of the distribution left out",
            why=str(error),
            remedy=f"mount the host's /etc/os-release at {host}/etc/os-release",
        )
        return HostRelease(read_kernel())


class NodeLabels(NodeKeeper[WantedLabels]):
    """A writer of the labels of the agent's node.

    Without `host` labels of Node Feature Discovery stay as an earlier agent left them. With
    `removes` all labels that an agent wrote are removed instead, and none is written.
    """

    part = "node labels"
    failure = "node labels not written"

    def __init__(
        self,
        nodes: Nodes,
        host: HostRelease | None = None,
        *,
        removes: bool = False,
        pace: WritePace | None = None,
    ) -> None:
        super().__init__(pace or WritePace())
        self._nodes = nodes
        self._host = host
        self._removes = removes

    def _wanted(self, look: AgentLook) -> WantedLabels:
        modes = frozenset(spec.mode for spec in look.cards.specs)
        return self.of_survey(look.survey, modes, len({*look.rails.values()}))

    def of_survey(
        self, survey: Survey, modes: frozenset[Mode] = frozenset(), rails: int = 0
    ) -> WantedLabels:
        """Return the labels that follow from a survey, and from modes and rails of the pools.

        Role `node` alone knows no pools, so it leaves these out.
        """
        if self._removes:
            return WantedLabels()
        return wanted_labels(LabelFacts(survey, self._host, modes, rails))

    def _agrees(self, node: NodeState, wanted: WantedLabels) -> bool:
        return label_change(node, wanted) is None

    async def _write(self, node: NodeState, wanted: WantedLabels) -> None:
        written = await self._nodes.relabel(node.name, partial(label_change, wanted=wanted))
        if written:
            pairs = sorted(written.labels.items())
            text = " ".join(f"{k}-" if value is None else f"{k}={value}" for k, value in pairs)
            log.info("node labels written", node=node.name, labels=text)

    def _tell(self, node: str, error: KubeError) -> None:
        """Log a failed write; a conflict is not logged, as the next try sees the other write."""
        if not isinstance(error, Conflict):
            super()._tell(node, error)


# The node is looked at again so often, for what the kernel announces to nobody: the state of an
# InfiniBand port, and the events of sockets that could not be opened.
AGAIN_SECONDS = 60.0


class LabelSources(Frozen):
    """The needs of role `node` alone: the survey, Events, and the writer of labels or None."""

    kernel: KernelSources
    node: NodeEvents
    labels: NodeLabels | None


async def run_labeller(sources: LabelSources) -> None:
    """Keep the labels of the node up to date until cancelled."""
    labels = sources.labels
    log.info("started", version=__version__, role="node")
    if labels is None:
        await asyncio.Event().wait()
        return
    changes, relevance = Debounce(), CardEvents()
    async with AsyncExitStack() as stack:
        # Listening begins before the first look, so that nothing falls between the two.
        announcements = await kernel_events.listen(sources.kernel, stack)
        async with asyncio.TaskGroup() as tasks:
            heard = kernel_events.listeners(announcements, changes, relevance.concern)
            start(tasks, heard, ends=KubeError)
            follow = partial(sources.node.follow, labels.seen)
            start(tasks, {"node": follow, labels.part: labels.run})
            while True:
                survey = await asyncio.to_thread(sources.kernel.survey)
                relevance.surveyed(survey)
                labels.keep(labels.of_survey(survey))
                await changes.wait(AGAIN_SECONDS)
