"""Claim templates for people: what they want, as Kubernetes' fields say it.

`kube-rdma claim` prints what is made here. Kubernetes compares attributes of devices: those at one
PCIe root, or of one NUMA node, are near each other. Where a board cannot match them, a list of
subrequests has the next best behind (firstAvailable). A device without a compared attribute matches
nothing (matchAttributeConstraint, k8s.io/dynamic-resource-allocation@v0.36.3
structured/internal/stable/allocator_stable.go), and a GPU of a virtual machine often has no NUMA
node: a claim that takes any card has a subrequest for such a GPU too.

Requests are met in their order, and the first devices that fit are taken (allocateOne of the same
file). So a card stands before its GPU: all GPUs are tried at its root before its next subrequest.
A GPU stands before a share of its own: a node has many shares and few GPUs, and a search that lacks
a GPU tries all shares for nothing (docs/decisions/0119). The devices are as near either way.
Where a claim has fewer cards than GPUs, those that are left come last, each as near as can be to
the GPU that has their card. The card itself may lack what is compared (docs/decisions/0117).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.model.claims.claim import CARD_CLASS, SHARED_CLASS, ClaimWish, Reach
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.install import Json

MOST_DEVICES = 32
"""Devices of a claim: AllocationResultsMaxSize, k8s.io/api@v0.36.3 resource/v1/types.go."""
MOST_CONSTRAINTS = 32
"""DeviceConstraintsMaxSize of the same file."""

OLDEST = 34
"""The minor version that serves resource.k8s.io/v1."""
DISTINCT = 36
"""The minor version with DRAConsumableCapacity on: distinctAttribute, and capacities of shares
(kubernetes@v1.36.3 pkg/features/kube_features.go)."""

SLOW = 4
"""GPUs of a claim from which on a search that lacks one takes seconds."""

_STANDARD = "resource.kubernetes.io"
_ROOT, _NUMA = "same-root", "same-numa-node"
_ANY = "any"
_KNOWN, _UNKNOWN = "numa-known", "numa-unknown"
_HAS_NUMA = f'"numaNode" in device.attributes["{_STANDARD}"]'


class _NamedRequest(Frozen):
    """A request of the claim with its name."""

    name: str
    fields: Json


def check_wish(wish: ClaimWish) -> None:
    """Raise Refused with all that Kubernetes of this version cannot say, or nobody can mean."""
    faults = [
        Refused(problem, remedy=remedy, where=option)
        for option, problem, remedy in (*_unmeant(wish), *_unsaid(wish))
    ]
    if faults:
        raise Refused.all(faults)


def claim_objects(wish: ClaimWish) -> tuple[Json, Json]:
    """The ResourceClaimTemplate, and a pod with all that it needs of it; raise as check_wish."""
    check_wish(wish)
    devices: Json = {"requests": [{"name": one.name, **one.fields} for one in _parts(wish)]}
    if constraints := list(_constraints(wish)):
        devices["constraints"] = constraints
    if wish.network:
        parameters = {
            "apiVersion": "kube-rdma.io/v1alpha1",
            "kind": "ClaimParameters",
            "network": wish.network,
        }
        opaque = {"driver": DRIVER, "parameters": parameters}
        devices["config"] = [{"requests": list(_card_names(wish)), "opaque": opaque}]
    template: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": wish.name},
        "spec": {"spec": {"devices": devices}},
    }
    container = {
        "name": "main",
        "image": "your-image",
        "resources": {"claims": [{"name": wish.name}]},
    }
    claims = [{"name": wish.name, "resourceClaimTemplateName": wish.name}]
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": wish.name},
        "spec": {"resourceClaims": claims, "containers": [container]},
    }
    return template, pod


def is_long_search(wish: ClaimWish) -> bool:
    """Whether a node that lacks a device may cost the scheduler its limit of 10 s.

    As measured: each choice of a near device multiplies the ways that are tried, whatever the order
    of the requests (docs/decisions/0119).
    """
    return wish.reach in (Reach.ANY, Reach.NUMA_NODE) and wish.gpus >= SLOW


def _unmeant(wish: ClaimWish) -> Iterator[tuple[str, str, str]]:
    """Options that contradict each other: the option, the problem, the remedy."""
    if wish.rails is not None and wish.cards is not None:
        problem = "it says how many cards the claim has, and so does --cards"
        yield "--rails", problem, "Leave out one of the two"
    if wish.reach is not None and not wish.gpus:
        yield "--near", "no GPU is asked for that a card could be near to", "Add --gpus 1"
    if wish.gpus + _cards(wish) > MOST_DEVICES:
        problem = f"these are {wish.gpus + _cards(wish)} devices, and a claim has {MOST_DEVICES}"
        yield "--gpus" if wish.gpus else "--cards", problem, "Ask for fewer, or write two templates"
    elif (count := len(list(_constraints(wish)))) > MOST_CONSTRAINTS:
        problem = f"these are {count} constraints, and a claim has {MOST_CONSTRAINTS}"
        yield "--near", problem, "Add --within root, or ask for fewer cards or GPUs"


def _unsaid(wish: ClaimWish) -> Iterator[tuple[str, str, str]]:
    """What this version of Kubernetes cannot say."""
    version = f"Kubernetes 1.{wish.minor}"
    if wish.minor < OLDEST:
        problem = f"{version} has no resource.k8s.io/v1, which comes with 1.{OLDEST}"
        yield "--kubernetes-version", problem, f"Ask for shares in limits, or write for 1.{OLDEST}"
    if wish.minor >= DISTINCT:
        return
    newer = f"write for 1.{DISTINCT} or newer"
    if wish.rails is not None and wish.rails > 1:
        problem = f"{version} cannot keep cards of a claim on different rails"
        yield "--rails", problem, f"Use --cards {wish.rails}, or {newer}"
    if wish.shared and _cards(wish) > 1:
        problem = f"{version} cannot keep two shares of a claim off one card"
        yield "--shared", problem, f"Ask for one card, or {newer}"
    if wish.shared and wish.gbps is not None:
        problem = f"{version} does not count the bandwidth of shares"
        yield "--bandwidth", problem, f"Leave it out, or {newer}"


def _cards(wish: ClaimWish) -> int:
    if wish.rails is not None:
        return wish.rails
    if wish.cards is not None:
        return wish.cards
    return wish.gpus if wish.reach else 1


def _named(name: str, count: int) -> Sequence[str]:
    """Names of single requests: ``card``, or ``card-0``, ``card-1`` …"""
    return (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(count))


def _card_names(wish: ClaimWish) -> Sequence[str]:
    return _named("card", _cards(wish)) if wish.reach else ("card",)


def _pairs(wish: ClaimWish) -> Iterator[tuple[str, str]]:
    """The GPU that each card is near to: cards are dealt out evenly, in the order of the GPUs."""
    gpus, cards = _named("gpu", wish.gpus), _card_names(wish)
    for number, card in enumerate(cards):
        yield gpus[number * len(gpus) // len(cards)], card


def _others(wish: ClaimWish) -> Iterator[tuple[str, str]]:
    """The GPUs that have no card for themselves, and the one with whose card they do."""
    gpus = _named("gpu", wish.gpus)
    paired = [gpu for gpu, _ in _pairs(wish)]
    for number, gpu in enumerate(gpus):
        if gpu not in paired:
            yield gpu, paired[number * len(paired) // len(gpus)]


def _parts(wish: ClaimWish) -> Iterator[_NamedRequest]:
    """The requests. GPUs that have no card for themselves come last."""
    gpu: Json = {"deviceClassName": wish.gpu_class}
    card = _card(wish)
    if wish.reach is None:
        if wish.gpus:
            yield _NamedRequest("gpu", {"exactly": _counted(gpu, wish.gpus)})
        yield _NamedRequest("card", {"exactly": _counted(card, _cards(wish))})
        return
    paired: set[str] = set()
    for gpu_name, card_name in _pairs(wish):
        if _gpus_lead(wish):
            yield _NamedRequest(gpu_name, _nearest(gpu, wish.reach))
            yield _NamedRequest(card_name, _placed(card, wish.reach))
            continue
        yield _NamedRequest(card_name, _nearest(card, wish.reach))
        if gpu_name not in paired:
            paired.add(gpu_name)
            yield _NamedRequest(gpu_name, _placed(gpu, wish.reach))
    yield from (_NamedRequest(name, _nearest(gpu, wish.reach)) for name, _ in _others(wish))


def _gpus_lead(wish: ClaimWish) -> bool:
    """Whether each GPU stands before its card, which is a share that no other GPU has."""
    return wish.shared and _cards(wish) == wish.gpus


def _placed(device: Json, reach: Reach) -> Json:
    """The second of a pair, with a NUMA node, or, where any device will do, without one."""
    if reach is not Reach.ANY:
        return {"exactly": device}
    conditions = {_KNOWN: _HAS_NUMA, _UNKNOWN: f"!({_HAS_NUMA})"}
    choices = [
        {"name": name, **device, "selectors": [_cel(condition)]}
        for name, condition in conditions.items()
    ]
    return {"firstAvailable": choices}


def _nearest(device: Json, reach: Reach) -> Json:
    """A device, from the nearest to the farthest that is taken."""
    if reach is Reach.ROOT:
        return {"exactly": device}
    choices = (_ROOT, _NUMA) if reach is Reach.NUMA_NODE else (_ROOT, _NUMA, _ANY)
    return {"firstAvailable": [{"name": choice, **device} for choice in choices]}


def _card(wish: ClaimWish) -> Json:
    """What is asked of one card. A rate is that of the card, or counted of what shares have."""
    card_class = wish.card_class or (SHARED_CLASS if wish.shared else CARD_CLASS)
    card: Json = {"deviceClassName": card_class}
    if wish.gbps is not None and wish.shared:
        card["capacity"] = {"requests": {"bandwidth": f"{wish.gbps}G"}}
    elif wish.gbps is not None:
        rate = f'device.attributes["{DRIVER}"].?rateGbps.orValue(0) >= {wish.gbps}'
        card["selectors"] = [_cel(rate)]
    return card


def _constraints(wish: ClaimWish) -> Iterator[Json]:
    """What devices have in common, or not: a GPU with its cards, and with GPUs without one."""
    if wish.reach is not None and wish.gpus:
        nearest = "" if wish.reach is Reach.ROOT else f"/{_ROOT}"
        placed = f"/{_KNOWN}" if wish.reach is Reach.ANY else ""
        others = ((with_card, gpu) for gpu, with_card in _others(wish))
        pairs = [pair[::-1] for pair in _pairs(wish)] if _gpus_lead(wish) else _pairs(wish)
        for other, near in (*pairs, *others):
            requests = [other, f"{near}{nearest}"]
            yield {"requests": requests, "matchAttribute": f"{_STANDARD}/pcieRoot"}
            if wish.reach is not Reach.ROOT:
                requests = [f"{other}{placed}", f"{near}/{_NUMA}"]
                yield {"requests": requests, "matchAttribute": f"{_STANDARD}/numaNode"}
    if _cards(wish) == 1:
        return
    cards = list(_card_names(wish))
    if wish.rails is not None:
        yield {"requests": cards, "distinctAttribute": f"{DRIVER}/rail"}
    elif wish.shared:
        yield {"requests": cards, "distinctAttribute": f"{_STANDARD}/pciBusID"}


def _counted(fields: Json, count: int) -> Json:
    return fields if count == 1 else {**fields, "count": count}


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}
