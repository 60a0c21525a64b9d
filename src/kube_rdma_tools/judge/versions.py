"""Rules about versions: the kinds and fields that the API server of a Kubernetes version has.

It refuses an object of a kind that it does not serve, and Helm the whole release with it. A field
that it does not know it drops, unless the client asks it to be strict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kube_rdma.model.install import Json
from kube_rdma_tools.judge.environment import Environment
from kube_rdma_tools.judge.judged_pods import ARMOR_ANNOTATION
from kube_rdma_tools.judge.violation import Violation

_ADMISSION, _RBAC = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
_ALWAYS = 0
# kubernetes.io "Deprecated API Migration Guide", and the feature gates of admission policies:
# ValidatingAdmissionPolicy is v1 in 1.30, MutatingAdmissionPolicy in 1.36 (v1alpha1 in 1.32 and
# v1beta1 in 1.34 are off by default). From which minor version on, and the first without it.
SERVED: dict[tuple[str, str], tuple[int, int | None]] = {
    **{
        ("v1", kind): (_ALWAYS, None)
        for kind in ("Namespace", "ServiceAccount", "ConfigMap", "Secret", "Service", "Pod")
    },
    ("v1", "ResourceQuota"): (_ALWAYS, None),
    **{("apps/v1", kind): (9, None) for kind in ("DaemonSet", "Deployment", "StatefulSet")},
    ("batch/v1", "Job"): (_ALWAYS, None),
    ("batch/v1", "CronJob"): (21, None),
    ("batch/v1beta1", "CronJob"): (8, 25),
    ("policy/v1", "PodDisruptionBudget"): (21, None),
    ("policy/v1beta1", "PodDisruptionBudget"): (5, 25),
    ("policy/v1beta1", "PodSecurityPolicy"): (10, 25),
    **{
        (f"{_RBAC}/v1", kind): (8, None)
        for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    },
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): (16, None),
    ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"): (7, 22),
    ("scheduling.k8s.io/v1", "PriorityClass"): (14, None),
    ("coordination.k8s.io/v1", "Lease"): (14, None),
    ("networking.k8s.io/v1", "NetworkPolicy"): (7, None),
    (f"{_ADMISSION}/v1", "ValidatingWebhookConfiguration"): (16, None),
    (f"{_ADMISSION}/v1", "MutatingWebhookConfiguration"): (16, None),
    (f"{_ADMISSION}/v1", "ValidatingAdmissionPolicy"): (30, None),
    (f"{_ADMISSION}/v1", "ValidatingAdmissionPolicyBinding"): (30, None),
    (f"{_ADMISSION}/v1", "MutatingAdmissionPolicy"): (36, None),
    (f"{_ADMISSION}/v1", "MutatingAdmissionPolicyBinding"): (36, None),
}
_EACH = "*"
_ANYWHERE = "**"
_ARMOR = "appArmorProfile"
_POD = ("spec", "template", "spec")
_CONTAINERS = tuple((*_POD, name, _EACH) for name in ("containers", "initContainers"))
# kubernetes.io "Feature Gates (removed)" and "Feature Gates": the minor version in which a field is
# on by default, and what is lost before it. Paths begin at the object; * is every entry of a list.
FIELDS: tuple[tuple[tuple[str, ...], int, str], ...] = (
    *(
        ((*path, "securityContext", _ARMOR), 30, "the container keeps the profile")
        for path in (*_CONTAINERS, _POD)
    ),
    *(
        ((*path, "securityContext", "seccompProfile"), 19, "no seccomp profile is set")
        for path in (*_CONTAINERS, _POD)
    ),
    *(((*path, "restartPolicy"), 29, "a sidecar holds the pod's start up") for path in _CONTAINERS),
    *(((*path, "resizePolicy"), 33, "a resize restarts the container") for path in _CONTAINERS),
    ((*_POD, "hostUsers"), 33, "the pod has the users of the host"),
    ((*_POD, "schedulingGates"), 27, "the pod is scheduled at once"),
    ((*_POD, "os"), 24, "the system of nodes is not looked at"),
    ((*_POD, "topologySpreadConstraints", _EACH, "matchLabelKeys"), 27, "revisions count as one"),
    ((*_POD, "topologySpreadConstraints", _EACH, "nodeTaintsPolicy"), 26, "tainted nodes count"),
    (("spec", "updateStrategy", "rollingUpdate", "maxSurge"), 22, "pods end before new ones run"),
    (("spec", "unhealthyPodEvictionPolicy"), 27, "unhealthy pods hold drains up"),
    (("spec", "podFailurePolicy"), 26, "every failure counts"),
    (("webhooks", _EACH, "matchConditions"), 28, "the webhook is called for every object"),
    (("spec", "versions", _EACH, "selectableFields"), 31, "nothing can be selected by the field"),
    ((_ANYWHERE, "x-kubernetes-validations"), 25, "the object's rules are not checked"),
)


def unserved_kind(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The API server has no such kind: the object, and with Helm the release, is refused."""
    own = {
        (f"{made['spec']['group']}/{version['name']}", made["spec"]["names"]["kind"])
        for made in objects
        if made["kind"] == "CustomResourceDefinition"
        for version in made["spec"]["versions"]
    }
    taken = {
        (definition.group, definition.kind)
        for neighbour in environment.neighbours
        for definition in neighbour.definitions
    }
    for made in objects:
        kind = (made["apiVersion"], made["kind"])
        since, until = SERVED.get(kind, (None, None))
        others = (made["apiVersion"].rpartition("/")[0], made["kind"]) in taken
        if (
            others
            or kind in own
            or (
                since is not None
                and since <= environment.kubernetes
                and (until is None or environment.kubernetes < until)
            )
        ):
            continue
        yield Violation(
            f"{made['kind']}/{made['metadata']['name']}",
            "",
            "apiVersion",
            f"Kubernetes 1.{environment.kubernetes} does not serve {' '.join(kind)}"
            + (f", which comes with 1.{since}" if since and not until else ""),
            "leave the object out where the version does not serve its kind",
        )


