"""A copy of a pod on each node while they measure; they go whatever happens.

    manifest, nodes ─► copies ─► Ready, or why not ─► … ─► delete by label

What deletes them also runs after an interruption: a cancelled task may still await in its finally.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen, field
from kube_rdma.verify.claim_offers import claim_offers
from kube_rdma.verify.cluster import VerifyObjects
from kube_rdma.verify.rules.claimed_nodes import claim_templates
from kube_rdma.verify.rules.copies import (
    LABEL,
    asked,
    away,
    fitting,
    not_started,
    owned,
    pod_for,
    without_image,
)

_LOOK_SECONDS = 1.0


class CopyRequest(Frozen):
    """What to copy: the manifest and its file, the namespace, nodes (all that fit if none).

    `seconds` is how long the copies may take to become Ready, `owner` whose they are, if anybody's.
    `admit` is told how many are wanted, before one is made, and may raise. With `by_node` each node
    has a manifest of its own, which asks for the same resources, and those without one take no
    part, for the reason in `absent`.
    """

    manifest: Mapping[str, Any]
    where: str
    namespace: str
    nodes: tuple[str, ...] = ()
    seconds: float = 300
    owner: tuple[str, str, str, str] | None = None  # apiVersion, kind, name, uid
    admit: Callable[[int], None] = field(default=lambda _: None)
    by_node: Mapping[str, Mapping[str, Any]] | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    def manifest_for(self, node: str) -> Mapping[str, Any]:
        """What is copied to a node."""
        return self.manifest if self.by_node is None else self.by_node[node]

    def hindered(self, node: str) -> str:
        """Why a node that offers the resources has no manifest; empty if it has one."""
        if self.by_node is None or node in self.by_node:
            return ""
        return self.absent.get(node, "it has no NodeReport that can be read")


class Copies(Frozen):
    """The pods that are Ready, as objects, and by node why others take no part.

    `excused` is how many of these nobody asked for.
    """

    pods: tuple[dict[str, Any], ...]
    left_out: tuple[tuple[str, str], ...] = ()
    excused: int = 0


@asynccontextmanager
async def copies(objects: VerifyObjects, request: CopyRequest) -> AsyncIterator[Copies]:
    """Copies of a pod while they are needed."""
    run, namespace = secrets.token_hex(3), request.namespace
    nodes = await objects.nodes()
    names = {node["metadata"]["name"] for node in nodes}
    unknown = sorted(set(request.nodes) - names)
    if unknown:
        raise Refused(
            f"the cluster has no node {unknown[0]!r}",
            remedy="See `kubectl get nodes`",
            where="NODE",
        )
    templates = claim_templates(request.manifest, request.where)
    named = [each for each in nodes if each["metadata"]["name"] in (request.nodes or names)]
    claims = await claim_offers(objects, named, request.manifest, templates, namespace)
    chosen = dict(fitting(nodes, request.nodes, asked(request.manifest), claims))
    left_out = {node: why for node, why in chosen.items() if why}
    excused = 0 if request.nodes else len(left_out)
    request.admit(len(chosen) - len(left_out))
    silent = away(nodes)
    for node in chosen.keys() - left_out.keys():
        if why := silent.get(node) or request.hindered(node):
            left_out[node] = why
    made: list[str] = []
    selector = f"{LABEL}={run}"
    try:
        for node in chosen.keys() - left_out.keys():
            document = pod_for(request.manifest_for(node), node, run, request.where)
            document["metadata"]["namespace"] = namespace
            if request.owner:
                owned(document, request.owner)
            try:
                await objects.create(namespace, document)
                made.append(node)
            except KubeError as error:  # a quota, or an admission
                left_out[node] = str(error)
        pods, late = await _ready(objects, (namespace, selector), len(made), request.seconds)
        yield Copies(tuple(pods), tuple(sorted((left_out | late).items())), excused)
    finally:
        await objects.delete(namespace, selector)


async def _ready(
    objects: VerifyObjects, place: tuple[str, str], count: int, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The pods that became Ready, and of the others why not, by node; `place` has the selector."""
    namespace, selector = place
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        pods = await objects.pods(namespace, selector=selector)
        reasons = {pod["metadata"]["name"]: not_started(pod) for pod in pods}
        failed = sum(pod.get("status", {}).get("phase") == "Failed" for pod in pods)
        settled = failed + sum(not why for why in reasons.values())
        if pods and all(map(without_image, pods)):  # none can pull it: its name is wrong
            settled = count
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
