"""Makes the claim templates of `kube-rdma claim`: its options, the objects, and their text.

Kubernetes compares attributes of devices: those at one PCIe root, or of one NUMA node, are near
each other. Where a board cannot match them, a list of subrequests (firstAvailable) goes on with the
next best. A device without a compared attribute matches nothing (matchAttributeConstraint,
k8s.io/dynamic-resource-allocation@v0.36.3 structured/internal/stable/allocator_stable.go), and a
GPU of a virtual machine often has no NUMA node. So a claim that takes any card has a subrequest for
such a GPU too.

Requests are met in their order, and the first devices that fit are taken (allocateOne of the same
file). So a card stands before its GPU: all GPUs are tried at its root before its next subrequest. A
GPU stands before a share of its own. A node has many shares and few GPUs, and a search that lacks a
GPU tries all shares for nothing (docs/decisions/0105). The devices are as near either way. Where a
claim has fewer cards than GPUs, the GPUs without one come last. Each is as near as can be to the
GPU whose card it uses. The card itself may lack what is compared (docs/decisions/0105).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic_core import PydanticCustomError

from kube_base.errors import Refused, refuse_all
from kube_base.frozen import Frozen
from kube_rdma.attach.documents.networks import OBJECT_NAME
from kube_rdma.claims.parameters import NETWORK
from kube_rdma.install.views import manifests
from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.words import LABEL, TextForm
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.install import Json

CARD_CLASS, SHARED_CLASS = "rdma", "rdma-shared"
GPU_CLASS = "gpu.nvidia.com"
NEWEST = 99
"""The minor version that stands for the newest Kubernetes."""

MOST_DEVICES = 32
"""The most devices of a claim: AllocationResultsMaxSize of k8s.io/api@v0.36.3 resource/v1."""
MOST_CONSTRAINTS = 32
"""The most constraints of a claim: DeviceConstraintsMaxSize of the same package."""

OLDEST = 34
"""The first minor version that serves resource.k8s.io/v1."""
DISTINCT = 36
"""The first minor version with DRAConsumableCapacity on: distinctAttribute, capacities of shares
(kubernetes@v1.36.3 pkg/features/kube_features.go)."""

SLOW = 4
"""The number of GPUs of a claim from which on a search that lacks one takes seconds."""

_RATE = TextForm("[1-9][0-9]{0,4}G", "a rate in whole gigabits per second", "100G")
_VERSION = re.compile(r"v?1\.(\d{1,2})(\.\d+.*)?")

_STANDARD = "resource.kubernetes.io"
_ROOT, _NUMA = "same-root", "same-numa-node"
_ANY = "any"
_KNOWN, _UNKNOWN = "numa-known", "numa-unknown"
_NOTE = (
    "Apply the template. Copy resourceClaims, and resources.claims of the container, into your "
    "pods."
)
_SLOW = (
    "Where a node lacks one of these devices, the scheduler may search it for up to 10 seconds: "
    "see docs/claims.md."
)
_HAS_NUMA = f'"numaNode" in device.attributes["{_STANDARD}"]'


class Reach(StrEnum):
    """The distance that a card may have from its GPU; nearer cards are preferred."""

    ROOT = "root"  # at the same PCIe root
    NUMA_NODE = "numa-node"
    ANY = "any"


class ClaimOptions(Frozen):
    """The options of `kube-rdma claim`: the devices of one claim, for a pod."""

    name: str = "rdma"
    cards: int | None = None  # None: one beside each GPU, or one without GPUs
    rails: int | None = None  # so many cards, all on different rails
    gpus: int = 0
    reach: Reach | None = None  # None: nearness does not count
    shared: bool = False
    gbps: int | None = None  # the rate of a card, or of a share of one
    card_class: str = ""  # empty: the class of whole cards, or of shares
    gpu_class: str = GPU_CLASS
    network: str = ""  # a NetworkAttachmentDefinition, with its namespace or without
    minor: int = NEWEST  # of the Kubernetes that the claim is for

    @property
    def card_count(self) -> int:
        """Return the number of cards that the claim has."""
        if self.rails is not None:
            return self.rails
        if self.cards is not None:
            return self.cards
        return self.gpus if self.reach else 1

    @property
    def card_names(self) -> Sequence[str]:
        """Return the names of all requests for cards."""
        return _names("card", self.card_count) if self.reach else ("card",)

    @property
    def gpus_lead(self) -> bool:
        """Return whether a GPU comes before its card: it does if each GPU has one shared card."""
        return self.shared and self.card_count == self.gpus


def parse_options(options: Mapping[str, Any]) -> ClaimOptions:
    """Return the options of the command, parsed; raise Refused with all malformed ones."""
    forms = {
        "name": LABEL,
        "gpu_class": OBJECT_NAME,
        "card_class": OBJECT_NAME,
        "network": NETWORK,
        "bandwidth": _RATE,
    }
    faults: list[Refused] = []
    for name, form in forms.items():
        if options[name] or name not in ("card_class", "network", "bandwidth"):
            faults += _faults(name, form, options[name])
    version = options["version"]
    match = _VERSION.fullmatch(version)
    if version and not match:
        problem = f"{shown(version)} is not a version of Kubernetes"
        where = "--kubernetes-version"
        faults.append(Refused(problem, remedy='Write it like "1.36"', where=where))
    within, near = options["within"], options["near"]
    if within and not near:
        problem = "it says how near a card has to be, and nothing asks for a near one"
        faults.append(Refused(problem, remedy="Add --near", where="--within"))
    refuse_all(faults)
    same = ("name", "cards", "rails", "gpus", "shared", "card_class", "gpu_class", "network")
    return ClaimOptions(
        **{name: options[name] for name in same},
        reach=Reach(within or Reach.ANY) if near else None,
        gbps=int(options["bandwidth"][:-1]) if options["bandwidth"] else None,
        minor=int(match[1]) if match else NEWEST,
    )


def _faults(name: str, form: TextForm, text: str) -> list[Refused]:
    option = "--class" if name == "card_class" else f"--{name.replace('_', '-')}"
    try:
        form.check(text)
    except PydanticCustomError as error:
        slips = (error.context or {})["slips"]
        return [Refused(one.problem, remedy=one.remedy, where=option) for one in slips]
    return []


def claim_objects(options: ClaimOptions) -> tuple[Json, Json]:
    """Return the ResourceClaimTemplate, and a pod that uses it.

    Raise Refused with all that contradicts itself, or that this version of Kubernetes cannot say.
    """
    refuse_all(
        Refused(problem, remedy=remedy, where=option)
        for option, problem, remedy in (*_contradictions(options), *_unsupported(options))
    )
    devices: Json = {"requests": list(_requests(options))}
    if constraints := list(_constraints(options)):
        devices["constraints"] = constraints
    if options.network:
        parameters = {
            "apiVersion": "kube-rdma.io/v1alpha1",
            "kind": "ClaimParameters",
            "network": options.network,
        }
        opaque = {"driver": DRIVER, "parameters": parameters}
        devices["config"] = [{"requests": list(options.card_names), "opaque": opaque}]
    template: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": options.name},
        "spec": {"spec": {"devices": devices}},
    }
    resources = {"claims": [{"name": options.name}]}
    container = {"name": "main", "image": "your-image", "resources": resources}
    claims = [{"name": options.name, "resourceClaimTemplateName": options.name}]
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": options.name},
        "spec": {"resourceClaims": claims, "containers": [container]},
    }
    return template, pod


def is_long_search(options: ClaimOptions) -> bool:
    """Return whether the scheduler may reach its limit of 10 s on a node that lacks a device.

    As measured: each choice of a near device multiplies the ways that are tried, whatever the order
    of the requests (docs/decisions/0105).
    """
    return options.reach in (Reach.ANY, Reach.NUMA_NODE) and options.gpus >= SLOW


def _contradictions(options: ClaimOptions) -> Iterator[tuple[str, str, str]]:
    """Yield the option, the problem and the remedy where options contradict each other."""
    if options.rails is not None and options.cards is not None:
        problem = "it says how many cards the claim has, and so does --cards"
        yield "--rails", problem, "Leave out one of the two"
    if options.reach is not None and not options.gpus:
        yield "--near", "no GPU is asked for that a card could be near to", "Add --gpus 1"
    if (devices := options.gpus + options.card_count) > MOST_DEVICES:
        problem = f"these are {devices} devices, and a claim has {MOST_DEVICES}"
        option = "--gpus" if options.gpus else "--cards"
        yield option, problem, "Ask for fewer, or write two templates"
    elif (count := len(list(_constraints(options)))) > MOST_CONSTRAINTS:
        problem = f"these are {count} constraints, and a claim has {MOST_CONSTRAINTS}"
        yield "--near", problem, "Add --within root, or ask for fewer cards or GPUs"


def _unsupported(options: ClaimOptions) -> Iterator[tuple[str, str, str]]:
    """Yield option, problem and remedy for options that this version of Kubernetes lacks."""
    version = f"Kubernetes 1.{options.minor}"
    if options.minor < OLDEST:
        problem = f"{version} has no resource.k8s.io/v1, which comes with 1.{OLDEST}"
        yield "--kubernetes-version", problem, f"Ask for shares in limits, or write for 1.{OLDEST}"
    if options.minor >= DISTINCT:
        return
    newer = f"write for 1.{DISTINCT} or newer"
    if options.rails is not None and options.rails > 1:
        problem = f"{version} cannot keep cards of a claim on different rails"
        yield "--rails", problem, f"Use --cards {options.rails}, or {newer}"
    if options.shared and options.card_count > 1:
        problem = f"{version} cannot keep two shares of a claim off one card"
        yield "--shared", problem, f"Ask for one card, or {newer}"
    if options.shared and options.gbps is not None:
        problem = f"{version} does not count the bandwidth of shares"
        yield "--bandwidth", problem, f"Leave it out, or {newer}"


def _names(name: str, count: int) -> Sequence[str]:
    """Return the names of requests of one kind: ``card``, or ``card-0``, ``card-1`` …"""
    return (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(count))


def _pairs(options: ClaimOptions) -> Iterator[tuple[str, str]]:
    """Yield GPU and card of each pair, by name; cards are spread evenly over the GPUs."""
    gpus, cards = _names("gpu", options.gpus), options.card_names
    for number, card in enumerate(cards):
        yield gpus[number * len(gpus) // len(cards)], card


def _others(options: ClaimOptions) -> Iterator[tuple[str, str]]:
    """Yield each GPU without a card of its own, with the GPU whose card it uses."""
    gpus = _names("gpu", options.gpus)
    paired = [gpu for gpu, _ in _pairs(options)]
    for number, gpu in enumerate(gpus):
        if gpu not in paired:
            yield gpu, paired[number * len(paired) // len(gpus)]


def _requests(options: ClaimOptions) -> Iterator[Json]:
    """Yield the requests of the claim; GPUs that share another GPU's card come last."""
    gpu: Json = {"deviceClassName": options.gpu_class}
    card = _card(options)
    if options.reach is None:
        if options.gpus:
            yield {"name": "gpu", "exactly": _counted(gpu, options.gpus)}
        yield {"name": "card", "exactly": _counted(card, options.card_count)}
        return
    paired: set[str] = set()
    for gpu_name, card_name in _pairs(options):
        if options.gpus_lead:
            yield {"name": gpu_name, **_nearest(gpu, options.reach)}
            yield {"name": card_name, **_placed(card, options.reach)}
            continue
        yield {"name": card_name, **_nearest(card, options.reach)}
        if gpu_name not in paired:
            paired.add(gpu_name)
            yield {"name": gpu_name, **_placed(gpu, options.reach)}
    for gpu_name, _ in _others(options):
        yield {"name": gpu_name, **_nearest(gpu, options.reach)}


