"""Decides which objects each part of a policy needs, and the state of each part and of the policy.

    policy, nodes ─► components ─► daemon_sets ─► operator (apply, prune)
    DaemonSets' progress ─► judged ─► the status

No object waits for another. On each node the driver goes first, for device plugins select a label
that the node gets once its driver runs (operator/rules/placement).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma.model import operator as model
from kube_rdma.model.install import Blueprint, Values
from kube_rdma.operator.rules import placement
from kube_rdma.operator.rules.daemon_sets import SRIOV, WantedObjects, account, plugin_objects
from kube_rdma.operator.rules.driver_sets import driver_objects, peer_objects


class Component(Frozen):
    """A part of a policy, with the objects to write for it."""

    name: model.ComponentName
    wanted: bool
    objects: WantedObjects
    problem: str = ""  # why objects are missing
    no_nodes: str = ""  # which label no node has, "" when some node has it
    hint: str = ""  # what may be why pods do not become ready


def components(
    policy: model.ClusterPolicy,
    nodes: Sequence[model.PolicyNode],
    workloads: Sequence[Blueprint],
    values: Values | None = None,
) -> tuple[Component, ...]:
    """Return all parts of a policy with their objects, in the order of the status.

    `workloads` are the workloads of an installation, `values` the operator's own installation's.
    """
    nodes = placement.allowed(policy, nodes)
    away = sum(node.away for node in placement.plugin_nodes(policy, nodes))
    drivers, peers = placement.driver_groups(nodes), placement.peer_groups(nodes)
    no_cards = "" if any(node.has_cards for node in nodes) else f"{placement.CARDS_LABEL}=true"
    both = any(node.has_cards and node.has_gpus for node in nodes)
    no_gpus = no_cards or (
        "" if both else f"{placement.CARDS_LABEL}=true and {placement.GPUS_LABEL}=true"
    )
    driver, hint = driver_objects(policy, drivers.groups, values), _compiling(policy, values)
    shared = plugin_objects(policy, workloads, away, values)
    sriov = plugin_objects(policy, workloads, away, values, SRIOV)
    peer = peer_objects(policy, peers.groups, values)
    return (
        Component(
            model.ComponentName.DRIVER, bool(policy.driver), driver, drivers.problem, no_cards, hint
        ),
        Component(
            model.ComponentName.DEVICE_PLUGIN, bool(policy.device_plugin), shared, "", no_cards
        ),
        Component(model.ComponentName.SRIOV_PLUGIN, bool(policy.sriov_plugin), sriov, "", no_cards),
        Component(
            model.ComponentName.PEER_DRIVER, bool(policy.peer_driver), peer, peers.problem, no_gpus
        ),
    )


def _compiling(policy: model.ClusterPolicy, values: Values | None) -> str:
    """Return a hint if an image would have to compile its driver on OpenShift, else "".

    NVIDIA's operator has a Driver Toolkit beside it there (state_ofed.go, renderObjects).
    """
    driver = policy.driver
    if driver is None or driver.precompiled or driver.image.digest or not account(values):
        return ""
    if not model.contract_of(driver.image).kernel_form:
        return ""
    return "On OpenShift set ofedDriver.forcePrecompiled: nothing compiles a driver there"


def judged(
    component: Component, progress: Mapping[str, model.DaemonSetProgress], waits: str = ""
) -> model.ComponentStatus:
    """Return the state of one part of a policy.

    `progress` says by name how far its existing DaemonSets are. `waits` says why the part is not on
    all of its nodes yet, "" where it is.
    """
    if not component.wanted:
        return model.ComponentStatus(component.name, model.AppliedState.IGNORE, "NotConfigured")
    if component.no_nodes:
        message = f"No node has the label {component.no_nodes}"
        return model.ComponentStatus(
            component.name, model.AppliedState.NOT_READY, "NoMatchingNodes", message
        )
    lacking = [why for why in (component.problem, waits) if why]
    reason = "LabelsMissing" if component.problem else "PodsNotReady"
    for document in component.objects.daemon_sets:
        name = document["metadata"]["name"]
        own = progress.get(name)
        if why := _behind(own, empty=bool(waits)):
            lacking.append(f"DaemonSet {name}: {why}")
            reason = "ImageNotPulled" if own and own.unpulled else reason
    if lacking:
        message = "; ".join([*lacking, *filter(None, [component.hint])])
        return model.ComponentStatus(
            component.name, model.AppliedState.NOT_READY, reason, message[:1].upper() + message[1:]
        )
    return model.ComponentStatus(component.name, model.AppliedState.READY, "PodsReady")


def overall(statuses: Sequence[model.ComponentStatus]) -> tuple[model.AppliedState, str]:
    """Return the state of the whole policy and its reason."""
    for state in (model.AppliedState.ERROR, model.AppliedState.NOT_READY):
        reasons = [f"{each.component}: {each.message}" for each in statuses if each.state is state]
        if reasons:
            return state, "; ".join(reasons)
    if all(each.state is model.AppliedState.IGNORE for each in statuses):
        return model.AppliedState.IGNORE, "The policy asks for nothing that kube-rdma deploys"
    return model.AppliedState.READY, ""


def _behind(progress: model.DaemonSetProgress | None, *, empty: bool) -> str:
    """Return why a DaemonSet is not ready; "" if all pods run that should.

    With `empty` it may have no pods, for a reason that is named elsewhere.
    """
    if progress is None or not progress.current:
        return "not looked at by its controller yet"
    if progress.desired == 0:
        return "" if empty else "no node takes its pods"
    if progress.available < progress.desired:
        count = f"{progress.available} of {progress.desired} pods are available"
        return f"{count}: {progress.unpulled}" if progress.unpulled else count
    return ""
