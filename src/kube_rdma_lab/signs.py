"""Reads from a cluster's objects what changes in it, and why a wait can never end well.

The facts go to a Patience; a reason to give up ends a wait at once (waiting.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

# Where the objects are that a wait looks at, by the name that `facts` and `hopeless` know them by.
PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "events": "/api/v1/events",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "jobs": "/apis/batch/v1/jobs",
}
# Reasons of a waiting container after which nothing comes: every image lies on the node already.
NO_IMAGE = frozenset(("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"))
CRASHES = "CrashLoopBackOff"
RESTARTS = 2  # a first crash may be a neighbour's that was not up yet
# Exit codes that are no crash: 0, and SIGKILL or SIGTERM, which others send.
ENDED_BY_OTHERS = frozenset((0, 128 + 9, 128 + 15))
READY = "--for=condition=Ready"  # a `kubectl wait` with this word ends when its pod has failed
REFUSED = "Refused"  # the end of an Event's reason after which a person has to act


def facts(documents: Mapping[str, Sequence[Object]]) -> Iterator[Hashable]:
    """Yield facts about a cluster; `documents` are its objects by the names of PATHS.

    Times, counts and other numbers of an event are left out: the same event again is no news.
    """
    for kind, items in documents.items():
        for item in items:
            yield from ((kind, *fact) for fact in _READERS[kind](item))


def _pod(pod: Object) -> Iterator[tuple[Hashable, ...]]:
    uid, status = pod["metadata"]["uid"], pod.get("status", {})
    yield uid, status.get("phase"), "deletionTimestamp" in pod["metadata"]
    for annotation in pod["metadata"].get("annotations", {}).items():
        yield uid, annotation
    for condition in status.get("conditions", ()):
        yield uid, condition["type"], condition["status"]
    for container in _containers(pod):
        (state,) = container["state"] or ("none",)
        yield uid, container["name"], state, container["ready"], container["restartCount"]


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind, ())


def _node(node: Object) -> Iterator[tuple[Hashable, ...]]:
    uid, status = node["metadata"]["uid"], node.get("status", {})
    for kind in ("labels", "annotations"):
        for entry in node["metadata"].get(kind, {}).items():
            yield uid, kind, entry
    for resource in status.get("allocatable", {}).items():
        yield uid, resource
    for condition in status.get("conditions", ()):
        yield uid, condition["type"], condition["status"]


def _event(event: Object) -> Iterator[tuple[Hashable, ...]]:
    about = event["involvedObject"]
    plain = re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", event.get("message") or "")
    yield about.get("uid") or about.get("name"), event["reason"], plain


def _counts(item: Object) -> Iterator[tuple[Hashable, ...]]:
    for name, value in item.get("status", {}).items():
        if isinstance(value, int):
            yield item["metadata"]["uid"], name, value


_READERS = {
    "pods": _pod,
    "nodes": _node,
    "events": _event,
    "daemonsets": _counts,
    "jobs": _counts,
}


def hopeless(
    documents: Mapping[str, Sequence[Object]], concerns: Collection[str], since: str
) -> str | None:
    """Return why waiting is hopeless: a dead container or a refusal; None if it is not.

    A dead container of any pod counts. A refusal counts if its object is one of `concerns`, words
    of kubectl: ``pod/x`` for one object, ``node`` for all of a kind. With READY among them, failed
    pods that they name count too; other conditions may wait for a failure. `since` is an RFC 3339
    time: earlier events do not count.
    """
    for pod in documents.get("pods", ()):
        name = pod["metadata"]["name"]
        awaited = READY in concerns and f"pod/{name}" in concerns
        if awaited and (reason := _failure(pod["status"])):
            return f"pod {name} {reason}"
        for container in _containers(pod):
            if reason := _dead_end(container):
                return f"pod {name}: container {container['name']} {reason}"
    for event in documents.get("events", ()):
        about = event["involvedObject"]
        kind = about["kind"].lower()
        meant = kind in concerns or f"{kind}/{about.get('name')}" in concerns
        if meant and event["reason"].endswith(REFUSED) and _when(event) >= since:
            return f"{about['kind']} {about['name']}: {event['reason']}: {event.get('message')}"
    return None


def _failure(status: Object) -> str | None:
    """Return how a pod ended in phase Failed, as one refused by its kubelet does; else None."""
    if status.get("phase") != "Failed":
        return None
    return f"failed: {status.get('reason', '')} {status.get('message', '')}".rstrip(": ")


def _dead_end(container: Object) -> str | None:
    waiting = container["state"].get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in NO_IMAGE:
        return f"has no image: {waiting.get('message', reason)}"
    ended = container.get("lastState", {}).get("terminated", {})
    by_others = ended.get("exitCode") in ENDED_BY_OTHERS and ended.get("reason") != "OOMKilled"
    if reason == CRASHES and container["restartCount"] >= RESTARTS and not by_others:
        code, why = ended.get("exitCode"), ended.get("message") or ended.get("reason", "")
        return f"crashes again and again, last with exit code {code} ({why.strip()})"
    return None


def _when(event: Object) -> str:
    """Return an Event's lastTimestamp, else its eventTime, the time of its first occurrence."""
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def summary(documents: Mapping[str, Sequence[Object]], lines: int = 8) -> str:
    """Return lines about pods that are not ready and the latest warnings, for people."""
    waiting = [
        f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']} is {status.get('phase')}"
        for pod in documents.get("pods", ())
        if not is_ready(pod) and (status := pod.get("status", {})).get("phase") != "Succeeded"
    ]
    warnings = [event for event in documents.get("events", ()) if event.get("type") == "Warning"]
    notes = [
        f"{event['involvedObject']['name']}: {event['reason']}: {event.get('message')}"
        for event in sorted(warnings, key=_when)[-lines:]
    ]
    return "\n".join(f"    {line}" for line in (*waiting[:lines], *notes))


def is_ready(item: Object) -> bool:
    """Return whether the condition Ready of a node or pod is true."""
    conditions = item.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
