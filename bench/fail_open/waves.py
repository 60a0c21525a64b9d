"""One wave: pods are made, their driver meets a fault, and each of them ends with a verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.fail_open.faults import Target, broken
from bench.fail_open.steps import Plan
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab
from kube_rdma_tools.fail_open.judge import Judgement, is_over, judge
from kube_rdma_tools.fail_open.pods import LABEL, probes

LATE_SECONDS = 20
SETTLE_SECONDS = 150.0
ASK_SECONDS = 1.0

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wave:
    """What became of the pods of a plan, and what it took."""

    plan: Plan
    judgements: tuple[Judgement, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ProbePod:
    """A pod that asks for a NIC, and what it has to have then."""

    document: Document
    expect: tuple[str, ...]


def run(lab: Lab, plan: Plan, number: int, pod: ProbePod, target: Target) -> Wave:
    """Have a wave of pods; raise Unavailable when its fault did not come about."""
    metadata, name = pod.document["metadata"], f"{plan.way.name}-{number}"
    namespace = metadata["namespace"]
    named = {**pod.document, "metadata": {**metadata, "name": name}}
    items = list(probes(named, plan.pods, pod.expect, LATE_SECONDS))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    begin = time.monotonic()
    selector = f"{LABEL}={name}"
    try:
        with broken(lab, plan, target):
            cluster.kubectl(lab, "create", "-f", "-", stdin=text)
            _until(lambda: _are_over(lab, namespace, selector, plan.pods))
        judgements = _judged(lab, namespace, selector)
        return Wave(plan, judgements, time.monotonic() - begin)
    finally:
        words = ("delete", "pods", "-l", selector, "--grace-period=1", "--wait=false")
        cluster.kubectl(lab, "-n", namespace, *words)


def _until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, but no longer than pods have to settle."""
    until = time.monotonic() + SETTLE_SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(ASK_SECONDS)


def _items(lab: Lab, namespace: str, *words: str) -> Sequence[Document]:
    items: Sequence[Document] = cluster.get(lab, "-n", namespace, *words)["items"]
    return items


def _are_over(lab: Lab, namespace: str, selector: str, count: int) -> bool:
    pods = _items(lab, namespace, "pods", "-l", selector)
    return len(pods) == count and all(map(is_over, pods))


def _judged(lab: Lab, namespace: str, selector: str) -> tuple[Judgement, ...]:
    pods = _items(lab, namespace, "pods", "-l", selector)
    events = _items(lab, namespace, "events", "--field-selector=type=Warning")
    return judge([*pods, *events])
