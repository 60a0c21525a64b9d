"""Answers the kubelet's GetPreferredAllocation: which of the free shares a container should get.

The kubelet asks before Allocate, for the shares of the NUMA nodes that its topology manager has
chosen, or for all of them. It takes of the answer what is among those it named and fills up at
random (devicesToAllocate in pkg/kubelet/cm/devicemanager/manager.go). So an answer is complete or a
refusal.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.holdings import FreeGpu
from kube_rdma.model.pools import Pool, Preference, Share, ShareId
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.nearness import rank, way
from kube_rdma.pools.rules.rails import physical


class _Rail(Frozen):
    """The shares on one physical card, its virtual functions included."""

    used: int  # shares of it that other containers have
    took: int  # shares of it that this container has in any case
    free: tuple[ShareId, ...]  # in the order in which to give them
    rank: int  # of the way to the nearest free GPU
    gpus: int  # how many free GPUs are that near


def prefer(
    pool: Pool,
    available: Sequence[ShareId],
    must: Sequence[ShareId],
    size: int,
    gpus: Sequence[FreeGpu] = (),
) -> tuple[ShareId, ...]:
    """Return the preferred `size` of the available shares, those of `must` first.

    `must` are available shares that have to be among them (must_include_deviceIDs). Every policy
    but PACK takes a share of each physical card before the second one of any. A share of the pool
    that is not available counts as in use. One that is unhealthy or not of the pool is given only
    as a must. `gpus` are the free GPUs; without any, NUMA works as LEAST_LOADED. Raise Refused for
    a request that no choice of shares can meet.
    """
    free, held = set(available), tuple(dict.fromkeys(must))
    _check(pool, free, held, size)
    rails = _rails(pool, free, set(held), gpus)
    if size > len(held) + sum(len(rail.free) for rail in rails):
        problem = f"{size} shares are asked for, but of the available ones too few are healthy"
        raise _refused(pool, problem, "Repair a card, then create the pod again")
    policy = terms(pool.spec).prefer
    # Only the rail that has just given a share changes its place, so a heap keeps them in order.
    heap = [(_key(policy, rail, 0), place, 0) for place, rail in enumerate(rails) if rail.free]
    heapq.heapify(heap)
    chosen = list(held)
    while len(chosen) < size:
        _, place, given = heapq.heappop(heap)
        rail = rails[place]
        chosen.append(rail.free[given])
        if given + 1 < len(rail.free):
            heapq.heappush(heap, (_key(policy, rail, given + 1), place, given + 1))
    return tuple(chosen)


def _key(policy: Preference, rail: _Rail, given: int) -> tuple[int, ...]:
    """Return the key that sorts rails by a policy; `given` counts its shares chosen so far."""
    took = rail.took + given
    load = rail.used + took
    if policy is Preference.PACK:
        return (-load,)
    if policy is Preference.SPREAD:
        return (took, rail.used)
    if policy is Preference.LEAST_LOADED:
        return (min(took, 1), load)
    return (min(took, 1), rail.rank, load, -rail.gpus)


def _rails(
    pool: Pool, free: Collection[ShareId], held: Collection[ShareId], gpus: Sequence[FreeGpu]
) -> tuple[_Rail, ...]:
    """Group the pool's shares by physical card, in the order of their first shares."""
    packs = terms(pool.spec).prefer is Preference.PACK
    cards: dict[CardId | None, Card] = {card.id: card for card in pool.cards}
    used = Counter(share.card for share in pool.shares if share.id not in free)
    took = Counter(share.card for share in pool.shares if share.id in held)
    groups: dict[str | None, list[Share]] = {}
    for share in pool.shares:
        card = cards.get(share.card)  # None where shares stand for the pool
        groups.setdefault(physical(card) if card else None, []).append(share)
    rails = []
    for group in groups.values():
        names = dict.fromkeys(share.card for share in group)
        card = cards.get(group[0].card)
        ranks = [rank(way(card, gpu.numa_nodes, gpu.position)) for gpu in gpus] if card else []
        can = [s for s in group if s.healthy and s.id in free and s.id not in held]
        nearest = min(ranks, default=0)
        others, its = (sum(counts[name] for name in names) for counts in (used, took))
        order = _in_order(can, used + took, packs=packs)
        rails.append(_Rail(others, its, order, nearest, ranks.count(nearest)))
    return tuple(rails)


def _in_order(
    shares: Sequence[Share], load: Mapping[CardId | None, int], *, packs: bool
) -> tuple[ShareId, ...]:
    """Return the free shares of one rail in order: card after card, or from each card in turn."""
    turn: Counter[CardId | None] = Counter()
    keyed = []
    for share in shares:
        keyed.append((-load[share.card] if packs else load[share.card] + turn[share.card], share))
        turn[share.card] += 1
    return tuple(share.id for _, share in sorted(keyed, key=lambda one: one[0]))


def _check(pool: Pool, free: Collection[ShareId], held: Sequence[ShareId], size: int) -> None:
    """Raise Refused for a request that no choice of shares can meet."""
    strange = [name for name in held if name not in free]
    if strange:
        problem = f"{listed(strange)} must be given but is not among the {len(free)} available"
        raise _refused(pool, problem, "Name it among the available shares too")
    if size < len(held):
        problem = f"{len(held)} shares must be given but only {size} are asked for"
        raise _refused(pool, problem, f"Ask for at least {len(held)}")
    if size > len(free):
        problem = f"{size} shares are asked for and {len(free)} are available"
        remedy = f"Ask for at most {len(free)}" if free else "Wait until a pod ends"
        raise _refused(pool, problem, remedy)


def _refused(pool: Pool, problem: str, remedy: str) -> Refused:
    return Refused(problem, remedy=remedy, where=pool.spec.resource)
