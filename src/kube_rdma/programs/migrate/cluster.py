"""Reads what `kube-rdma migrate plan` judges: which plugins run, whose they are, what they serve.

programs/cli/migrate runs it. It only reads; a right that is missing for what a plan needs refuses
it by name, for a plan that knows half of a cluster would do harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from kube_base.errors import Refused
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import migrate as objects
from kube_rdma.model.migrate import (
    MigrationOptions,
    MigrationView,
    PluginConfig,
    PluginDaemonSet,
)
from kube_rdma.model.pools.pool import Bind
from kube_rdma.model.reports.cluster import ProgramRole, ProgramTemplate
from kube_rdma.programs.config import parse_config
from kube_rdma.rules.migrate.commands import MARK
from kube_rdma.rules.migrate.starts import config_map, serves
from kube_rdma.rules.pools.modes import terms
from kube_rdma.rules.reports.programs import program_role

T = TypeVar("T")


class _MigrationReader:
    """One look at a cluster: what a plan cannot do without, and what it can."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.faults: list[Refused] = []
        self.unread: list[str] = []

    async def needed(self, read: Callable[[Cluster], Awaitable[tuple[T, ...]]]) -> tuple[T, ...]:
        """What `read` returns; nothing of a kind that is not installed."""
        try:
            return await read(self._cluster)
        except NotInstalled:
            return ()
        except Refused as refusal:
            self.faults.append(refusal)
            return ()

    async def useful(
        self, what: str, read: Callable[[Cluster], Awaitable[tuple[T, ...]]]
    ) -> tuple[T, ...]:
        """The same of what a plan only tells."""
        try:
            return await read(self._cluster)
        except Refused as refusal:
            self.unread.append(f"Not read: {what}, for {refusal}")
            return ()


async def look(cluster: Cluster, options: MigrationOptions) -> MigrationView:
    """Read all of it; Refused with every right that is missing, Unavailable without an answer."""
    reader = _MigrationReader(cluster)
    seen = tuple(map(_judged, await reader.needed(objects.daemon_sets)))
    policies = (
        *await reader.needed(objects.cluster_policies),
        *await reader.needed(objects.node_policies),
    )
    nodes = await reader.needed(lambda door: objects.nodes(door, MARK))
    holders = await reader.useful("pods that hold shares", objects.holders)
    operators = await reader.useful("NVIDIA's operator", objects.operators)
    if reader.faults:
        raise Refused.all(reader.faults)
    plugins = tuple(one for one in seen if one.is_ours or serves(one))
    configs = {}
    for plugin in plugins:
        name = config_map(plugin)
        if plugin.is_ours or not name or options.daemonset not in ("", plugin.title):
            continue
        text = await objects.config_text(cluster, *name.split("/"))
        if text is not None:
            configs[name] = _config(text, f"ConfigMap {name}, config.json")
    return MigrationView(
        plugins, policies, nodes, holders, operators, configs, tuple(reader.unread)
    )


def _judged(seen: PluginDaemonSet) -> PluginDaemonSet:
    """The DaemonSet with whether it is one of kube-rdma's."""
    containers = seen.pod.get("containers") or ()
    words = [
        word for one in containers[:1] for key in ("command", "args") for word in one.get(key) or ()
    ]
    role = program_role(ProgramTemplate(seen.name, seen.image, tuple(words)))
    return replace(seen, is_ours=role is ProgramRole.AGENT)


def _config(text: str, where: str) -> PluginConfig:
    """What kube-rdma makes of a configuration; Refused with what it does not take."""
    parsed = parse_config(text.encode(), where)
    rows = [(pool.resource, terms(pool)) for pool in parsed.pools]
    shares = {name: row.shares if row.bind is Bind.POOL else None for name, row in rows}
    return PluginConfig(text, shares, parsed.warnings)
