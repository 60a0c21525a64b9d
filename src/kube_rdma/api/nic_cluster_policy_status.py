"""The status of a NicClusterPolicy: the fields and values of 0.1.0, and standard conditions.

Written by the operator alone, by server-side apply of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

from kube_rdma.api.dialect import Many, Typed
from kube_rdma.api.ip_pool_status import Condition
from kube_rdma.model.cluster_policy import AppliedState, ComponentName, ComponentStatus


class AppliedStateEntry(Typed):
    """How far one part is."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True)

    name: str
    state: Literal["ready", "notReady", "ignore", "error"]
    message: str = ""


class NicClusterPolicyStatus(Typed):
    """The whole."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True)

    state: Literal["notReady", "ready", "ignore", "error"] = "notReady"
    reason: str = ""
    applied_states: Many[AppliedStateEntry] = ()
    conditions: Many[Condition] = ()


_READY_REASONS = {
    AppliedState.READY: "AllComponentsReady",
    AppliedState.NOT_READY: "ComponentsNotReady",
    AppliedState.ERROR: "PolicyRefused",
}
_CONDITIONS = {  # as later releases of the operator call them
    ComponentName.DRIVER: "OFEDDriverReady",
    ComponentName.DEVICE_PLUGIN: "RDMASharedDevicePluginReady",
    ComponentName.PEER_DRIVER: "NVPeerDriverReady",
}


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """What the operator says of a policy: its parts in their order, and the whole."""

    state: AppliedState
    reason: str
    parts: tuple[ComponentStatus, ...] = ()
    notes: tuple[str, ...] = ()


def policy_status(
    old: NicClusterPolicyStatus | None, verdict: PolicyVerdict, now: str
) -> NicClusterPolicyStatus:
    """The status that says a verdict; `now` (RFC 3339) is the time of conditions that change."""
    since = {each.type: each for each in (old.conditions if old else ())}
    return NicClusterPolicyStatus(
        state=verdict.state.value,
        reason=verdict.reason,
        applied_states=tuple(
            AppliedStateEntry(
                name=part.component.value, state=part.state.value, message=part.message
            )
            for part in verdict.parts
        ),
        conditions=tuple(
            _dated(condition, since.get(condition.type), now) for condition in _conditions(verdict)
        ),
    )


def decode(data: bytes) -> NicClusterPolicyStatus:
    """Read a status; ValueError for another shape."""
    return NicClusterPolicyStatus.model_validate_json(data)


def encode(status: NicClusterPolicyStatus) -> bytes:
    """Write a status."""
    return status.model_dump_json(by_alias=True).encode()


def _conditions(verdict: PolicyVerdict) -> Iterator[Condition]:
    """Ready, a condition for each part that is wanted, and one where fields have no effect."""
    ready = verdict.state is AppliedState.READY
    yield _condition("Ready", ready, _READY_REASONS[verdict.state], verdict.reason)
    for part in verdict.parts:
        if part.state is not AppliedState.IGNORE:
            ready = part.state is AppliedState.READY
            yield _condition(_CONDITIONS[part.component], ready, part.reason, part.message)
    if verdict.notes:
        yield _condition("FieldsIgnored", True, "NotSupported", "; ".join(verdict.notes))


def _condition(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason,
        message=message,
        last_transition_time="",
    )


def _dated(condition: Condition, before: Condition | None, now: str) -> Condition:
    """Since when its status is this one."""
    same = before is not None and before.status == condition.status
    since = before.last_transition_time if before and same else now
    return condition.model_copy(update={"last_transition_time": since})
