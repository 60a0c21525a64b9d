"""Which cards the pods that are measured have by ResourceClaims, whatever driver gave them.

    pods ─► their claims ─► what was allocated ─┐
    slices of their nodes ──────────────────────┴─► verify/pairs

Needs the rights to get the claims of the pods' namespace and to list resourceslices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from kube_base.errors import KubeError
from kube_client.objects import Cluster
from kube_rdma.claims.cluster import claimed_pod, devices_of, node_slices
from kube_rdma.model.claims.device import PublishedCard, SliceDevice
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.pools.rules.claimed_cards import published_cards


async def cards_or_why(
    cluster: Cluster, documents: Iterable[dict[str, Any]]
) -> tuple[dict[PodName, Sequence[PublishedCard]], str]:
    """The same as `cards_of_pods`, or nothing and the sentence that says why."""
    try:
        return await cards_of_pods(cluster, documents), ""
    except KubeError as error:
        return {}, f"Cards of ResourceClaims are not known, pods tell their own: {error}"


async def cards_of_pods(
    cluster: Cluster, documents: Iterable[dict[str, Any]]
) -> dict[PodName, Sequence[PublishedCard]]:
    """By pod its cards, in the order of its claims; pods without claims are left out.

    Raise Refused without a right, Unavailable.
    """
    named = ((claimed_pod(one), one["spec"].get("nodeName", "")) for one in documents)
    pods = {pod: node for pod, node in named if pod.claims}
    nodes = sorted(set(pods.values()) - {""})
    allocated = await asyncio.gather(*(devices_of(cluster, pod) for pod in pods))
    slices = await asyncio.gather(*(node_slices(cluster, node) for node in nodes))
    published = published_cards(part for parts in slices for part in parts)
    return {
        PodName(pod.namespace, pod.name): _cards(devices, published)
        for pod, devices in zip(pods, allocated, strict=True)
    }


def _cards(
    devices: Iterable[SliceDevice], published: dict[SliceDevice, PublishedCard]
) -> tuple[PublishedCard, ...]:
    return tuple(published[one] for one in dict.fromkeys(devices) if one in published)
