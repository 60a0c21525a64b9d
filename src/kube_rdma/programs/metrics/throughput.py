"""Scrapes all agents side by side, again and again: what `kube-rdma top` shows.

An agent that does not answer costs its own row and no other's; agents come and go between scrapes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from functools import partial

from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster import reports as objects
from kube_rdma.adapters.cluster.agent_metrics import samples_of
from kube_rdma.model.metrics.throughput import AgentScrape, MetricsAgent, TrafficRate
from kube_rdma.model.reports.cluster import ProgramRole
from kube_rdma.rules.metrics.throughput import rates, totals
from kube_rdma.rules.reports.programs import metrics_port, program_role

AT_ONCE = 32  # scrapes under way: each has up to a few hundred KiB


class ClusterTraffic(Frozen):
    """One look at the cluster: a row for each device, and nodes that did not answer, with why."""

    rows: tuple[TrafficRate, ...]
    silent: Mapping[str, str]


async def watch_traffic(cluster: Cluster, interval: float) -> AsyncGenerator[ClusterTraffic, None]:
    """Looks `interval` seconds apart, the first one with rates; raise Refused without an agent."""
    before = await _scrapes(cluster)
    while True:
        await asyncio.sleep(interval)
        now = await _scrapes(cluster)
        yield ClusterTraffic(
            tuple(row for name, scrape in now.items() for row in rates(before.get(name), scrape)),
            {scrape.node: scrape.problem for scrape in now.values() if scrape.problem},
        )
        # Who was silent once is compared with what was seen last.
        before = {name: before.get(name, one) if one.problem else one for name, one in now.items()}


async def _scrapes(cluster: Cluster) -> Mapping[tuple[str, str], AgentScrape]:
    agents = await _agents(cluster)
    if not agents:
        raise Refused(
            "no agent of this cluster answers Prometheus",
            remedy="Switch metrics on: metrics.port of the chart, --metrics-address of the agent",
            where="--metrics-address",
        )
    room = asyncio.Semaphore(AT_ONCE)
    scrape = partial(_scrape, cluster, room)
    answers = await asyncio.gather(*map(scrape, agents))
    return {(agent.namespace, agent.pod): one for agent, one in zip(agents, answers, strict=True)}


async def _agents(cluster: Cluster) -> tuple[MetricsAgent, ...]:
    """The agents that were told to answer Prometheus and run."""
    agents: list[MetricsAgent] = []
    for workload in await objects.workloads(cluster):
        port = metrics_port(workload.template.words)
        if port is None or program_role(workload.template) is not ProgramRole.AGENT:
            continue
        agents += [
            MetricsAgent(pod.namespace, pod.name, pod.node, port)
            for pod in await objects.pods_of(cluster, workload)
            if pod.node
        ]
    return tuple(agents)


async def _scrape(cluster: Cluster, room: asyncio.Semaphore, agent: MetricsAgent) -> AgentScrape:
    async with room:
        try:
            samples = await samples_of(cluster, agent)
        except KubeError as error:
            return AgentScrape(agent.node, time.monotonic(), problem=str(error))
        return AgentScrape(agent.node, time.monotonic(), totals(samples))
