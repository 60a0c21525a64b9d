"""Follows the NodePolicies of the cluster for this node: what they wish is a wish of the agent.

Beside the file and the label that pools/config_source reads;
pools/rules/node_policies puts together those that select the node. While the API server is away
what was wished last stands, and so does the last good state of a policy that became unreadable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import structlog

from kube_base.errors import KubeError, Refused
from kube_base.notices import Notices
from kube_client.watching import Changed, Deleted, Muddled, Synced, WatchEvent
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.model.node import NodeState
from kube_rdma.model.pools.node_policy import ClusterNodePolicy, NodeWishes
from kube_rdma.pools.kind import NODE_POLICY, policy_of
from kube_rdma.pools.rules.node_policies import node_wishes
from kube_rdma.reports.node_keeper import pause

Wished = tuple[NodeWishes, tuple[Refused, ...]]
Watch = Callable[[], AsyncGenerator[WatchEvent[bytes, None], None]]

log = structlog.get_logger()


class NodePolicies:
    """The policies of one agent's node. `wait` is for tests."""

    def __init__(self, watch: Watch, *, wait: Callable[[KubeError, int], float] = pause) -> None:
        self._watch = watch
        self._pause = wait
        self._policies: dict[str, ClusterNodePolicy] = {}
        self._refusals: dict[str, Refused] = {}
        self._labels: tuple[tuple[str, str], ...] | None = None
        self._synced = False
        self._last: Wished | None = None
        self._notices = Notices()
        self._wish: Callable[[NodeWishes, tuple[Refused, ...]], None] = lambda *_: None

    @property
    def are_known(self) -> bool:
        """Whether it is known what they wish of this node."""
        return self._last is not None

    def seen(self, node: NodeState) -> None:
        """Take note of the node's labels."""
        if self._labels != node.labels:
            self._labels = node.labels
            self._tell()

    async def follow(self, wish: Callable[[NodeWishes, tuple[Refused, ...]], None]) -> None:
        """Call `wish` with what the policies come to and those that are refused, until cancelled.

        Where they may not be read, or do not exist, they come to nothing.
        """
        self._wish = wish
        while True:
            try:
                async with aclosing(self._watch()) as events:
                    async for event in events:
                        self._take(event)
            except Refused as error:
                for why in self._notices.news("policies", str(error)):
                    log.info("node policies not followed", why=why)
                self._synced = True
                self._tell()
                await asyncio.sleep(self._pause(error, 0))

    def _take(self, event: object) -> None:
        match event:
            case Changed(stored):
                try:
                    self._policies[stored.name] = policy_of(stored)
                    self._refusals.pop(stored.name, None)
                except Refused as error:
                    self._refusals[stored.name] = error
                except Exception as error:  # noqa: BLE001  of one policy
                    why = object_failed(NODE_POLICY.kind, stored.name, error)
                    self._refusals[stored.name] = Refused(why, remedy="Change its spec")
            case Deleted(name=name) | Muddled(name=name):
                self._policies.pop(name, None)
                self._refusals.pop(name, None)
            case Synced():
                self._synced = True
                self._notices.over("policies")
        self._tell()

    def _tell(self) -> None:
        """Half a list is no wish: nothing is told before the first one is whole."""
        if self._synced and self._labels is not None:
            wishes = node_wishes(self._policies.values(), self._labels)
            wished = (wishes, tuple(self._refusals.values()))
            if wished != self._last:
                self._last = wished
                self._wish(*wished)