def _placed(device: Json, reach: Reach) -> Json:
    """Return the request for a pair's second device, which for Reach.ANY may lack a NUMA node."""
    if reach is not Reach.ANY:
        return {"exactly": device}
    selectors = {_KNOWN: _cel(_HAS_NUMA), _UNKNOWN: _cel(f"!({_HAS_NUMA})")}
    choices = [{"name": name, **device, "selectors": [one]} for name, one in selectors.items()]
    return {"firstAvailable": choices}


def _nearest(device: Json, reach: Reach) -> Json:
    """Return the request for a device near to another, with all allowed distances in order."""
    if reach is Reach.ROOT:
        return {"exactly": device}
    choices = (_ROOT, _NUMA) if reach is Reach.NUMA_NODE else (_ROOT, _NUMA, _ANY)
    return {"firstAvailable": [{"name": choice, **device} for choice in choices]}


def _card(options: ClaimOptions) -> Json:
    """Return the request for one card; a bandwidth selects cards, or is taken of a shared one."""
    card_class = options.card_class or (SHARED_CLASS if options.shared else CARD_CLASS)
    card: Json = {"deviceClassName": card_class}
    if options.gbps is not None and options.shared:
        card["capacity"] = {"requests": {"bandwidth": f"{options.gbps}G"}}
    elif options.gbps is not None:
        rate = f'device.attributes["{DRIVER}"].?rateGbps.orValue(0) >= {options.gbps}'
        card["selectors"] = [_cel(rate)]
    return card


