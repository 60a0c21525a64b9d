"""How evenly claims of shares spread over the cards of a node, by how these are published.

    pods of a load ─► the allocator of Kubernetes, with the slices that it sees ─► shares of cards
    shares taken ─► the agent, as soon as it knows ─► another order of devices, as soon as it may

The allocator is the scheduler's own (tests/lab/native/allocator around k8s.io/dynamic-resource-
allocation); it takes the first device that fits. Time is computed, and nothing waits: a run of the
same seed gives the same figures on any machine. Devices are made by the rules of the agent.
"""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure
from bench.standin import card
from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE, wanted_slice
from kube_rdma.claims.rules.publication import PoolSite, pool_slices
from kube_rdma.claims.rules.shape import Slices, claim_offer, slices
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.devices import DRIVER, ClaimFeature, OfferedCard
from kube_rdma.model.pools import Mode, Pool, PoolSpec
from kube_rdma_tools.allocator import Allocator, running

NODE, CLASS = "node-1", "rdma-shared"
CARDS = 8
BURST, CHURN = 64, 1000  # pods
PODS_PER_SECOND = 50.0  # the scheduler's pace
ARRIVALS_PER_SECOND = 10.0  # of the churn, by chance
ALIVE = 50  # pods of the churn in the mean
SEED = 28

Loads = Mapping[str, int]  # shares taken, by the card's device
Shape = Callable[[Sequence[OfferedCard], Loads], Slices]


@dataclass(frozen=True, slots=True)
class Lag:
    """How late slices follow, in seconds: until the agent knows, and at least between writes."""

    heard: float = 0.0
    spacing: float = 0.0


@dataclass(frozen=True, slots=True)
class Way:
    """How shares are published: what the slices are by the load of the cards, and how late."""

    name: str
    shape: Shape
    lag: Lag = Lag()


@dataclass(frozen=True, slots=True)
class Pod:
    """When a pod comes, and how long it stays once it has its share."""

    arrives: float
    stays: float


@dataclass(slots=True)
class Outcome:
    """What came of a load: most less fewest shares of a card at each moment, and the writes."""

    spreads: list[int] = field(default_factory=list)
    writes: int = 0
    waiting: int = 0  # pods that found no device

    def figures(self, key: str, goal: str, note: str) -> Iterator[Figure]:
        """What is shown of it; `note` begins the note."""
        uneven = sum(spread > 1 for spread in self.spreads) / len(self.spreads)
        mean = sum(self.spreads) / len(self.spreads)
        note += f"{mean:.1f} in the mean, above 1 in {uneven:.0%} of the moments"
        if self.waiting:
            note += f"; {self.waiting} pods found no device"
        yield Figure(f"{key}_max", max(self.spreads), "", goal, note)
        yield Figure(f"{key}_writes", self.writes, "")


def burst() -> list[Pod]:
    """Pods that come at once and stay."""
    return [Pod(0.0, float("inf"))] * BURST


def churn(pods: int, alive: float) -> list[Pod]:
    """Pods that come and go by chance; so many are there in the mean."""
    dice = random.Random(SEED)  # noqa: S311  no secret hangs on it
    made, now = [], 0.0
    for _ in range(pods):
        now += dice.expovariate(ARRIVALS_PER_SECOND)
        made.append(Pod(now, dice.expovariate(ARRIVALS_PER_SECOND / alive)))
    return made


def offered(slots: int) -> tuple[OfferedCard, ...]:
    """The cards of a node, for so many pods each."""
    return claim_offer([offered_pool(slots)]).cards


def offered_pool(slots: int) -> Pool:
    """The same as a pool."""
    spec = PoolSpec("rdma/hca", Mode.SHARED_MULTI, "bench", shares=slots)
    cards = tuple(Card(CardId(str(one.pci)), (one,), None) for one in map(card, range(CARDS)))
    return Pool(spec, (), cards)


def in_order(cards: Sequence[OfferedCard], _: Loads) -> Slices:
    """A device for each card, always in the same order."""
    return (tuple(device for one in cards for device in slices([one], {})[0]),)


def by_load(cards: Sequence[OfferedCard], loads: Loads) -> Slices:
    """The same, the card with the fewest shares taken first."""
    return in_order(sorted(cards, key=lambda one: loads[one.name]), loads)


def by_slots(cards: Sequence[OfferedCard], _: Loads) -> Slices:
    """A device for each share, card by card."""
    return slices(cards, {}, {ClaimFeature.CONSUMABLE_CAPACITY, ClaimFeature.DEVICE_TAINTS})


def in_rows(cards: Sequence[OfferedCard], _: Loads) -> Slices:
    """What the agent publishes."""
    return slices(cards, {})


WAYS = (
    Way("in_order", in_order),
    Way("by_load_at_once", by_load),
    Way("by_load_100ms", by_load, Lag(spacing=0.1)),
    Way("by_load_heard_200ms", by_load, Lag(heard=0.2, spacing=0.1)),
    Way("slots", by_slots),
    Way("rows", in_rows),
)


