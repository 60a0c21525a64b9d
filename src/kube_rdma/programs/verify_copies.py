"""A copy of a pod on each node while they measure; they go whatever happens.

    manifest, nodes ─► copies by kubectl ─► Ready, or why not ─► … ─► delete by label

What deletes them also runs after an interruption: kubectl is started in a session of its own, so
that Ctrl-C ends the measurements and not the cleaning.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kube_rdma.adapters.kubectl import Kubectl
from kube_rdma.model.errors import KubeRdmaError, Refused
from kube_rdma.model.frozen import Frozen
from kube_rdma.rules.verify.copies import LABEL, asked, fitting, not_started, pod_for

_LOOK_SECONDS = 1.0


class CopyRequest(Frozen):
    """What to copy: the manifest and its file, the namespace, nodes (all that fit if none).

    `seconds` is how long the copies may take to become Ready.
    """

    manifest: Mapping[str, Any]
    where: str
    namespace: str | None = None
    nodes: tuple[str, ...] = ()
    seconds: float = 300


class Copies(Frozen):
    """The pods that are Ready, as objects, and by node why others take no part."""

    pods: tuple[dict[str, Any], ...]
    left_out: tuple[tuple[str, str], ...]


@asynccontextmanager
async def copies(kubectl: Kubectl, request: CopyRequest) -> AsyncIterator[Copies]:
    """Copies of a pod while they are needed."""
    run = secrets.token_hex(3)
    namespace = () if request.namespace is None else ("-n", request.namespace)
    nodes = (await kubectl.document("get", "nodes"))["items"]
    unknown = sorted(set(request.nodes) - {node["metadata"]["name"] for node in nodes})
    if unknown:
        raise Refused(
            f"the cluster has no node {unknown[0]!r}",
            remedy="See `kubectl get nodes`",
            where="NODE",
        )
    chosen = dict(fitting(nodes, request.nodes, asked(request.manifest)))
    left_out = {node: why for node, why in chosen.items() if why}
    made: list[str] = []
    try:
        for node in chosen.keys() - left_out.keys():
            document = pod_for(request.manifest, node, run, request.where)
            try:
                await kubectl.text("create", *namespace, "-f", "-", stdin=json.dumps(document))
                made.append(node)
            except KubeRdmaError as error:  # a quota, or an admission
                left_out[node] = str(error)
        words = (*namespace, "-l", f"{LABEL}={run}")
        pods, late = await _ready(kubectl, words, len(made), request.seconds)
        yield Copies(tuple(pods), tuple(sorted((left_out | late).items())))
    finally:
        words = (*namespace, "-l", f"{LABEL}={run}", "--ignore-not-found", "--wait=false")
        await kubectl.text("delete", "pods", *words)


async def _ready(
    kubectl: Kubectl, words: Sequence[str], count: int, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The pods that became Ready, and of the others why not, by node."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        pods = (await kubectl.document("get", "pods", *words))["items"]
        reasons = {pod["metadata"]["name"]: not_started(pod) for pod in pods}
        failed = sum(pod.get("status", {}).get("phase") == "Failed" for pod in pods)
        settled = failed + sum(not why for why in reasons.values())
        if settled >= count or asyncio.get_running_loop().time() > deadline:
            ready = [pod for pod in pods if not reasons[pod["metadata"]["name"]]]
            late = {_node(p): why for p in pods if (why := reasons[p["metadata"]["name"]])}
            return sorted(ready, key=_node), late
        await asyncio.sleep(_LOOK_SECONDS)


def _node(pod: Mapping[str, Any]) -> str:
    """The node that a copy is for, also while it is on none."""
    required = pod["spec"]["affinity"]["nodeAffinity"]
    terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])