def _constraints(options: ClaimOptions) -> Iterator[Json]:
    """Yield the constraints that put GPUs and cards near to each other, and keep cards apart."""
    if options.reach is not None and options.gpus:
        nearest = "" if options.reach is Reach.ROOT else f"/{_ROOT}"
        placed = f"/{_KNOWN}" if options.reach is Reach.ANY else ""
        others = ((with_card, gpu) for gpu, with_card in _others(options))
        pairs = [pair[::-1] for pair in _pairs(options)] if options.gpus_lead else _pairs(options)
        for other, near in (*pairs, *others):
            requests = [other, f"{near}{nearest}"]
            yield {"requests": requests, "matchAttribute": f"{_STANDARD}/pcieRoot"}
            if options.reach is not Reach.ROOT:
                requests = [f"{other}{placed}", f"{near}/{_NUMA}"]
                yield {"requests": requests, "matchAttribute": f"{_STANDARD}/numaNode"}
    if options.card_count == 1:
        return
    cards = list(options.card_names)
    if options.rails is not None:
        yield {"requests": cards, "distinctAttribute": f"{DRIVER}/rail"}
    elif options.shared:
        yield {"requests": cards, "distinctAttribute": f"{_STANDARD}/pciBusID"}


def _counted(fields: Json, count: int) -> Json:
    return fields if count == 1 else {**fields, "count": count}


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def templates_text(options: ClaimOptions) -> str:
    """Return template and pod as YAML, with comments on their use.

    Raise Refused as `claim_objects` does.
    """
    notes = (_NOTE, _SLOW) if is_long_search(options) else (_NOTE,)
    return "".join(f"# {note}\n" for note in notes) + manifests(claim_objects(options))
