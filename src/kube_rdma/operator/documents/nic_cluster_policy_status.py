"""The status of a NicClusterPolicy: the fields and values of 0.1.0, and standard conditions.

Written by the operator alone, by server-side apply of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kube_base.frozen import Frozen
from kube_rdma.model.conditions import (
    NOT_OBSERVED,
    Condition,
    StatusPart,
    condition,
    observed,
    stalled,
)
from kube_rdma.model.operator.cluster_policy import AppliedState, ComponentName, ComponentStatus
from kube_rdma.model.operator.driver_upgrade import UpgradeState


class AppliedStateEntry(StatusPart):
    """How far one part is."""

    name: str
    """name is the part: state-OFED (driver), state-RDMA-device-plugin, state-SRIOV-device-plugin or
    state-NV-Peer (peer-memory driver).
    """
    state: AppliedState
    """state is ready when all pods of the part run, notReady while they do not, and ignore when the
    policy does not have the part. error is not used here.
    """
    message: str = ""
    """message is what the part still lacks. Empty: nothing."""


class NicClusterPolicyStatus(StatusPart):
    """How far the whole policy is."""

    observed_generation: int = NOT_OBSERVED
    """observedGeneration is metadata.generation of the policy that this status is about. -1: no
    operator has looked at the policy.
    """
    state: Literal["notReady", "ready", "ignore", "error"] = "notReady"
    """state is ready when all parts of the policy run, and notReady while they do not. error: the
    policy or an object of it is refused, or an older policy counts. ignore: it asks for nothing
    that kube-rdma deploys.
    """
    reason: str = ""
    """reason is why state is not ready: the parts and what they lack, or what is wrong with the
    policy. Empty: the policy is ready.
    """
    applied_states: tuple[AppliedStateEntry, ...] = ()
    """appliedStates is a list of the parts of the policy with the state of each. Empty: state is
    error, or the policy is being deleted.
    """
    conditions: tuple[Condition, ...] = ()
    """conditions is a list of conditions. Ready is the whole policy; OFEDDriverReady,
    RDMASharedDevicePluginReady, SRIOVDevicePluginReady and NVPeerDriverReady are its parts.
    DriversCurrent says whether drivers still change, FieldsIgnored which fields have no effect.
    Stalled: only another spec, or another policy, can help.
    """


_READY_REASONS = {
    AppliedState.READY: "AllComponentsReady",
    AppliedState.NOT_READY: "ComponentsNotReady",
    AppliedState.ERROR: "PolicyRefused",
    AppliedState.IGNORE: "NothingToDeploy",
}
OWN_REASONS = frozenset(("PolicyRefused", "NothingToDeploy"))  # NVIDIA's operator has others
_CONDITIONS = {  # as later releases of the operator call them
    ComponentName.DRIVER: "OFEDDriverReady",
    ComponentName.DEVICE_PLUGIN: "RDMASharedDevicePluginReady",
    ComponentName.SRIOV_PLUGIN: "SRIOVDevicePluginReady",
    ComponentName.PEER_DRIVER: "NVPeerDriverReady",
}


class PolicyVerdict(Frozen):
    """What the operator says of a policy: its parts in their order, and the whole.

    It is `stalled` where only people can help, by another spec or another policy.
    """

    state: AppliedState
    reason: str
    parts: tuple[ComponentStatus, ...] = ()
    notes: tuple[str, ...] = ()
    upgrade: UpgradeState | None = None
    stalled: bool = False


def policy_status(
    old: NicClusterPolicyStatus | None, generation: int, verdict: PolicyVerdict, now: str
) -> NicClusterPolicyStatus:
    """The status that says a verdict; `now` (RFC 3339) is the time of conditions that change."""
    return NicClusterPolicyStatus(
        observed_generation=generation,
        state=verdict.state.value,
        reason=verdict.reason,
        applied_states=tuple(
            AppliedStateEntry(part.component, part.state, part.message) for part in verdict.parts
        ),
        conditions=observed(_conditions(old.conditions if old else (), verdict, now), generation),
    )


def _conditions(
    old: tuple[Condition, ...], verdict: PolicyVerdict, now: str
) -> Iterator[Condition]:
    """Ready, one for each part that is wanted, for drivers' upgrades, for fields without effect.

    Stalled where only another spec helps.
    """
    ready = verdict.state is AppliedState.READY
    words = (_READY_REASONS[verdict.state], verdict.reason)
    yield condition(old, now, "Ready", ready, words)
    yield from stalled(old, now, words if verdict.stalled else None)
    for part in verdict.parts:
        if part.state is not AppliedState.IGNORE:
            ready = part.state is AppliedState.READY
            words = (part.reason, part.message)
            yield condition(old, now, _CONDITIONS[part.component], ready, words)
    if verdict.upgrade:
        words = (verdict.upgrade.reason, verdict.upgrade.message)
        yield condition(old, now, "DriversCurrent", verdict.upgrade.current, words)
    if verdict.notes:
        yield condition(old, now, "FieldsIgnored", True, ("NotSupported", "; ".join(verdict.notes)))
