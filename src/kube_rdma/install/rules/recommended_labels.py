"""The labels that Kubernetes recommends, on every object and every pod of an installation.

By them people and programs find what belongs together, such as `kubectl get all -A -l
app.kubernetes.io/part-of=kube-rdma`: kubernetes.io "Recommended Labels", helm.sh "Labels and
Annotations". They stand beside the labels that workloads select by, for a selector cannot be
changed once it is installed. The release's own values of them are those of install/rules/release.
"""

from __future__ import annotations

from typing import Any

from kube_base.frozen import replace
from kube_rdma.model.install.blueprint import Blueprint, Hole, Json, Node

GROUP = "app.kubernetes.io/"
PRODUCT = "kube-rdma"
_LONGEST = 63  # characters of a label's value
_ENDS = "-_."  # which none begins or ends with


def recommended(component: str, instance: Node, version: Node, manager: Node) -> Json:
    """The six labels of an object."""
    return {
        f"{GROUP}name": PRODUCT,
        f"{GROUP}instance": instance,
        f"{GROUP}version": version,
        f"{GROUP}component": component,
        f"{GROUP}part-of": PRODUCT,
        f"{GROUP}managed-by": manager,
    }


def labelled(blueprint: Blueprint, part: str) -> Blueprint:
    """The blueprint of a part with the labels, also in the template of its pods."""
    labels = recommended(
        blueprint.component or part,
        Hole("platform.instance"),
        Hole("platform.version"),
        Hole("platform.manager"),
    )
    body = _with(blueprint.body, labels)
    spec = body.get("spec")
    if isinstance(spec, dict) and "template" in spec:
        body = {**body, "spec": {**spec, "template": _with(spec["template"], labels)}}
    return replace(blueprint, body=body)


def version_label(tag: str, digest: str = "") -> str:
    """The version of an image as a label: its digest where it has one, else its tag."""
    return (digest or tag).replace(":", "-")[:_LONGEST].strip(_ENDS)


def _with(body: Json, labels: Json) -> dict[str, Any]:
    """The same with the labels in its metadata, behind the labels that it has."""
    metadata = {**body["metadata"], "labels": {**body["metadata"].get("labels", {}), **labels}}
    return {**body, "metadata": metadata}
