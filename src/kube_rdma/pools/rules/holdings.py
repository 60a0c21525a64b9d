"""Reads what the kubelet reports: who holds what, where its list differs, when a node has started.

pools/kubelet_view asks the kubelet and calls these functions. The kubelet decides who holds what,
the agent what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import CardId
from kube_rdma.model.holdings import Holding, NodeHoldings, RecordedGrant
from kube_rdma.model.kubernetes import NodeState, PodState
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import Bind, Offer, Pool, PoolSpec, ShareId
from kube_rdma.pools.rules.modes import terms


def holders(holdings: Sequence[Holding]) -> dict[str, tuple[str, ...]]:
    """Return by resource the pods that hold shares of it, as namespace/name."""
    pods_by_resource: dict[str, dict[str, None]] = {}
    for held in holdings:
        if held.shares:
            pods_by_resource.setdefault(held.resource, {})[f"{held.namespace}/{held.pod}"] = None
    return {resource: tuple(pods) for resource, pods in pods_by_resource.items()}


def held_cards(
    holdings: Sequence[Holding], specs: Sequence[PoolSpec]
) -> dict[str, dict[CardId, tuple[str, ...]]]:
    """Return by resource the cards that pods hold, each with its pods."""
    by_resource = {spec.resource: spec for spec in specs}
    cards_by_resource: dict[str, dict[CardId, tuple[str, ...]]] = {}
    for held in holdings:
        spec = by_resource.get(held.resource)
        for share in held.shares if spec else ():
            card = card_of(spec, share) if spec else None
            if card:
                cards = cards_by_resource.setdefault(held.resource, {})
                pod = f"{held.namespace}/{held.pod}"
                cards[card] = tuple(dict.fromkeys((*cards.get(card, ()), pod)))
    return cards_by_resource


def pods_of(held: Mapping[str, Mapping[CardId, tuple[str, ...]]], card: CardId) -> tuple[str, ...]:
    """Return the pods that hold a card by shares of any resource."""
    return tuple(dict.fromkeys(pod for cards in held.values() for pod in cards.get(card, ())))


def pods_with(holdings: Sequence[Holding], resources: Collection[str]) -> tuple[str, ...]:
    """Return the pods that hold shares of any of the resources."""
    by_resource = holders(holdings)
    return tuple(dict.fromkeys(pod for name in resources for pod in by_resource.get(name, ())))


def pooled(pools: Sequence[Pool]) -> dict[CardId, tuple[str, ...]]:
    """Return by card the resources of pools whose shares stand for all of their cards."""
    resources: dict[CardId, tuple[str, ...]] = {}
    for pool in pools:
        for card in pool.cards if terms(pool.spec).bind is Bind.POOL else ():
            resources[card.id] = (*resources.get(card.id, ()), pool.spec.resource)
    return resources


def card_of(spec: PoolSpec, share: ShareId) -> CardId | None:
    """Return the card that a share id refers to; None where shares stand for the pool."""
    row = terms(spec)
    if row.bind is Bind.POOL:
        return None
    return CardId(share.rpartition("-")[0] if row.numbered else share)


def differs(offer: Offer, kubelet: Collection[ShareId]) -> str | None:
    """Say how the kubelet's healthy shares differ from the offered ones; None if they do not."""
    offered = {share.id for share in offer.shares if share.healthy}
    missing, strange = sorted(offered - set(kubelet)), sorted(set(kubelet) - offered)
    parts = []
    if missing:
        parts.append(f"it lacks {listed(missing)}")
    if strange:
        parts.append(f"it still has {listed(strange)}")
    return " and ".join(parts) or None


# Shares that pods hold and the kubelet does not report just now, though it answers.

Named = Mapping[str, PodName]
"""Pods by the uid that kubelet and runtime know."""


def unreported(
    recorded: Iterable[RecordedGrant], answer: NodeHoldings, named: Named
) -> tuple[RecordedGrant, ...]:
    """Return the recorded grants that the answer lacks, of pods that it does not name.

    Pods whose names are unknown count as not named. A pod that the answer names holds exactly the
    shares of the answer.
    """
    held = {(one.resource, share) for one in answer.shares for share in one.shares}
    pods = set(answer.pods)
    return tuple(
        grant
        for grant in recorded
        if named.get(grant.uid) not in pods
        and any((grant.resource, share) not in held for share in grant.shares)
    )


def running(pods: Iterable[PodState]) -> dict[str, PodName]:
    """Return the names of the node's pods that have not ended, by the uid that the kubelet uses."""
    return {pod.runtime_uid: PodName(pod.namespace, pod.name) for pod in pods if not pod.is_over}


def completed(
    answer: NodeHoldings, lacking: Sequence[RecordedGrant], named: Named
) -> tuple[Holding, ...]:
    """Return the kubelet's answer with the lacking grants of running pods, which `named` lists.

    A share belongs to the pod that the answer names: the recorded grant of another one is older.
    """
    held = {(one.resource, share) for one in answer.shares for share in one.shares}
    pods = set(answer.pods)
    more = []
    for grant in lacking:
        pod = named.get(grant.uid)
        shares = tuple(share for share in grant.shares if (grant.resource, share) not in held)
        if pod and pod not in pods and shares:
            name = (pod.namespace, pod.name, grant.container, grant.resource)
            more.append(Holding(*name, shares))
    return (*answer.shares, *sorted(more, key=lambda one: (one.namespace, one.pod, one.container)))


# The startup taint: a node has started when its RDMA resources are allocatable.

EFFECT = "NoSchedule"
STARTING = "kube-rdma.io/starting"
STARTING_FOR_AUTOSCALER = "startup-taint.cluster-autoscaler.kubernetes.io/kube-rdma"
"""With this prefix the cluster-autoscaler counts a node as one that still starts, where any other
taint makes it add a further node: kubernetes/autoscaler@cluster-autoscaler-1.29.0
cluster-autoscaler/utils/taints/taints.go, StartupTaintPrefix."""

KEYS = (STARTING, STARTING_FOR_AUTOSCALER)  # an administrator writes one of them, with any value


def starting(node: NodeState) -> tuple[str, ...]:
    """Return the keys of the startup taints that the Node has now."""
    return tuple(key for key in KEYS if (key, EFFECT) in {(t.key, t.effect) for t in node.taints})


def shows(node: NodeState, offered: Mapping[str, int]) -> bool:
    """Decide whether the Node's allocatable has the offered number of healthy shares.

    The scheduler counts with allocatable, which the kubelet writes from the lists it received.
    """
    allocatable = dict(node.allocatable)
    return all(allocatable.get(resource, 0) == count for resource, count in offered.items())
