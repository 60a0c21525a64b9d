"""Plans a node's way from kube-rdma's device plugin to claims and back, for the same resources.

It is the second half of `kube-rdma migrate node`. A label says how the agent serves the node's
pools (pools/documents/config); the agent keeps the order in which shares end and slices begin. The
plan adds steps for people. People cordon the node meanwhile, for a kubelet that has neither shares
nor devices refuses new pods for good. At the end they go on with the next node. Decision 0107 says
why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

from kube_base.errors import Refused
from kube_rdma.lib.phrases import listed
from kube_rdma.migrate.rules.commands import TURN, allocatable, cordon, offered, uncordon, until
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.migrate import PlanStep, ServingPlan, ServingView
from kube_rdma.model.pools import is_extended_resource

SERVE = "kube-rdma.io/serve"  # the label of pools/documents/config
KUBELET = (1, 36)  # the first in which a name of a class is served without a gate (KEP-5004)
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})")


def plan_node(view: ServingView) -> ServingPlan:
    """Return the plan to move a node to claims and back; raise Refused with all obstacles."""
    faults = tuple(_faults(view))
    if faults:
        raise Refused.all(faults)
    forth = PlanStep(
        f"Claims serve {view.node.name}",
        "The agent empties the list of shares, waits until the API server shows none, and "
        "publishes the cards as devices. Pods that run keep what they have.",
        (
            cordon([view.node]),
            f"kubectl label node {quote(view.node.name)} {SERVE}=claims --overwrite",
            *(offered([view.node], name, "0") for name in view.resources),
            *(until(f"{_slices(view)} | grep -qwF {name}") for name in view.resources),
            *uncordon([view.node]),
        ),
        view.node.name,
    )
    back = PlanStep(
        f"The device plugin serves {view.node.name} again",
        "The agent takes the devices back first, then lists the shares that no claim holds. Pods "
        "that run keep what they have.",
        (
            cordon([view.node]),
            f"kubectl label node {quote(view.node.name)} {SERVE}=plugin --overwrite",
            # An API server that does not answer has not said that a device is gone.
            *(
                until(f"seen=$({_slices(view)}) &&{TURN}! echo $seen | grep -qwF {name}")
                for name in view.resources
            ),
            *(_some_offered(view, name) for name in view.resources),
            *uncordon([view.node]),
        ),
        view.node.name,
    )
    return ServingPlan(view, (forth,), (back,), tuple(_notes(view)))


def _faults(view: ServingView) -> Sequence[Refused]:
    faults = []
    name, match = view.node.name, _VERSION.match(view.kubelet_version)
    if match and (int(match[1]), int(match[2])) < KUBELET:
        problem = f"the kubelet of {name} is {view.kubelet_version}"
        remedy = "Claims serve the names of resources from Kubernetes 1.36 on: upgrade the node"
        faults.append(Refused(problem, remedy=remedy))
    if not view.serves_claims:
        problem = "no agent of kube-rdma has the option --claims"
        faults.append(Refused(problem, remedy="Install kube-rdma with claims.enabled=true"))
    for resource in view.resources:
        if not is_extended_resource(resource):  # a report is its node's to write
            problem = f"the report of node {name} has a resource of no valid name: {resource!r}"
            remedy = "Delete the report; a sound agent writes it again"
            faults.append(Refused(problem, remedy=remedy))
    missing = [resource for resource in view.resources if resource not in view.classes]
    for resource in missing:
        label = resource.replace("/", "-").replace("_", "-").lower()
        problem = (
            f"no DeviceClass has extendedResourceName {resource}: pods that want it would wait"
        )
        entry = f"{{name: {label}, resource: {resource}}}"
        remedy = f"Install kube-rdma with claims.classes=[{entry}]"
        faults.append(Refused(problem, remedy=remedy))
    return faults


def _notes(view: ServingView) -> Sequence[str]:
    notes = []
    old = [
        pod.title
        for pod in view.pods
        if any(name in pod.asked and name not in pod.by_claim for name in view.resources)
    ]
    new = [pod.title for pod in view.pods if pod.by_claim]
    if old:
        notes.append(
            f"Shares of the device plugin are held by {listed(old)}: they stay theirs until these "
            "pods end, and are no claim's. A reboot of the node ends these pods "
            "(UnexpectedAdmissionError), and their controllers make new ones"
        )
    if new:
        notes.append(
            f"Devices of claims are held by {listed(new)}: on the way back as many shares stay "
            "unhealthy until these pods end"
        )
    for name in view.resources:
        many = [pod.title for pod in view.pods if name in view.whole and pod.asked.get(name, 0) > 1]
        if many:
            notes.append(
                f"{listed(many)} asks for more than 1 {name}, which is one device for all of the "
                "node's cards: a pod like it waits for ever where claims serve the name. Ask for 1"
            )
    return notes


def _some_offered(view: ServingView, resource: str) -> str:
    node = quote(view.node.name)
    path = allocatable(resource)
    return until(f'kubectl get node {node} -o jsonpath="{path}" |{TURN}grep -q "[1-9]"')


def _slices(view: ServingView) -> str:
    fields = f"spec.driver={DRIVER},spec.nodeName={quote(view.node.name)}"
    path = "{.items[*].spec.devices[*].attributes.resource.string}"
    return f'kubectl get resourceslices{TURN}--field-selector={fields}{TURN}-o jsonpath="{path}"'
