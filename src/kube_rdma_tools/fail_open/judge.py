"""Judges each pod: it ran with its NIC, it ran without, or it did not start, and why.

The check that ran in a pod wrote one line, which stands in the pod's status. If a pod did not
start, its status or an Event may say why.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma_tools.fail_open.pods import LABEL

LINE = re.compile(
    r"^fail-open lacks=(?P<lacks>\S*) netdev=\S* rdma=\S* verbs=\S* late=(?P<late>\d*)$",
    re.MULTILINE,
)
# What a kubelet says of a container that is on its way.
_ON_THE_WAY = {"ContainerCreating", "PodInitializing"}


class PodVerdict(StrEnum):
    """What became of a pod: with its NIC, without it, refused, silent or unclear."""

    WITH = "with"  # it ran, and had all that it expects when it started
    WITHOUT = "without"  # it ran and lacked something: the driver failed open
    REFUSED = "refused"  # it did not run, and somebody says why
    SILENT = "silent"  # it did not run, and nobody says why
    UNCLEAR = "unclear"  # it ran, and its check wrote no line


class Judgement(Frozen):
    """The verdict on a pod; `why` is what it lacks, or who refused it.

    `recovered` says that it started with its NIC after a warning. `late` is the number of seconds
    after which it lacked nothing any more; None means from the start, or never.
    """

    pod: str
    verdict: PodVerdict
    why: str = ""
    recovered: bool = False
    late: int | None = None


class Score(Frozen):
    """The numbers of pods by verdict; `came_late` is part of `without`, `recovered` of `with`."""

    pods: int
    by_verdict: Mapping[PodVerdict, int]
    recovered: int
    came_late: int

    @property
    def failed_open(self) -> int:
        """Return the number of pods that ran without what they asked for."""
        return self.by_verdict.get(PodVerdict.WITHOUT, 0)


def judge(items: Iterable[Mapping[str, Any]]) -> tuple[Judgement, ...]:
    """Judge the check's pods among a cluster's objects; Events explain those that wait."""
    pods: list[Mapping[str, Any]] = []
    warnings: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if item["kind"] == "Pod" and LABEL in (item["metadata"].get("labels") or {}):
            pods.append(item)
        elif item["kind"] == "Event" and item.get("type") == "Warning":
            about = item.get("involvedObject") or item.get("regarding") or {}
            text = item.get("message") or item.get("note") or ""
            warnings[about.get("uid", "")].append(f"{item.get('reason')}: {text}")
    return tuple(_judged(pod, warnings[pod["metadata"]["uid"]]) for pod in pods)


def score(judgements: Sequence[Judgement]) -> Score:
    """Count the pods by verdict."""
    return Score(
        len(judgements),
        Counter(one.verdict for one in judgements),
        sum(one.recovered for one in judgements),
        sum(one.late is not None for one in judgements),
    )


def sentence(total: Score) -> str:
    """Return the score as one line of text."""
    if not total.pods:
        return "No pod of the check is among these objects."
    counts = ", ".join(f"{total.by_verdict.get(one, 0)} {one}" for one in PodVerdict)
    return (
        f"{total.pods} pods: {counts}; {total.recovered} started after a refusal,"
        f" {total.came_late} got the NIC late. Fail-open: {total.failed_open}."
    )


def is_over(pod: Mapping[str, Any]) -> bool:
    """Decide whether a pod has ended, in phase Succeeded or Failed."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _judged(pod: Mapping[str, Any], warnings: Sequence[str]) -> Judgement:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    (container,) = status.get("containerStatuses") or [{}]
    state = container.get("state") or {}
    ended = state.get("terminated") or {}
    if line := LINE.search(ended.get("message") or ""):
        late = int(line["late"]) if line["late"] else None
        if lacks := line["lacks"]:
            return Judgement(name, PodVerdict.WITHOUT, f"no {lacks}", late=late)
        return Judgement(name, PodVerdict.WITH, recovered=bool(warnings))
    if ended.get("startedAt") or "running" in state:
        return Judgement(name, PodVerdict.UNCLEAR, _one_line(ended.get("message") or "no line yet"))
    why = next(_reasons(status, state, warnings), "")
    return Judgement(name, PodVerdict.REFUSED if why else PodVerdict.SILENT, _one_line(why))


def _reasons(
    status: Mapping[str, Any], state: Mapping[str, Any], warnings: Sequence[str]
) -> Iterator[str]:
    """Yield the reasons why a pod does not run, the most specific first."""
    if status.get("reason"):
        yield f"{status['reason']}: {status.get('message') or ''}"
    for word in ("terminated", "waiting"):
        reason = (state.get(word) or {}).get("reason")
        if reason and reason not in _ON_THE_WAY:
            yield f"{reason}: {state[word].get('message') or ''}"
    yield from reversed(warnings)
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"{condition.get('reason')}: {condition.get('message') or ''}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
