"""Reads what `kube-rdma migrate plan` judges: which plugins run, whose they are, what they serve.

programs/cli/migrate runs it. It only reads; a right that is missing for what a plan needs refuses
it by name, for a plan that knows half of a cluster would do harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import migrate as objects
from kube_rdma.model.migrate import MigrationOptions, MigrationView, PluginConfig, PluginDaemonSet
from kube_rdma.model.pools.pool import Bind
from kube_rdma.model.reports.cluster import ProgramRole, ProgramTemplate
from kube_rdma.programs.config import parse_config
from kube_rdma.programs.part_reader import PartReader
from kube_rdma.rules.migrate.commands import MARK
from kube_rdma.rules.migrate.starts import config_map, serves
from kube_rdma.rules.pools.modes import terms
from kube_rdma.rules.reports.programs import program_role

T = TypeVar("T")


async def look(cluster: Cluster, options: MigrationOptions) -> MigrationView:
    """Read all of it; Refused with every right that is missing, Unavailable without an answer."""
    faults: list[Refused] = []

    async def needed(read: Callable[[Cluster], Awaitable[tuple[T, ...]]]) -> tuple[T, ...]:
        """What a plan cannot do without; nothing of a kind that is not installed."""
        try:
            return await read(cluster)
        except NotInstalled:
            return ()
        except Refused as refusal:
            faults.append(refusal)
            return ()

    reader = PartReader(hidden_by=(Refused,))
    seen = tuple(map(_judged, await needed(objects.daemon_sets)))
    policies = (*await needed(objects.cluster_policies), *await needed(objects.node_policies))
    nodes = await needed(lambda door: objects.nodes(door, MARK))
    holders = await reader.asked("pods that hold shares", lambda: objects.holders(cluster))
    operators = await reader.asked("NVIDIA's operator", lambda: objects.operators(cluster))
    if faults:
        raise Refused.all(faults)
    plugins = tuple(one for one in seen if one.is_ours or serves(one))
    configs = {}
    for plugin in plugins:
        name = config_map(plugin)
        if plugin.is_ours or not name or options.daemonset not in ("", plugin.title):
            continue
        text = await objects.config_text(cluster, *name.split("/"))
        if text is not None:
            configs[name] = _config(text, f"ConfigMap {name}, config.json")
    unread = tuple(f"Not read: {one.part}, for {one.why}" for one in reader.not_seen)
    return MigrationView(plugins, policies, nodes, holders or (), operators or (), configs, unread)


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
