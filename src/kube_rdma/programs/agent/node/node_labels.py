"""Keeps the labels of this node as its cards, kernel and pools are.

The loop of role plugin hands in each state of the Node object and each look; rules/labels says what
has to change. It is a level: one patch where the two differ, none where they agree. The patch names
the version that it was made from, so a label that another writes meanwhile is never overwritten.
An agent that ends leaves its labels: DaemonSets select nodes by them, and most ends are updates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.adapters.files.host_release import read_kernel, read_os_release
from kube_rdma.model.node import LabelChange, NodeState
from kube_rdma.model.pools.pool import PoolSpec
from kube_rdma.model.survey import Survey
from kube_rdma.programs.agent.node.card_condition import pause
from kube_rdma.rules.labels.ownership import change
from kube_rdma.rules.labels.wanted import HostRelease, LabelFacts, WantedLabels, wanted

log = structlog.get_logger()


def host_release(host: Path) -> HostRelease:
    """What this node runs; the log says once if the host's os-release is not mounted.

    It is read at the agent's start alone: a new kernel needs a reboot, and a distribution replaces
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


class NodeLabels:
    """The labels of one agent's node.

    `host` None: those of Node Feature Discovery stay as an earlier agent left them. `removes`: what
    an agent wrote before goes, and nothing is written. `wait` is for tests.
    """

    def __init__(
        self,
        nodes: Nodes,
        host: HostRelease | None = None,
        *,
        removes: bool = False,
        wait: Callable[[KubeError, int], float] = pause,
    ) -> None:
        self._nodes = nodes
        self._host = host
        self._removes = removes
        self._pause = wait
        self._node: NodeState | None = None
        self._wanted = WantedLabels()
        self._certain = False  # `_wanted` is about all that the node is to offer
        self._wake = asyncio.Event()
        self._notices = Notices()

    def seen(self, node: NodeState) -> None:
        """Take note of the Node object as it is now."""
        self._node = node
        self._wake.set()

    def judged(self, survey: Survey, specs: Iterable[PoolSpec], rails: int) -> None:
        """Take note of what the node has: a survey, the wishes that are met, its rails."""
        if not self._removes:
            modes = frozenset(spec.mode for spec in specs)
            self._wanted = wanted(LabelFacts(survey, self._host, modes, rails))
        self._certain = True
        self._wake.set()

    def doubted(self) -> None:
        """Take note that more is on its way: what the node says stands until then."""
        self._certain = False

    async def run(self) -> None:
        """Write whenever the Node object says something else, until cancelled."""
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            node = self._node
            if node is None or not self._certain or self._change(node) is None:
                continue
            try:
                written = await self._nodes.relabel(node.name, self._change)
            except KubeError as error:
                self._tell(node, error)
                await asyncio.sleep(self._pause(error, failures))
                failures += 1
                self._wake.set()
                continue
            failures = 0
            self._notices.over("labels")
            if self._node is node:
                self._node = None  # as it was before; the watch shows what it is now
            if written:
                log.info("node labels written", node=node.name, labels=_text(written))

    def _change(self, node: NodeState) -> LabelChange | None:
        return change(node, self._wanted)

    def _tell(self, node: NodeState, error: KubeError) -> None:
        if isinstance(error, Conflict):
            return  # somebody was faster; what they wrote is looked at next
        for why in self._notices.news("labels", str(error)):
            log.warning("node labels not written", node=node.name, why=why)


def _text(written: LabelChange) -> str:
    pairs = sorted(written.labels.items())
    return " ".join(f"{key}-" if value is None else f"{key}={value}" for key, value in pairs)
