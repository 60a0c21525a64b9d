"""Reads the cards that claims of any driver give to measured pods, or could give on nodes.

    pods ─► their claims ─► what was allocated ─┐
    slices of their nodes ──────────────────────┴─► verify/pairs

It needs the rights to get the claims of the pods' namespace and to list resourceslices. For copies
it also needs the rights to read device classes and claim templates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_client.errors import NotInstalled
from kube_client.objects import Cluster
from kube_rdma.claims.cluster import claimed_pod, devices_of, node_slices
from kube_rdma.claims.rules.cel.evaluate import Selectors
from kube_rdma.claims.rules.pools import ruled
from kube_rdma.model.claims.claim import ClaimNode, DeviceClass, ResourceClaim
from kube_rdma.model.claims.devices import PublishedCard, ResourceSlice
from kube_rdma.model.late_binding import PodName
from kube_rdma.pools.rules.claimed_cards import published_cards
from kube_rdma.verify.cluster import VerifyObjects
from kube_rdma.verify.rules.copies import ClaimOffers, amounts, claims_for, unmet, unshared


async def cards_or_why(
    cluster: Cluster, documents: Iterable[dict[str, Any]]
) -> tuple[dict[PodName, Sequence[PublishedCard]], str]:
    """Return the result of `cards_of_pods` and "", or no cards and a sentence with the reason."""
    try:
        return await cards_of_pods(cluster, documents), ""
    except KubeError as error:
        return {}, f"Cards of ResourceClaims are not known, pods tell their own: {error}"


async def cards_of_pods(
    cluster: Cluster, documents: Iterable[dict[str, Any]]
) -> dict[PodName, Sequence[PublishedCard]]:
    """Return each pod's claimed cards, in the order of its claims; skip pods without claims.

    Raise Refused without a right that it needs, Unavailable without an answer.
    """
    named = ((claimed_pod(one), one["spec"].get("nodeName", "")) for one in documents)
    pods = {pod: node for pod, node in named if pod.claims}
    nodes = sorted(set(pods.values()) - {""})
    allocated = await asyncio.gather(*(devices_of(cluster, pod) for pod in pods))
    slices = await asyncio.gather(*(node_slices(cluster, node) for node in nodes))
    published = published_cards(part for parts in slices for part in parts)
    return {
        PodName(pod.namespace, pod.name): tuple(
            published[one] for one in dict.fromkeys(devices) if one in published
        )
        for pod, devices in zip(pods, allocated, strict=True)
    }


# What claims give the nodes that are to get a copy of a pod, by classes, templates and slices.


class _ClaimObjects(Frozen):
    """The claims for each resource and template; None stands for a template that is missing."""

    resources: Mapping[str, tuple[ResourceClaim, ...]]
    templates: Mapping[str, ResourceClaim | None]
    classes: tuple[DeviceClass, ...]
    slices: tuple[ResourceSlice, ...] = ()
    remark: str = ""


async def claim_offers(
    objects: VerifyObjects,
    nodes: Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
    templates: Sequence[str],
    namespace: str,
) -> ClaimOffers:
    """Return why these nodes cannot meet by claims what the manifest asks for, node by node.

    `templates` are the templates of its claims. Where objects cannot be read, no claim gives a
    resource, and each node counts as able to meet the templates. The result then says why, unless
    their kinds are not installed.
    """
    wanted = amounts(manifest)
    lacking = {name for node in nodes for name in unshared(node, wanted)}
    if not lacking and not templates:
        return ClaimOffers()
    try:
        read = await _read(objects, {name: wanted[name] for name in lacking}, templates, namespace)
    except NotInstalled:
        return ClaimOffers()
    except KubeError as error:
        return ClaimOffers(unread=str(error))
    return await asyncio.to_thread(_offers, read, nodes)


async def _read(
    objects: VerifyObjects, lacking: Mapping[str, int], templates: Sequence[str], namespace: str
) -> _ClaimObjects:
    classes = await objects.classes()
    by_resource = {name: claims_for(name, count, classes) for name, count in lacking.items()}
    resources = {name: claims for name, claims in by_resource.items() if claims}
    own = {name: await objects.claim_of(namespace, name) for name in templates}
    if not (resources or any(own.values())):
        return _ClaimObjects(resources, own, classes)
    slices, taints = await objects.slices(), await objects.taint_rules()
    return _ClaimObjects(resources, own, classes, ruled(slices, taints.rules), taints.remark)


def _offers(read: _ClaimObjects, nodes: Sequence[Mapping[str, Any]]) -> ClaimOffers:
    """Judge each node: it gives a resource if it can meet a claim of any class of the resource."""
    resources: dict[str, dict[str, str]] = {name: {} for name in read.resources}
    templates: dict[str, str] = {}
    selectors = Selectors()
    for document in nodes:
        metadata = document["metadata"]
        node = ClaimNode(metadata["name"], metadata.get("labels") or {})
        for name, claims in read.resources.items():
            reasons = unmet(claims, node, read.classes, read.slices, selectors)
            resources[name][node.name] = min(reasons)
        templates[node.name] = next(filter(None, _unmet_templates(read, node, selectors)), "")
    return ClaimOffers(resources, templates, remark=read.remark)


def _unmet_templates(read: _ClaimObjects, node: ClaimNode, selectors: Selectors) -> list[str]:
    missing = [f"there is no claim template {n}" for n, one in read.templates.items() if not one]
    claims = {name: one for name, one in read.templates.items() if one}
    reasons = unmet(tuple(claims.values()), node, read.classes, read.slices, selectors)
    unmet_ones = zip(claims, reasons, strict=True)
    return [*missing, *(f"claim template {name}: {why}" for name, why in unmet_ones if why)]
