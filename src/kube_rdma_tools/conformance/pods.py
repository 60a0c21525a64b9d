"""The pods that checks start: two of different roles on two nodes, one too large, one with a claim.

The first check starts the two pods; later checks use them while they run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kube_base.frozen import Frozen

PREFILL, DECODE = "conformance-prefill", "conformance-decode"
LARGE, CLAIMING = "conformance-too-large", "conformance-claim"
PODS = (PREFILL, DECODE, LARGE, CLAIMING)
_LABEL = "kube-rdma.io/conformance"
_NETWORKS = "k8s.v1.cni.cncf.io/networks"


class ConformanceOptions(Frozen):
    """The options of a conformance run: an image with UCX and perftest, a resource, networks.

    `device_class` is the DeviceClass by which the check of claims gets a card. `seconds` is the
    longest time until pods are Ready.
    """

    image: str
    resource: str
    networks: tuple[str, ...]
    namespace: str = "default"
    device_class: str = "rdma"
    seconds: int = 600


def pair(options: ConformanceOptions) -> str:
    """Return the manifest of two pods on two nodes, as prefill and decode of an engine run."""
    return _listed(*(_apart(_pod(options, name, 1), name) for name in (PREFILL, DECODE)))


def large(options: ConformanceOptions, shares: int) -> str:
    """Return the manifest of a pod that asks for this many shares."""
    return _listed(_pod(options, LARGE, shares))


def claiming(options: ConformanceOptions) -> str:
    """Return the manifest of a pod that gets its card by a claim, and of the claim's template."""
    request = {"name": "card", "exactly": {"deviceClassName": options.device_class, "count": 1}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": CLAIMING},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    pod = _pod(options, CLAIMING, 0)
    pod["spec"]["resourceClaims"] = [{"name": "card", "resourceClaimTemplateName": CLAIMING}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "card"}]}
    return _listed(template, pod)


def _pod(options: ConformanceOptions, name: str, shares: int) -> dict[str, Any]:
    annotations = {_NETWORKS: ", ".join(options.networks)} if shares else {}
    container = {
        "name": "main",
        "image": options.image,
        "command": ["sleep", "infinity"],
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "resources": {"limits": {options.resource: shares}},
    }
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    labels = {_LABEL: "pair" if name in (PREFILL, DECODE) else name}
    meta = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _apart(pod: dict[str, Any], role: str) -> dict[str, Any]:
    """Return the pod with a role label, and with anti-affinity to the other one of the pair."""
    pod["metadata"]["labels"]["role"] = role.rpartition("-")[2]
    term = {
        "labelSelector": {"matchLabels": {_LABEL: "pair"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod["spec"]["affinity"] = {"podAntiAffinity": rule}
    return pod


def _listed(*objects: Mapping[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2)
