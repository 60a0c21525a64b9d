"""Reads what `kube-rdma status` judges, kind by kind, so that a missing right hides little.

The API server alone is asked, never a node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.lib.part_reader import PartReader
from kube_rdma.model.finding import Finding
from kube_rdma.model.reports import ClusterFacts, ClusterHealth, ProgramPod
from kube_rdma.reports import cluster as objects
from kube_rdma.reports.rules.cluster import awaited, findings, health, programs

T = TypeVar("T")


async def take(cluster: Cluster) -> ClusterFacts:
    """Return the cluster's facts that can be read; raise Unavailable if the server is silent."""
    reader = PartReader(hidden_by=(Refused,))
    missing: list[str] = []

    async def part(what: str, read: Callable[[Cluster], Awaitable[T]]) -> T | None:
        async def installed() -> T | None:
            try:
                return await read(cluster)
            except NotInstalled:
                missing.append(what)
                return None

        return await reader.asked(what, installed)

    nodes = await part("nodes", objects.nodes)
    seen = await part("DaemonSets and Deployments", objects.workloads)
    workloads = programs(seen or ())
    reporting = frozenset(each.namespace for each in workloads if each.reports)
    pods: tuple[ProgramPod, ...] | None = None
    if seen is not None:

        async def of_programs(cluster: Cluster) -> tuple[ProgramPod, ...]:
            lists = [await objects.pods_of(cluster, each) for each in workloads]
            return tuple(pod for some in lists for pod in some)

        pods = await part("pods of agents and controllers", of_programs)
    stored = await part("NodeReport", objects.stored_reports)
    bound = await part("ValidatingAdmissionPolicyBinding", objects.bindings)
    cabling = None
    if stored is not None:
        cabling = {name: report.spec.cabling for name, report in stored.items()}
    reports = {name: report.status for name, report in (stored or {}).items() if report.status}
    return ClusterFacts(
        nodes=nodes,
        workloads=None if seen is None else workloads,
        pods=pods,
        reports=None if stored is None else reports,
        receipts={name: made.receipt for name, made in reports.items() if made.receipt},
        cabling=cabling,
        policies=await part("NicClusterPolicy", objects.policies),
        node_policies=await part("NodePolicy", objects.node_policies),
        repairs=await part("RepairPolicy", objects.repairs),
        pools=await part("IPPool", objects.pools),
        networks=await part("NetworkAttachmentDefinition", objects.definitions),
        waiting=await part("pods that wait", objects.waiting),
        events=await part("Events", objects.events),
        guarded=None if bound is None else objects.guarded(bound, reporting),
        measured=None if bound is None else any(one.endswith(objects.MEASURED) for one in bound),
        missing=tuple(missing),
        not_seen=tuple(reader.not_seen),
        read_at=datetime.now(UTC),
    )


# `kube-rdma status --wait` looks again until all is well, `--watch` until it is ended.

BETWEEN_SECONDS = 2.0
WATCH_SECONDS = 5.0  # each look lists nodes and reports, of a large cluster some MB


class ClusterLook(Frozen):
    """The facts about a cluster at one time, with their findings and the health that follows."""

    facts: ClusterFacts
    findings: tuple[Finding, ...]
    health: ClusterHealth
    result: ClusterHealth  # by what is waited for alone

    @classmethod
    def at(cls, facts: ClusterFacts, what: str = "all") -> ClusterLook:
        """Return the facts with findings and health; `what` is a word of --wait-for."""
        wrong = findings(facts)
        return cls(facts, wrong, health(facts, wrong), health(facts, awaited(wrong, what)))


async def until_well(
    take: Callable[[], Awaitable[ClusterFacts]],
    seconds: float,
    progress: Callable[[str], None] = lambda _: None,
    what: str = "all",
    shown: Callable[[ClusterLook], None] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ClusterLook:
    """Look at the cluster until all is well or time is over; return the last look.

    `what` is all that has to be well, a word of --wait-for. `progress` gets each new sentence about
    what is missing. With `shown`, which gets each look that differs, it goes on until it is
    cancelled. Raise Unavailable if the API server does not answer the last look.
    """
    between = WATCH_SECONDS if shown else BETWEEN_SECONDS
    end, before = clock() + seconds, ""
    seen: ClusterLook | None = None
    while True:
        news = ""
        try:
            look = ClusterLook.at(await take(), what)
        except Unavailable as error:
            if clock() + between > end:
                raise
            news = str(error)
        else:
            if not shown:
                if look.result is ClusterHealth.HEALTHY or clock() + between > end:
                    return look
                news = _waits_for(awaited(look.findings, what))
            # All but the time, which makes findings of its own: a report grows old.
            elif seen != (seen := replace(look, facts=replace(look.facts, read_at=None))):
                shown(look)
        if news and news != before:
            progress(news)
        before = news
        await sleep(between)


def _waits_for(wrong: Sequence[Finding]) -> str:
    if not wrong:
        return "Waiting: too little could be read to tell."
    first = " ".join(filter(None, (wrong[0].code, wrong[0].subject)))
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"Waiting for {first}{more}."
