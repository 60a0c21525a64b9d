"""Decides the answer to the admission check of a Workload: Ready, Retry, or none yet.

Where Kueue has chosen nodes, each node is judged for its pods. Elsewhere the nodes that the
assigned flavors and the nodeSelector choose are judged together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice

from kube_base.frozen import replace
from kube_base.plain_text import plain
from kube_rdma.lib.phrases import listed
from kube_rdma.model import queue as model
from kube_rdma.model.kubernetes import cut, moment
from kube_rdma.model.pools import Bind
from kube_rdma.model.reports import OLD_SECONDS, is_old
from kube_rdma.model.verify import Suspects

# Seconds until Kueue queues a Workload again. They double with each Retry, up to eight minutes:
# Kueue 0.17 evicts at their end, so the quota is held until then (pkg/controller/core).
FIRST_PAUSE, MOST_DOUBLINGS = 60, 3
MOST_PROBLEMS = 8  # that are looked for

_OWN = "rdma/"  # resources with this prefix are RDMA, whether a NodeReport offers them or not
_Place = tuple[str, tuple[str, ...]]
"""Nodes that are judged together, after their name for people; "" for a node that Kueue chose."""


def answer(workload: model.WaitingWorkload, world: model.RailsWorld) -> tuple[str, str] | None:
    """Return state and message for a Workload; None while one of its flavors is unknown."""
    asking = [(one, need) for one in workload.pods if (need := _demand(one, world)) is not None]
    needs, addresses = defaultdict[_Place, Counter[str]](Counter), Counter[str]()
    for pods, need in asking:
        if pods.hosts is None and not world.flavors.keys() >= {*pods.flavors}:
            return None
        for place, count in _places(pods, world):
            needs[place].update({name: each * count for name, each in need.items()})
        for pool in filter(None, map(world.networks.get, pods.networks)):
            addresses[pool] += pods.count
    spaces = (workload.namespace, world.namespace)
    suspects = {k: why for each in spaces for k, why in world.suspects.get(each, {}).items()}
    chosen = {node for words, nodes in needs if not words for node in nodes}
    lacks = (_lacks(place, needs[place], suspects, world) for place in sorted(needs))
    slow = (
        f"node {' towards node '.join(sorted(nodes))} {why}"
        for nodes, why in suspects.items()
        if len(nodes) > 1 and nodes <= chosen
    )
    short = (
        f"IPPool {pool} has {left} {family} addresses left for {count}"
        for pool, count in sorted(addresses.items())
        for family, left in world.pools.get(pool, {}).items()
        if left < count
    )
    if problems := [*islice(chain(*lacks, slow, short), MOST_PROBLEMS)]:
        return model.RETRY, cut(plain("; ".join(problems)))
    on = [f"on each of {len(chosen)} chosen nodes"] if chosen else []
    on += [f"on {words} together, of which Kueue has chosen none" for words, _ in needs if words]
    said = f"NodeReports show enough healthy shares {' and '.join(on)}"
    if any(pods.claims for pods, _ in asking):
        said += "; devices of claims are not counted"
    if asking and all(pods.measures for pods, _ in asking):
        said += "; its pods measure their rails before they start"
    return model.READY, cut(plain(said)) if asking else "No pod asks for RDMA"


def _demand(pods: model.WaitingPods, world: model.RailsWorld) -> Mapping[str, int] | None:
    """Return the RDMA resources that each of the pods asks for; None if they ask for no RDMA.

    Without any NodeReport each extended resource may be RDMA.
    """
    offers = world.offered
    need = {
        name: count
        for name, count in pods.resources.items()
        if name in offers or name.startswith(_OWN) or not offers
    }
    return need if need or pods.claims or pods.networks else None


def _places(pods: model.WaitingPods, world: model.RailsWorld) -> Iterator[tuple[_Place, int]]:
    """Yield the nodes that are judged together, and how many of the pods go there."""
    if pods.hosts is not None:
        for host, count in pods.hosts.items():
            yield ("", (world.hosts.get(host, host),)), count
        return
    every = (pods.selector, *map(world.flavors.__getitem__, pods.flavors))
    labels = {key: value for labels in every for key, value in labels.items()}
    words = f"the nodes of flavor {listed(pods.flavors)}" if pods.flavors else "the nodes"
    words += " with the job's nodeSelector" if pods.selector else ""
    chosen = (node for node, own in world.nodes.items() if labels.items() <= own.items())
    yield (words, tuple(chosen)), pods.count


def _lacks(
    place: _Place, need: Counter[str], suspects: Suspects, world: model.RailsWorld
) -> Iterator[str]:
    """Yield what the nodes lack together for these resources."""
    words, nodes = place
    troubles = {node: _trouble(node, need, suspects, world) for node in nodes}
    usable = [world.reports[node] for node, why in troubles.items() if not why]
    details = [f"node {node} {why}" for node, why in troubles.items() if why]
    if not usable:
        yield listed(details) or f"the cluster has none of {words}"
        return
    for resource, count in sorted(need.items()):
        pools = [pool for one in usable for pool in one.pools if pool.resource == resource]
        if (healthy := sum(pool.healthy for pool in pools)) < count:
            ill = [card for one in usable for card in one.ill if resource in card.resources]
            whys = listed([*(f"{card.name}: {card.reasons[0]}" for card in ill), *details])
            has = f"{healthy} healthy shares of {resource} are on {words or f'node {nodes[0]}'}"
            yield f"{has}, and the pods ask for {count}{whys and f': {whys}'}"


def _trouble(node: str, need: Counter[str], suspects: Suspects, world: model.RailsWorld) -> str:
    """Return why a node cannot be counted on for these resources; "" if it can."""
    report = world.reports.get(node)
    if report is None or is_old(report.age(world.now)):
        return f"has no NodeReport of the last {OLD_SECONDS / 60:.0f} minutes that can be read"
    whole = {pool.resource for pool in report.pools if pool.bind == Bind.POOL}
    for card in report.ill:
        if whole & need.keys() & {*card.resources}:
            return f"gives an ill card with each share: {card.name}: {card.reasons[0]}"
    return suspects.get(frozenset({node}), "")


def entries(
    checks: Iterable[model.CheckEntry], given: tuple[str, str], now: datetime
) -> tuple[model.CheckEntry, ...]:
    """Return the entries of kube-rdma's own checks in a Workload, pending ones with the answer.

    An entry that is left out of an apply loses the fields that were applied before. Kueue alone
    writes retryCount.
    """
    is_retry, made = given[0] == model.RETRY, []
    for one in checks:
        pause = FIRST_PAUSE << min(one.retry_count or 0, MOST_DOUBLINGS)
        new = model.CheckEntry(one.name, *given, moment(now), pause if is_retry else None)
        made.append(new if one.state == model.PENDING else replace(one, retry_count=None))
    return tuple(made)
