"""Parts of a status that several kinds have: conditions, and how their times are written."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from pydantic import ConfigDict

from kube_rdma.api.text.typed import Typed


class StatusPart(Typed):
    """A part of a status: what a newer version adds is not a fault."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True)


class Condition(StatusPart):
    """As meta/v1 Condition. In a list there is one of each type (api/schema/structural)."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-list-map-keys": ["type"]})

    type: str
    """type is the name of the condition. Example: Ready."""
    status: Literal["True", "False", "Unknown"]
    """status is True if the condition holds, False if it does not, Unknown if it is not known."""
    reason: str
    """reason is why the condition has this status, in one word that programs can compare."""
    message: str
    """message is why the condition has this status, in a sentence for people."""
    last_transition_time: str
    """lastTransitionTime is when status last changed, in RFC 3339. Example: 2026-11-22T12:00:00Z.
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
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=since
    )
