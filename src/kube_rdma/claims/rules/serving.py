"""Decides what device plugin and claims leave to each other: one of them serves a resource.

    label, document ─► PoolSpec.serve ─┬► for_plugin ─► list of the device plugin
    kubelet ─ who holds shares ────────┤
    journal ─ what claims hold ────────┴► for_claims ─► devices of slices

A pool goes from one to the other while pods run. To claims: the plugin's list is empty first,
then the Node object shows 0, then the slices have what older pods do not hold. Back: the slices
lose the pool first, then the list has what claims do not hold. The scheduler uses
claims where a node's allocatable is 0 (kubernetes@v1.36.3 pkg/scheduler/framework/plugins/
dynamicresources/extendeddynamicresources.go, filterExtendedResources); docs/decisions/0107.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.claims.rules.shape import ClaimOffer, RailOf, claim_offer, device_name
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import PreparedClaim
from kube_rdma.model.claims.devices import OfferedCard
from kube_rdma.model.holdings import Holding
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.late_binding import HeldShare
from kube_rdma.model.pools import Bind, Pool, Serving, Share, ShareId
from kube_rdma.pools.rules.holdings import card_of
from kube_rdma.pools.rules.modes import terms

PluginShares = Mapping[str, Collection[ShareId]]
"""The shares that pods hold by the device plugin, by resource."""

Holders = Mapping[HeldShare, str]
"""The holders of shares by the device plugin, in words."""


def plugin_shares(
    holdings: Sequence[Holding] | None, booked: Iterable[PreparedClaim]
) -> PluginShares | None:
    """Return the shares that pods hold by the device plugin; None when that is unknown.

    `holdings` has shares that are held by claims too; the ones of `booked` are taken out.
    """
    if holdings is None:
        return None
    own = {(share.resource, share.share) for claim in booked for share in claim.shares}
    shares: dict[str, set[ShareId]] = {}
    for held in holdings:
        mine = {share for share in held.shares if (held.resource, share) not in own}
        shares.setdefault(held.resource, set()).update(mine)
    return shares


def for_claims(pools: Iterable[Pool], held: PluginShares, rail: RailOf) -> ClaimOffer:
    """Return the cards to offer to claims, without what pods hold by the device plugin.

    A card is left out while such pods hold all of its slots.
    """
    served = [pool for pool in pools if pool.spec.serve is not Serving.PLUGIN]
    offer = claim_offer(served, rail)
    taken: Counter[str] = Counter()
    resources: dict[str, str] = {}
    for pool in served:
        spec = pool.spec
        if spec.serve is not Serving.CLAIMS:
            continue
        shares = [card_of(spec, share) for share in held.get(spec.resource, ())]
        whole = terms(spec).bind is Bind.POOL
        for card in (None,) if whole else pool.cards:
            name = device_name(pool, card)
            resources.setdefault(name, spec.resource)
            taken[name] += shares.count(card.id if card else None)
    left = (replace(card, slots=card.slots - taken[card.name]) for card in offer.cards)
    return ClaimOffer(tuple(card for card in left if card.slots > 0), offer.refusals, resources)


def ready(offer: ClaimOffer, node: NodeState) -> tuple[OfferedCard, ...]:
    """Return the cards of an offer, without cards whose resource the Node still has allocatable.

    While it has some, a pod may come for a share that the kubelet is about to give.
    """
    counted = {resource for resource, count in node.allocatable if count}
    return tuple(card for card in offer.cards if offer.resources.get(card.name) not in counted)


def for_plugin(
    pools: Iterable[Pool],
    booked: Sequence[PreparedClaim],
    held: PluginShares | None,
    published: Collection[str] | None,
) -> tuple[Pool, ...]:
    """Return the pools to offer by the device plugin.

    `published` are the resources of devices in slices, None when nobody can tell. A pool of the
    plugin stays with the claims while it has, or may have, devices in slices. So does a pool that
    claims hold something of while `held` is unknown. In each other pool as many free shares as
    claims hold are listed as unhealthy.
    """
    served: list[Pool] = []
    for pool in pools:
        spec, claimed = pool.spec, _claimed(pool, booked)
        is_published = published is None or spec.resource in published
        if spec.serve is not Serving.PLUGIN or not (is_published or claimed):
            served.append(pool)
            continue
        if is_published or held is None:
            served.append(replace(pool, spec=replace(spec, serve=Serving.CLAIMS)))
            continue
        mine = held.get(spec.resource, ())
        shares: list[Share] = []
        for share in reversed(pool.shares):
            withheld = claimed[share.card] > 0 and share.id not in mine
            if withheld:
                claimed[share.card] -= 1
            shares.append(replace(share, healthy=False) if withheld else share)
        served.append(replace(pool, shares=tuple(reversed(shares))))
    return tuple(served)


def waiting(pools: Iterable[Pool], served: Iterable[Pool], booked: Sequence[PreparedClaim]) -> bool:
    """Return whether a pool lacks shares that may come back without an event."""
    claimed = {share.resource for claim in booked for share in claim.shares}
    return any(
        wanted.spec.serve is Serving.PLUGIN
        and (pool.spec.serve is not Serving.PLUGIN or wanted.spec.resource in claimed)
        for wanted, pool in zip(pools, served, strict=True)
    )


def refuse_claimed(
    pool: Pool, wanted: Collection[ShareId], booked: Sequence[PreparedClaim], held: Holders
) -> None:
    """Raise Refused if claims and pods leave too few shares of a card for the wanted ones.

    `held` are the shares that pods have by the device plugin; a wanted one among them is not
    refused. The plugin's list withholds claimed shares, but a claim may be quicker than the list.
    """
    if pool.spec.serve is not Serving.PLUGIN:
        return
    resource = pool.spec.resource
    claimed = _claimed(pool, booked)
    fresh = [pool.index[n].card for n in wanted if n in pool.index and (resource, n) not in held]
    for card in dict.fromkeys(fresh):
        own = [share.id for share in pool.shares if share.card == card]
        others = sum((resource, name) in held for name in own)
        if claimed[card] and others + claimed[card] + fresh.count(card) > len(own):
            names = sorted(
                str(claim.claim)
                for claim in booked
                if any(share.resource == resource and not share.admin for share in claim.shares)
            )
            raise Refused(
                f"{claimed[card]} of the {len(own)} shares of {card or 'the pool'} are held by "
                f"claims ({listed(names)}), and {others} by pods",
                remedy="Create the pod again when the pods of these claims have ended",
                where=resource,
            )


def _claimed(pool: Pool, booked: Sequence[PreparedClaim]) -> Counter[CardId | None]:
    """Return how many slots of each card claims hold; a whole pool's are under None."""
    whole = terms(pool.spec).bind is Bind.POOL
    claimed: Counter[CardId | None] = Counter()
    for claim in booked:
        for share in claim.shares:
            if share.resource == pool.spec.resource and not share.admin:
                for card in (None,) if whole else share.cards:
                    claimed[card] += share.slots
    return claimed
