"""What `kube-rdma explain` reads of the API server beside a pod: what other pods of its node have.

One request, which needs the verb list of pods. What they ask for is what the scheduler counts.
"""

from __future__ import annotations

from collections import Counter

from kube_base.frozen import Frozen
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, status_of
from kube_rdma.admission.documents.pod_manifest import counted
from kube_rdma.attach.documents import network_status
from kube_rdma.model.card import CardId
from kube_rdma.model.late_binding import PodName


class OtherPods(Frozen):
    """Extended resources that they ask for; a card for each interface that they were told of."""

    held: tuple[tuple[str, int], ...] = ()
    cards: tuple[CardId, ...] = ()


async def others_on(cluster: Cluster, node: str, but: PodName | None = None) -> OtherPods:
    """The pods of a node that are not over, without one of them; a quantity of no form counts 0."""
    held: Counter[str] = Counter()
    cards: list[CardId] = []
    for pod in await cluster.list(FULL_POD, Where(fields=f"spec.nodeName={node}")):
        own = but is not None and (pod.namespace, pod.name) == (but.namespace, but.name)
        if own or status_of(pod).is_over:
            continue
        for container in pod.spec.containers:
            for resource, quantity in container.resources.limits.items():
                if "/" in resource:
                    held[resource] += _count(quantity)
        status = network_status.own_attached(pod.annotation(network_status.OWN_ANNOTATION) or "")
        cards += (one.card for one in status if one.card)
    return OtherPods(tuple(sorted(held.items())), tuple(cards))


def _count(quantity: object) -> int:
    try:
        return counted(quantity)
    except ValueError:
        return 0
