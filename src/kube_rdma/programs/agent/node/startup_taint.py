"""Takes the startup taint off this node when every resource is there: ``agent --startup-taint``.

The administrator lets the kubelet register its node with ``kube-rdma.io/starting:NoSchedule``. The
loop of role plugin hands in each state of the Node object and each offer; rules/pools/startup
compares them. A node that is registered anew has the taint anew, and loses it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.model.node import NodeState
from kube_rdma.rules.pools.startup import EFFECT, STARTING, is_starting, shows

log = structlog.get_logger()


class StartupTaint:
    """The taint of the node of one agent. `pause` says how long to wait after so many failures."""

    def __init__(
        self, nodes: Nodes, node: str, *, pause: Callable[[int], float] = full_jitter
    ) -> None:
        self._nodes = nodes
        self._name = node
        self._pause = pause
        self._node: NodeState | None = None
        self._offered: Mapping[str, int] | None = None
        self._wake = asyncio.Event()
        self._notices = Notices()

    def seen(self, node: NodeState) -> None:
        """Take note of the Node object as it is now."""
        self._node = node
        self._wake.set()

    def offered(self, shares: Mapping[str, int] | None) -> None:
        """Take note of the healthy shares of each resource; None while more is on its way."""
        self._offered = shares
        self._wake.set()

    async def run(self) -> None:
        """Remove the taint whenever it is there and the resources are, until cancelled."""
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._is_due():
                continue
            node = self._node
            try:
                removed = await self._nodes.remove_taint(self._name, STARTING, EFFECT)
            except KubeError as error:
                for why in self._notices.news("taint", str(error)):
                    log.warning("startup taint not removed", node=self._name, why=why)
                await asyncio.sleep(self._pause(failures))
                failures += 1
                self._wake.set()
                continue
            failures = 0
            if self._node is node:  # as it was before; the watch shows what it is now
                self._node = None
            self._notices.over("taint")
            if removed:
                log.info("startup taint removed", node=self._name, taint=f"{STARTING}:{EFFECT}")

    def _is_due(self) -> bool:
        if self._node is None or self._offered is None:
            return False
        return is_starting(self._node) and shows(self._node, self._offered)
