"""Defines nodes and pods as the API server knows them, parts of statuses, and quantities.

adapters/cluster reads them, programs compare them with what the kernel and the kubelet say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Annotated, Literal

from msgspec import Meta

from kube_base.frozen import Frozen, replace


class NamespacedName(Frozen):
    """The namespace and the name of an object."""

    namespace: str
    name: str

    @property
    def title(self) -> str:
        """Return the object as namespace/name."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return self.title


class Taint(Frozen):
    """A taint of a node; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class Toleration(Frozen):
    """A toleration: the taints that do not keep a pod away. An empty key or effect means any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, key: str, value: str, effect: str) -> bool:
        """Return whether the toleration matches a taint; with an unknown operator it matches none.

        Compare ToleratesTaint in k8s.io/api core/v1/toleration.go; devicetoleration.go for devices.
        """
        equal = self.operator in ("", "Equal") and self.value == value
        fits = self.effect in ("", effect) and self.key in ("", key)
        return fits and (equal or self.operator == "Exists")


class NodeCondition(Frozen):
    """One condition of a node; `status` is True, False or Unknown."""

    status: str
    reason: str  # one word, CamelCase
    message: str


class NodeState(Frozen):
    """One Node object. Labels, annotations and allocatable are sorted by name."""

    name: str
    uid: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()  # whole units: cores, bytes, shares
    kubelet_version: str = ""  # v1.36.3
    runtime_version: str = ""  # containerd://2.4.2
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool | None = None  # None: nothing is known of the kubelet
    cards: NodeCondition | None = None  # kube-rdma.io/CardsHealthy; None: nobody judged them
    addresses: tuple[tuple[str, str], ...] = ()  # type and address, as ("InternalIP", "10.0.0.7")


class LabelChange(Frozen):
    """New values for labels and annotations of a node; None removes one."""

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]


# Pods, as far as attaching networks and cards needs them.

MIRROR = "kubernetes.io/config.mirror"  # what the kubelet writes at the object of a static pod

OVER = ("Succeeded", "Failed")
"""Phases of pods of which no container runs again."""


class PodState(NamespacedName):
    """One Pod object. Labels and annotations are sorted by name.

    A pod that is made anew under the same name has another `uid`.
    """

    uid: str
    annotations: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    host_network: bool = False
    node: str = ""  # empty until it is scheduled
    phase: str = ""  # Pending, Running, Succeeded, Failed, Unknown
    deleting: bool = False  # it was asked to end
    owner: str = ""  # kind and name of its controller; of a ReplicaSet without its hash
    created: str = ""  # RFC 3339, as the API server wrote it
    init_containers: tuple[str, ...] = ()  # the names of the first two

    @property
    def controlled(self) -> bool:
        """Return whether an ownerReference of the pod names a controller."""
        return bool(self.owner)

    @property
    def is_over(self) -> bool:
        """Return whether the pod has ended, so that no container of it runs again."""
        return self.phase in OVER

    @property
    def is_static(self) -> bool:
        """Return whether the pod's object is only a mirror of a static pod of the kubelet."""
        return MIRROR in dict(self.annotations)

    @property
    def runtime_uid(self) -> str:
        """Return the pod's uid for kubelet and runtime.

        The API has another one for a static pod.
        """
        return dict(self.annotations).get(MIRROR, self.uid)


# Parts of a status that several kinds have: conditions, texts with an end, times.

LONGEST = 512  # characters of a sentence
LONGEST_MESSAGE = 32_768  # characters of a condition's message, as in meta/v1
NOT_OBSERVED = -1  # the observedGeneration of an object that no program has looked at
_CUT = "…"

Sentence = Annotated[str, Meta(max_length=LONGEST)]
Word = Annotated[str, Meta(max_length=253)]


class StatusPart(Frozen, rename="camel"):
    """A part of an object that kube-rdma writes.

    Unknown fields, which a newer version may add, are ignored unless a subclass forbids them.
    """


class SparsePart(StatusPart, omit_defaults=True):
    """A part of an object that is written without the fields that have their default."""