def measure(program: Path, *, short: bool) -> Iterator[Figure]:
    """Each way with each load; a way of 64 shares of a card where it differs from 16."""
    loads = {"burst": burst(), "churn": churn(20 if short else CHURN, ALIVE)}
    with running(program) as scheduler:
        for shares in (16, 64):
            cards = offered(shares)
            for load, pods in loads.items():
                for way in WAYS:
                    outcome = run(scheduler, cards, way.shape, way.lag, pods)
                    devices = sum(map(len, way.shape(cards, dict.fromkeys(_names(cards), 0))))
                    goal = "1" if way.name == "rows" else ""
                    key = f"{load}_{shares}_{way.name}"
                    yield from outcome.figures(key, goal, f"{devices} devices; ")


def _names(cards: Iterable[OfferedCard]) -> list[str]:
    return [one.name for one in cards]


def allocated(scheduler: Allocator, published: str, held: Iterable[str]) -> dict[str, Any] | None:
    """The device of a claim for one share; both are JSON."""
    parts = (*_HEAD, '"slices":', published, ',"claims":[', ",".join(held), "]}\n")
    return next(iter(scheduler.results("".join(parts), NODE)), None)


class _Agent:
    """Publishes the slices, and by its shape anew after shares were taken or given back."""

    def __init__(self, cards: Sequence[OfferedCard], shape: Shape, lag: Lag) -> None:
        self._cards, self._shape, self._lag = cards, shape, lag
        self._loads: Counter[str] = Counter({one.name: 0 for one in cards})
        self._due: float | None = None
        self._last = float("-inf")
        self.writes = 0
        self._shown = shape(cards, self._loads)
        self.slices = slices_text(self._shown)

    def hears(self, name: str, change: int, now: float) -> None:
        """Know of a change; what follows is written as soon as it may be."""
        self._loads[name] += change
        if self._due is None:
            self._due = max(now, self._last + self._lag.spacing)

    def until(self, now: float) -> None:
        """Write what is due by now."""
        if self._due is None or self._due > now:
            return
        wanted = self._shape(self._cards, self._loads)
        if wanted != self._shown:
            self.writes += 1
            self._shown, self.slices, self._last = wanted, slices_text(wanted), self._due
        self._due = None


ARRIVES, ENDS, HEARD = range(3)


def run(
    scheduler: Allocator, cards: Sequence[OfferedCard], shape: Shape, lag: Lag, pods: Sequence[Pod]
) -> Outcome:
    """Let the pods come and go."""
    agent = _Agent(cards, shape, lag)
    outcome, held = Outcome(), dict[int, str]()
    loads = Counter({one.name: 0 for one in cards})
    events: list[tuple[float, int, int, Any]] = []
    numbers = count()

    def later(when: float, kind: int, what: object) -> None:
        heapq.heappush(events, (when, next(numbers), kind, what))

    def changed(name: str, change: int, now: float) -> None:
        loads[name] += change
        outcome.spreads.append(max(loads.values()) - min(loads.values()))
        later(now + lag.heard, HEARD, (name, change))

    free = 0.0
    for number, pod in enumerate(pods):
        free = max(free, pod.arrives)
        later(free, ARRIVES, number)
        free += 1 / PODS_PER_SECOND
    while events:
        now, _, kind, what = heapq.heappop(events)
        agent.until(now)
        if kind == HEARD:
            card_name, change = what
            agent.hears(card_name, change, now)
            agent.until(now)
        elif kind == ENDS:
            number, name = what
            del held[number]
            changed(name, -1, now)
        else:
            result = allocated(scheduler, agent.slices, held.values())
            if result is None:
                outcome.waiting += 1
                continue
            name = next(one for one in loads if result["device"].startswith(one))
            held[what] = json.dumps(_claim(f"pod-{what}", result))
            changed(name, 1, now)
            if pods[what].stays < float("inf"):
                later(now + pods[what].stays, ENDS, (what, name))
    agent.until(float("inf"))
    outcome.writes = agent.writes
    return outcome


def slices_text(devices: Slices, node: str = NODE, owner: str = "uid", driver: str = DRIVER) -> str:
    """The slices of a node as JSON; `owner` is the uid of its object."""
    parts = (
        replace(part, spec=replace(part.spec, driver=driver))
        for part in pool_slices(PoolSite(node, owner), 1, devices)
    )
    texts = (wire.document(RESOURCE_SLICE, wanted_slice(part)) for part in parts)
    return f"[{','.join(text.decode() for text in texts)}]"


def _claim(name: str, result: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A claim for one share, and what it has."""
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
    claim: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}},
    }
    if result:
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
    return claim


def _head() -> Iterator[str]:
    """What is the same of all worlds."""
    expression = f'device.driver == "{DRIVER}"'
    device_class = {
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    same = {
        "nodes": [{"metadata": {"name": NODE}}],
        "classes": [device_class],
        "claim": _claim("wanted"),
    }
    yield msgspec.json.encode(same).decode().removesuffix("}") + ","


_HEAD = tuple(_head())
