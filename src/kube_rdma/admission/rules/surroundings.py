"""What makes a pod's shares or networks void, although each is written right.

Beside findings: the node's own network, a runtime that puts a kernel between pod and device,
requests that differ from limits, an annotation one object too high. Most of these pods start, and
miss what they asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_rdma.admission.rules.near_misses import misspelt
from kube_rdma.admission.rules.networks import BLOCKS, NETWORKS
from kube_rdma.admission.rules.shares import asked
from kube_rdma.attach.rules.requests import (
    ANNOTATION,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
    names_networks,
)
from kube_rdma.model.admission.facts import AdmissionFacts, AdmissionSettings
from kube_rdma.model.admission.pod_template import AnnotationAbove, PodTemplate
from kube_rdma.model.finding import Finding, Severity

_MACHINES = ("kata", "firecracker", "peer-pods")  # in names of classes, and in handlers
_SANDBOXES = ("gvisor", "runsc")
_FOR_PODS = (ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION)


def networks_on_host(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """The kubelet calls no CNI plugin for a pod on the node's own network (CRI's NODE namespace).

    attach/rules/requests refuses it where the agent is asked nevertheless.
    """
    del facts, settings
    if not template.host_network or not names_networks(template.annotations):
        return
    path = NETWORKS if dict(template.annotations).get(ANNOTATION, "").strip() else BLOCKS
    yield Finding.of(
        "networks-on-host",
        path,
        "the pod has hostNetwork: true, so none of these networks is attached: it sees the node's "
        "own interfaces",
        "Remove hostNetwork: true, or the annotation",
        Severity.WARNING,
    )


def sandboxed(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """A pod in a virtual machine, or above a kernel of its own, does not reach the host's devices.

    Kata gives a guest PCI devices by VFIO (kata-containers docs/use-cases/using-SRIOV-and-kata.md);
    gVisor passes verbs on where runsc runs with --rdmaproxy (google/gvisor#13779, 2026-07).
    """
    shares = [ask.resource for _, ask in asked(template, settings.shares)]
    named = names_networks(template.annotations)
    name = template.runtime_class
    if not name or not (shares or named):
        return
    words = f"{name} {dict(facts.handlers).get(name, '')}".lower()
    wanted = shares[0] if shares else "networks"
    if any(word in words for word in _MACHINES):
        why = "runs the pod in a virtual machine, which has no RDMA device of the node"
        remedy = "Leave runtimeClassName out, or give the machine a card by vfio-pci"
    elif any(word in words for word in _SANDBOXES):
        why = "runs the pod above gVisor, which keeps RDMA devices away unless it has --rdmaproxy"
        remedy = "Leave runtimeClassName out, or run runsc with --rdmaproxy"
    else:
        return
    yield Finding.of(
        "runtime-class",
        ("spec", "runtimeClassName"),
        f"the pod asks for {wanted}, and runtime class {name} {why}",
        remedy,
        Severity.WARNING,
    )


def requests(
    template: PodTemplate, facts: AdmissionFacts, settings: AdmissionSettings
) -> Iterator[Finding]:
    """Of extended resources a request has to equal its limit (kubernetes@v1.34
    pkg/apis/core/validation, ValidateContainerResourceRequirements)."""
    del facts
    for container, ask in asked(template, settings.shares):
        if not ask.limited:
            yield Finding.of(
                "requests",
                ask.path,
                f"container {container.name} requests {ask.resource} without a limit, which "
                "Kubernetes refuses",
                f"Write limits with {ask.resource}: {ask.count}",
            )
        elif ask.request not in (None, ask.count):
            yield Finding.of(
                "requests",
                ask.path,
                f"container {container.name} requests {ask.request} of {ask.resource} with a "
                f"limit of {ask.count}, which Kubernetes refuses",
                "Write one number into both, or leave requests out",
            )


def misplaced(
    above: Iterable[AnnotationAbove], templates: Iterable[PodTemplate]
) -> Iterator[Finding]:
    """Annotations for pods at an object around their template, where some template lacks them."""
    made = [dict(template.annotations) for template in templates]
    for annotation in above:
        key = annotation.key
        meant = dict(misspelt([key])).get(key, key)
        if meant in _FOR_PODS and not all(meant in annotations for annotations in made):
            yield Finding.of(
                "annotation-place",
                annotation.path,
                f"the annotation stands at the {annotation.owner}, from where no pod gets it",
                f"Write {meant} into the metadata of the pods' template",
                Severity.WARNING,
            )