class Condition(SparsePart):
    """A condition, as in meta/v1. In a list there is one of each type (lib/schema)."""

    type: Word
    """type is the name of the condition. Example: Ready."""
    status: Literal["True", "False", "Unknown"]
    """status is True if the condition holds, False if it does not, Unknown if it is not known."""
    reason: Word
    """reason is why the condition has this status, in one word that programs can compare."""
    message: Annotated[str, Meta(max_length=LONGEST_MESSAGE)]
    """message is why the condition has this status, in a sentence for people."""
    last_transition_time: Word
    """lastTransitionTime is when status last changed, in RFC 3339. Example: 2026-11-22T12:00:00Z.
    """
    observed_generation: int | None = None
    """observedGeneration is the metadata.generation of the object that this condition is about.
    Left out: the condition is about no spec.
    """


def moment(now: datetime) -> str:
    """Return a time in the form of a status (RFC 3339), in whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_moment(now: datetime) -> str:
    """Return a time in the form of Leases and Events (MicroTime)."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def condition(
    before: Iterable[Condition], now: str, kind: str, holds: bool, words: tuple[str, str]
) -> Condition:
    """Return a condition with its reason and message.

    `before` are the conditions so far: one of the same type and status passes on its time of
    change. Without one, the time is `now`.
    """
    status: Literal["True", "False"] = "True" if holds else "False"
    same = (each for each in before if (each.type, each.status) == (kind, status))
    since = next((each.last_transition_time for each in same), now)
    reason, message = words
    return Condition(kind, status, reason, cut(message, LONGEST_MESSAGE), since)


def stalled(
    before: Iterable[Condition], now: str, why: tuple[str, str] | None
) -> tuple[Condition, ...]:
    """Return the condition Stalled with a reason and a message, or () if `why` is None.

    kstatus (fluxcd/cli-utils@v1.2.2 pkg/kstatus/status/generic.go) then calls the object failed, so
    the condition is for what only another spec can mend.
    """
    return (condition(before, now, "Stalled", True, why),) if why else ()


def observed(conditions: Iterable[Condition], generation: int) -> tuple[Condition, ...]:
    """Return the conditions with this generation as the one that they are about."""
    return tuple(replace(each, observed_generation=generation) for each in conditions)


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text cut to at most this many characters; a cut is visible at the end."""
    return text if len(text) <= longest else text[: longest - len(_CUT)] + _CUT


# Quantities of Kubernetes (resource.Quantity): ``1k``, ``500m``, ``2Gi``.

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i|)")
_MOST_SIGNS = 64  # of a text; what an API server writes has 20
_MOST_POWER = 36  # it keeps no number of more than 19 digits; a larger one would fill the memory
_SUFFIXES = {
    suffix: Fraction(10) ** power for power, suffix in zip(range(-9, 0, 3), "num", strict=True)
}
_THOUSANDS = ("", *"kMGTPE")
_SUFFIXES |= {suffix: Fraction(1000) ** n for n, suffix in enumerate(_THOUSANDS) if suffix}
_SUFFIXES |= {f"{suffix}i": Fraction(1024) ** (n + 1) for n, suffix in enumerate("KMGTPE")}


def quantity(text: str) -> Fraction:
    """Return the value of a quantity: 1k is 1000, 500m one half.

    Raise ValueError for another text, or for too long or too large a number.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _MOST_SIGNS else None
    if not match or not any(c.isdigit() for c in match[1]):
        raise ValueError(f"not a quantity: {text!r:.80}")
    number, suffix = Fraction(match[1]), match[2]
    if suffix in _SUFFIXES:
        number *= _SUFFIXES[suffix]
    elif suffix:
        power = int(suffix[1:])
        if abs(power) > _MOST_POWER:
            raise ValueError(f"not a quantity of Kubernetes: {text!r}")
        number *= Fraction(10) ** power
    return number


def quantity_text(number: int) -> str:
    """Return a whole number as the API server writes a quantity: 16, 1k, 400G, 2500M."""
    power = 0
    while number and not number % 1000 and power < len(_THOUSANDS) - 1:
        number //= 1000
        power += 1
    return f"{number}{_THOUSANDS[power]}"
