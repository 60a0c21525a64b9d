"""The series of what the agent offers: resources with their shares, and cards with their health."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kube_rdma.metrics.rules import families
from kube_rdma.model.card import CardId
from kube_rdma.model.metrics.families import MetricSeries
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Pool
from kube_rdma.pools.rules.health.damping import HealthChange
from kube_rdma.pools.rules.pools import offer

HealthCounts = Mapping[tuple[CardId, bool], int]
"""By card how often it became healthy (True) and unhealthy."""


def resource_series(
    pools: Mapping[str, Pool], holdings: Sequence[Holding] | None
) -> Iterator[MetricSeries]:
    """Shares and cards of each resource; without `holdings` nobody knows which are in use."""
    for resource, pool in pools.items():
        shares = offer(pool).shares
        healthy = sum(share.healthy for share in shares)
        yield MetricSeries(families.SHARES, (resource,), len(shares))
        yield MetricSeries(families.HEALTHY_SHARES, (resource,), healthy)
        if holdings is not None:
            held = (one.shares for one in holdings if one.resource == resource)
            yield MetricSeries(families.USED_SHARES, (resource,), len(set().union(*held)))
        for card in pool.cards:
            yield MetricSeries(families.CARD_HEALTHY, (card.id, card.name, resource), card.usable)
            for device in card.devices:
                yield MetricSeries(families.POOL_DEVICE, (resource, card.id, device.name), 1)


def counted(
    counts: HealthCounts, changes: Sequence[HealthChange], before: Collection[CardId]
) -> HealthCounts:
    """The counts after these changes; `before` are the cards that had been seen.

    The first sight of a card is no change of its health.
    """
    after = dict(counts)
    for change in changes:
        if change.card in before:
            after.setdefault((change.card, not change.healthy), 0)
            after[change.card, change.healthy] = after.get((change.card, change.healthy), 0) + 1
    return after


def still(counts: HealthCounts, cards: Collection[CardId]) -> HealthCounts:
    """The counts of cards that are remembered; a series ends with its card."""
    return {key: count for key, count in counts.items() if key[0] in cards}


def health_series(counts: HealthCounts) -> Iterator[MetricSeries]:
    """How often cards became healthy and unhealthy."""
    for (card, healthy), count in counts.items():
        yield MetricSeries(families.HEALTH_CHANGES, (card, str(healthy).lower()), count)
