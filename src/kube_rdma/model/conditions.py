"""Parts of a status that several kinds have: conditions, texts with an end, how times are written.

A status is a Struct that programs write and programs read: the value that rules and views see is
what the API server stores. lib/schema/struct_schema makes its definition, in which the sentence
below a field is what `kubectl explain` shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta

from kube_base.frozen import Frozen, replace

LONGEST = 512  # characters of a sentence
LONGEST_MESSAGE = 32_768  # characters of a condition's message, as in meta/v1
NOT_OBSERVED = -1  # the observedGeneration of an object that no program has looked at
_CUT = "…"

Sentence = Annotated[str, Meta(max_length=LONGEST)]
Word = Annotated[str, Meta(max_length=253)]


class StatusPart(Frozen, rename="camel"):
    """A part of a status: what a newer version adds is not a fault."""


class SparsePart(StatusPart, omit_defaults=True):
    """A part that leaves out what has its default."""


class Condition(SparsePart):
    """As meta/v1 Condition. In a list there is one of each type (lib/schema/struct_schema)."""

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
    Left out: the object has no spec.
    """


def moment(now: datetime) -> str:
    """A time as a status has it (RFC 3339), in whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    before: Iterable[Condition], now: str, kind: str, holds: bool, words: tuple[str, str]
) -> Condition:
    """The condition of a type with its reason and message.

    It holds since `now`, unless one of those before had the same status already.
    """
    status: Literal["True", "False"] = "True" if holds else "False"
    same = (each for each in before if (each.type, each.status) == (kind, status))
    since = next((each.last_transition_time for each in same), now)
    reason, message = words
    return Condition(kind, status, reason, cut(message, LONGEST_MESSAGE), since)


def stalled(
    before: Iterable[Condition], now: str, why: tuple[str, str] | None
) -> tuple[Condition, ...]:
    """The condition Stalled, with its reason and message; none where nothing is stalled.

    kstatus (fluxcd/cli-utils@v1.2.2 pkg/kstatus/status/generic.go) reads it: whoever waits for the
    object gives up at once. So it is for what only another spec can mend.
    """
    return (condition(before, now, "Stalled", True, why),) if why else ()


def observed(conditions: Iterable[Condition], generation: int) -> tuple[Condition, ...]:
    """The conditions as those of an object of this metadata.generation."""
    return tuple(replace(each, observed_generation=generation) for each in conditions)


def cut(text: str, longest: int = LONGEST) -> str:
    """At most so many characters of a text; an end that is cut off shows."""
    return text if len(text) <= longest else text[: longest - len(_CUT)] + _CUT
