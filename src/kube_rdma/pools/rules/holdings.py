"""What the kubelet's view of the node means for the agent's: who holds what, where they differ.

agent asks the kubelet (adapters/kubelet/pod_resources) and these functions what follows.
The kubelet's word is the truth about who holds what; the agent's about what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import CardId
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Bind, Offer, Pool, PoolSpec, ShareId
from kube_rdma.pools.rules.modes import terms


def holders(holdings: Sequence[Holding]) -> dict[str, tuple[str, ...]]:
    """By resource the pods that hold shares of it, as namespace/name."""
    pods_by_resource: dict[str, dict[str, None]] = {}
    for held in holdings:
        if held.shares:
            pods_by_resource.setdefault(held.resource, {})[f"{held.namespace}/{held.pod}"] = None
    return {resource: tuple(pods) for resource, pods in pods_by_resource.items()}


def held_cards(
    holdings: Sequence[Holding], specs: Sequence[PoolSpec]
) -> dict[str, dict[CardId, tuple[str, ...]]]:
    """By resource the cards that pods hold, each with those pods."""
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
    """The pods that hold a card by any resource."""
    return tuple(dict.fromkeys(pod for cards in held.values() for pod in cards.get(card, ())))


def pods_with(holdings: Sequence[Holding], resources: Collection[str]) -> tuple[str, ...]:
    """The pods that hold shares of any of the resources."""
    by_resource = holders(holdings)
    return tuple(dict.fromkeys(pod for name in resources for pod in by_resource.get(name, ())))


def pooled(pools: Sequence[Pool]) -> dict[CardId, tuple[str, ...]]:
    """By card the resources of which each share stands for all cards of the pool."""
    resources: dict[CardId, tuple[str, ...]] = {}
    for pool in pools:
        for card in pool.cards if terms(pool.spec).bind is Bind.POOL else ():
            resources[card.id] = (*resources.get(card.id, ()), pool.spec.resource)
    return resources


def card_of(spec: PoolSpec, share: ShareId) -> CardId | None:
    """The card that a share id stands for; None where shares stand for the pool."""
    row = terms(spec)
    if row.bind is Bind.POOL:
        return None
    return CardId(share.rpartition("-")[0] if row.numbered else share)


def differs(offer: Offer, kubelet: Collection[ShareId]) -> str | None:
    """How the healthy shares that the kubelet knows differ from the offered ones, or None."""
    offered = {share.id for share in offer.shares if share.healthy}
    missing, strange = sorted(offered - set(kubelet)), sorted(set(kubelet) - offered)
    parts = []
    if missing:
        parts.append(f"it lacks {listed(missing)}")
    if strange:
        parts.append(f"it still has {listed(strange)}")
    return " and ".join(parts) or None
