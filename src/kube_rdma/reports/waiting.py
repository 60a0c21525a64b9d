"""Looks at a cluster again and again until all is well: `kube-rdma status --wait`.

reports/gather takes each look, reports/rules/cluster judges it. An API server that does
not answer is waited for like everything else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma.model.finding import Finding
from kube_rdma.model.reports.cluster import ClusterFacts, ClusterHealth
from kube_rdma.reports.rules.cluster import findings, health

BETWEEN_SECONDS = 2.0

Clock: TypeAlias = Callable[[], float]
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class ClusterLook(Frozen):
    """One look at a cluster and what it comes to."""

    facts: ClusterFacts
    findings: tuple[Finding, ...]
    health: ClusterHealth


def judged(facts: ClusterFacts) -> ClusterLook:
    """A look with its judgement."""
    wrong = findings(facts)
    return ClusterLook(facts, wrong, health(facts, wrong))


async def until_well(
    take: Callable[[], Awaitable[ClusterFacts]],
    seconds: float,
    progress: Callable[[str], None] = lambda _: None,
    *,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> ClusterLook:
    """The first look at which all is well, or the last one before the time is over.

    `progress` hears each new sentence of what is waited for. Raise Unavailable where the API server
    does not answer the last look.
    """
    end, before = clock() + seconds, ""
    while True:
        try:
            look = judged(await take())
        except Unavailable as error:
            if clock() + BETWEEN_SECONDS > end:
                raise
            news = str(error)
        else:
            if look.health is ClusterHealth.HEALTHY or clock() + BETWEEN_SECONDS > end:
                return look
            news = _waits_for(look)
        if news != before:
            before = news
            progress(news)
        await sleep(BETWEEN_SECONDS)


def _waits_for(look: ClusterLook) -> str:
    wrong = [one for one in look.findings if one.is_error]
    if not wrong:
        return "Waiting: too little could be read to tell."
    first = " ".join(filter(None, (wrong[0].code, wrong[0].subject)))
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"Waiting for {first}{more}."
