"""Reads what claims give the nodes that are to get a copy of a pod: classes, templates, slices.

Called by verify/copies before it makes any; verify/rules/claimed_nodes judges. Nothing is
read for a pod without claims on nodes whose device plugin has all that it asks for. Needs the
rights to list deviceclasses and resourceslices, and to get resourceclaimtemplates in the namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kube_base.errors import KubeError
from kube_base.frozen import Frozen
from kube_client.errors import NotInstalled
from kube_rdma.claims.rules.cel.evaluate import Selectors
from kube_rdma.model.claims.claim import Claim, ClaimNode, DeviceClass
from kube_rdma.model.claims.listed import ListedSlice
from kube_rdma.verify.cluster import VerifyObjects
from kube_rdma.verify.rules.claimed_nodes import ClaimOffers, amounts, claims_for, unmet
from kube_rdma.verify.rules.copies import unshared


class _Read(Frozen):
    """The claims of each resource and of each template (None: there is no such template)."""

    resources: Mapping[str, tuple[Claim, ...]]
    templates: Mapping[str, Claim | None]
    classes: tuple[DeviceClass, ...]
    slices: tuple[ListedSlice, ...] = ()


async def claim_offers(
    objects: VerifyObjects,
    nodes: Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
    templates: Sequence[str],
    namespace: str,
) -> ClaimOffers:
    """What claims give these nodes of what the manifest asks for.

    `templates` are those of its claims. What cannot be read leaves no node out that may have it.
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
    return await asyncio.to_thread(_judged, read, nodes)


async def _read(
    objects: VerifyObjects, lacking: Mapping[str, int], templates: Sequence[str], namespace: str
) -> _Read:
    classes = await objects.classes()
    by_resource = {name: claims_for(name, count, classes) for name, count in lacking.items()}
    resources = {name: claims for name, claims in by_resource.items() if claims}
    own = {name: await objects.claim_of(namespace, name) for name in templates}
    slices = await objects.slices() if resources or any(own.values()) else ()
    return _Read(resources, own, classes, slices)


def _judged(read: _Read, nodes: Sequence[Mapping[str, Any]]) -> ClaimOffers:
    """Each node by itself; a resource is given where one of its classes gives it."""
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
    return ClaimOffers(resources, templates)


def _unmet_templates(read: _Read, node: ClaimNode, selectors: Selectors) -> list[str]:
    missing = [f"there is no claim template {n}" for n, one in read.templates.items() if not one]
    claims = [one for one in read.templates.values() if one]
    reasons = unmet(claims, node, read.classes, read.slices, selectors)
    return [
        *missing,
        *(f"claim template {c.name}: {why}" for c, why in zip(claims, reasons, strict=True) if why),
    ]