def unknown_field(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The API server drops an unknown field."""
    later = [row for row in FIELDS if row[1] > environment.kubernetes]
    for made in objects:
        for path, since, loss in later:
            places = list(_at(made, path))
            # Of a definition's many rules the first stands for all.
            for shown in places[:1] if path[0] == _ANYWHERE else places:
                container = _container(shown)
                if path[-1] == _ARMOR and _has_annotation(made, container):
                    continue
                yield Violation(
                    f"{made['kind']}/{made['metadata']['name']}",
                    container,
                    shown,
                    f"Kubernetes 1.{environment.kubernetes} drops it, it comes with 1.{since}: "
                    f"{loss}",
                    "say the same in a way that this version knows, or document the loss",
                )


def _has_annotation(made: Json, container: str) -> bool:
    """Decide whether the container also has its AppArmor profile as the older annotation."""
    metadata = made["spec"].get("template", made).get("metadata", {})
    return f"{ARMOR_ANNOTATION}{container}" in (metadata.get("annotations") or {})


def _container(path: str) -> str:
    """Return the name of the container in a field's path, "" for none."""
    for name in ("containers[", "initContainers["):
        if name in path:
            return path.partition(name)[2].partition("]")[0]
    return ""


def _at(node: Any, path: Sequence[str], shown: str = "") -> Iterator[str]:
    """Yield as text every place below `node` that a path with wildcards matches."""
    if not path:
        yield shown.lstrip(".")
        return
    first, rest = path[0], path[1:]
    if first == _ANYWHERE:
        yield from _anywhere(node, rest, shown)
    elif first == _EACH:
        for index, entry in enumerate(node if isinstance(node, list) else ()):
            name = entry.get("name", index) if isinstance(entry, dict) else index
            yield from _at(entry, rest, f"{shown}[{name}]")
    elif isinstance(node, dict) and first in node:
        yield from _at(node[first], rest, f"{shown}.{first}")


def _anywhere(node: Any, path: Sequence[str], shown: str) -> Iterator[str]:
    """Yield every place that a path matches, from this node or any below it."""
    yield from _at(node, path, shown)
    if isinstance(node, dict):
        for name, inner in node.items():
            yield from _anywhere(inner, path, f"{shown}.{name}")
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            yield from _anywhere(inner, path, f"{shown}[{index}]")
