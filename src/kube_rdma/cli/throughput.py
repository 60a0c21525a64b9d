"""Scrapes all agents side by side, again and again: what `kube-rdma top` shows.

An agent that does not answer costs its own row and no other's; agents come and go between scrapes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_base.plain_text import plain
from kube_client.objects import Cluster
from kube_rdma.adapters.metrics.samples import samples
from kube_rdma.doctor.agents import Agents, find_agents
from kube_rdma.metrics.rules.throughput import rates, totals
from kube_rdma.model.metrics.throughput import AgentScrape, TrafficRate

_SCRAPE = ("kube-rdma", "top", "scrape")


class ClusterTraffic(Frozen):
    """One look at the cluster: a row for each device, and nodes that did not answer, with why."""

    rows: tuple[TrafficRate, ...]
    silent: Mapping[str, str]


async def watch_traffic(
    cluster: Cluster, namespaces: Sequence[str], interval: float
) -> AsyncGenerator[ClusterTraffic, None]:
    """Looks `interval` seconds apart, the first one with rates; raise Refused without an agent."""
    before = await _scrapes(cluster, namespaces)
    while True:
        await asyncio.sleep(interval)
        now = await _scrapes(cluster, namespaces)
        yield ClusterTraffic(
            tuple(row for node, scrape in now.items() for row in rates(before.get(node), scrape)),
            {scrape.node: scrape.problem for scrape in now.values() if scrape.problem},
        )
        # Who was silent once is compared with what was seen last.
        before = {node: before.get(node, one) if one.problem else one for node, one in now.items()}


async def _scrapes(cluster: Cluster, namespaces: Sequence[str]) -> Mapping[str, AgentScrape]:
    """What the agents say now, by node."""
    agents = await find_agents(cluster, namespaces)
    return {one.node: one for one in await agents.ask_all(partial(_scrape, agents))}


async def _scrape(agents: Agents, node: str) -> AgentScrape:
    try:
        when, series = samples(await agents.output(node, _SCRAPE))
    except KubeError as error:
        return AgentScrape(node, 0.0, problem=plain(str(error)))
    return AgentScrape(node, when, totals(series))
