"""Reads the evidence of `kube-rdma migrate`: the plugins of a cluster, their owners and resources.

It only reads. Where a right for a needed part is missing, it refuses and names the right. A plan
that knows half of a cluster would do harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.migrate import cluster as objects
from kube_rdma.migrate.rules.commands import MARK
from kube_rdma.migrate.rules.starts import config_map, serves, serves_cards
from kube_rdma.model import migrate as model
from kube_rdma.model.pools import Bind, Mode
from kube_rdma.model.reports import ProgramRole, ProgramTemplate
from kube_rdma.pools.config import parse_config
from kube_rdma.pools.documents.config import SERVE_LABEL
from kube_rdma.pools.rules.modes import terms
from kube_rdma.reports.rules.cluster import program_role

T = TypeVar("T")


async def look(cluster: Cluster, options: model.MigrationOptions) -> model.MigrationView:
    """Read what a plan for a cluster needs.

    Raise Refused with every missing right or for a faulty configuration, Unavailable without an
    answer of the API server.
    """
    faults: list[Refused] = []

    async def needed(read: Callable[[Cluster], Awaitable[tuple[T, ...]]]) -> tuple[T, ...]:
        """Read one part of the cluster; return () where its kind is not installed, or on a refusal.

        A refusal is kept in `faults`.
        """
        try:
            return await read(cluster)
        except NotInstalled:
            return ()
        except Refused as refusal:
            faults.append(refusal)
            return ()

    reader = PartReader(hidden_by=(Refused,))
    seen = tuple(map(_judged, await needed(objects.daemon_sets)))
    of_cluster = await needed(objects.policies)
    of_nodes = await needed(partial(objects.policies, kind=objects.NODE_POLICIES))
    nodes = await needed(partial(objects.nodes, mark=MARK))
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
    policies = (*of_cluster, *of_nodes)
    return model.MigrationView(
        plugins, policies, nodes, holders or (), operators or (), configs, unread
    )


async def neighbours(
    cluster: Cluster,
) -> tuple[tuple[model.PluginDaemonSet, ...], tuple[str, ...]]:
    """Return DaemonSets that serve RDMA cards, and ready Deployments of NVIDIA's operator."""
    seen = map(_judged, await objects.daemon_sets(cluster))
    plugins = tuple(one for one in seen if one.is_ours or serves_cards(one))
    return plugins, await objects.operators(cluster)


async def look_node(cluster: Cluster, name: str) -> model.ServingView:
    """Read what a plan to move a node to claims needs.

    Raise Refused for an unknown node, for one without reported resources, and without a right.
    """
    seen = await objects.node(cluster, name, SERVE_LABEL)
    if seen is None:
        raise Refused(f"there is no node {name}", remedy="kubectl get nodes has their names")
    pools = await objects.reported_pools(cluster, name)
    if not pools:
        raise Refused(
            f"no agent of kube-rdma reports a resource of node {name}",
            remedy="Install kube-rdma on it first; kubectl get nodereports shows who reports",
        )
    try:
        classes = await objects.extended_names(cluster)
    except NotInstalled:
        classes = {}
    sets = map(_judged, await objects.daemon_sets(cluster))
    node, version = seen
    return model.ServingView(
        node,
        version,
        resources=tuple(sorted(pools)),
        whole=frozenset(one for one, mode in pools.items() if mode == Mode.HCA),
        classes=classes,
        serves_claims=any(one.is_ours and "--claims" in _words(one) for one in sets),
        pods=await objects.sharing_pods(cluster, name),
    )


def _words(plugin: model.PluginDaemonSet) -> list[str]:
    """Return the command line of a DaemonSet's first container."""
    containers = plugin.pod.get("containers") or ()
    return [w for one in containers[:1] for k in ("command", "args") for w in one.get(k) or ()]


def _judged(seen: model.PluginDaemonSet) -> model.PluginDaemonSet:
    """Return the DaemonSet, with `is_ours` set if it runs kube-rdma's agent."""
    role = program_role(ProgramTemplate(seen.name, seen.image, tuple(_words(seen))))
    return replace(seen, is_ours=role is ProgramRole.AGENT)


def _config(text: str, where: str) -> model.PluginConfig:
    """Return a plugin's configuration with the shares that kube-rdma would make of it.

    Raise Refused for its faults.
    """
    parsed = parse_config(text.encode(), where)
    rows = [(pool.resource, terms(pool)) for pool in parsed.pools]
    shares = {name: row.shares if row.bind is Bind.POOL else None for name, row in rows}
    return model.PluginConfig(text, shares, parsed.warnings)
