"""Rules about objects that others name or need, and about the form of each object.

An object that another one names is in the installation, or in every cluster of this kind. A
Namespace and a CRD come before the objects that need them. These rules hold in every environment;
they find slips of the rendering itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kube_rdma.model.install import Json
from kube_rdma_tools.judge.environment import Environment
from kube_rdma_tools.judge.judged_pods import DEFAULT_ACCOUNT, JudgedPod, judged_pods
from kube_rdma_tools.judge.security_constraints import CONSTRAINT_ROLE
from kube_rdma_tools.judge.violation import Violation

_NAMESPACES = frozenset(("default", "kube-system", "kube-public", "kube-node-lease"))
_CLASSES = frozenset(("", "system-node-critical", "system-cluster-critical"))
_ROLES = frozenset(("view", "edit", "admin", "cluster-admin"))
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SEGMENT = re.compile(r"[^/%]+")  # names of roles and bindings
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_RIGHTS = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_LONGEST_NAME, _LONGEST_VALUE = 253, 63


def missing_reference(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """An object names another one that neither the installation nor the cluster has."""
    present = {
        (made["kind"], made["metadata"].get("namespace", ""), made["metadata"]["name"])
        for made in objects
    }
    for made in objects:
        for field, wanted in _wanted(made):
            if wanted not in present and not _is_of_cluster(*wanted, environment):
                kind, namespace, name = wanted
                yield Violation(
                    f"{made['kind']}/{made['metadata']['name']}",
                    "",
                    field,
                    f"there is no {kind} {name}{f' in {namespace}' if namespace else ''}",
                    "render it too, or name one that exists",
                )


def _wanted(made: Json) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yield the objects that an object refers to: field, and kind, namespace and name.

    A pod without a priority class yields one with the empty name.
    """
    namespace = made["metadata"].get("namespace", "")
    if namespace:
        yield "metadata.namespace", ("Namespace", "", namespace)
    if made["kind"] in ("RoleBinding", "ClusterRoleBinding"):
        kind, name = made["roleRef"]["kind"], made["roleRef"]["name"]
        yield "roleRef", (kind, namespace if kind == "Role" else "", name)
        for subject in made.get("subjects", ()):
            if subject["kind"] == "ServiceAccount":
                yield "subjects", ("ServiceAccount", subject["namespace"], subject["name"])
    if made["kind"].endswith("AdmissionPolicyBinding"):
        kind = made["kind"].removesuffix("Binding")
        yield "spec.policyName", (kind, "", made["spec"]["policyName"])
    for pod in judged_pods([made]):
        yield from _wanted_by_pod(pod)


def _wanted_by_pod(pod: JudgedPod) -> Iterator[tuple[str, tuple[str, str, str]]]:
    if pod.account != DEFAULT_ACCOUNT:
        field = f"{pod.path}.serviceAccountName"
        yield field, ("ServiceAccount", pod.namespace, pod.account)
    yield (
        f"{pod.path}.priorityClassName",
        (
            "PriorityClass",
            "",
            pod.spec.get("priorityClassName", ""),
        ),
    )
    for volume in pod.spec.get("volumes") or ():
        for key, kind, name in (
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
        ):
            if key in volume and not volume[key].get("optional"):
                path = f"{pod.path}.volumes[{volume['name']}]"
                yield path, (kind, pod.namespace, volume[key][name])


def _is_of_cluster(kind: str, namespace: str, name: str, environment: Environment) -> bool:
    """Decide whether every cluster of the kind has the object; PriorityClass "" stands for none."""
    match kind:
        case "Namespace":
            return name in _NAMESPACES
        case "PriorityClass":
            return name in _CLASSES
        case "ClusterRole" if name.startswith(CONSTRAINT_ROLE):
            rows = {f"{CONSTRAINT_ROLE}{row.name}" for row in environment.constraints}
            return name in rows
        case "ClusterRole":
            return name in _ROLES or name.startswith("system:")
        case _:
            return False


def late_object(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """An object stands before the Namespace or definition that it needs: `apply` refuses it."""
    del environment
    order = {(made["kind"], made["metadata"]["name"]): index for index, made in enumerate(objects)}
    definitions = {
        (made["spec"]["group"], made["spec"]["names"]["kind"]): ("CustomResourceDefinition", name)
        for made in objects
        if made["kind"] == "CustomResourceDefinition" and (name := made["metadata"]["name"])
    }
    for index, made in enumerate(objects):
        group = made["apiVersion"].rpartition("/")[0]
        needed = (
            ("metadata.namespace", ("Namespace", made["metadata"].get("namespace", ""))),
            ("kind", definitions.get((group, made["kind"]), ("", ""))),
        )
        for field, first in needed:
            if order.get(first, -1) > index:
                yield Violation(
                    f"{made['kind']}/{made['metadata']['name']}",
                    "",
                    field,
                    f"it stands before {'/'.join(first)}, which it needs",
                    "render the other one first",
                )


def malformed_object(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The API server refuses the object: a name, a label, a selector or a mount is wrong."""
    del environment
    names = Counter(
        (made["kind"], made["metadata"].get("namespace"), made["metadata"]["name"])
        for made in objects
    )
    for made in objects:
        name, metadata = made["metadata"]["name"], made["metadata"]
        form = _SEGMENT if made["kind"] in _RIGHTS else _SUBDOMAIN
        faults = []
        if len(name) > _LONGEST_NAME or not form.fullmatch(name):
            faults.append(("metadata.name", f"{name} is no name of a {made['kind']}"))
        if names[made["kind"], metadata.get("namespace"), name] > 1:
            faults.append(("metadata.name", "two objects have it"))
        faults += _of_labels("metadata.labels", metadata.get("labels") or {})
        faults += [fault for pod in judged_pods([made]) for fault in _of_pod(made, pod)]
        for field, problem in faults:
            where = f"{made['kind']}/{name}"
            yield Violation(where, "", field, problem, "write it as the API server takes it")


def _of_labels(field: str, labels: Json) -> Iterator[tuple[str, str]]:
    for key, value in labels.items():
        if len(value) > _LONGEST_VALUE or not _VALUE.fullmatch(value):
            yield f"{field}[{key}]", f"{value!r} is no value of a label"


def _of_pod(made: Json, pod: JudgedPod) -> Iterator[tuple[str, str]]:
    yield from _of_labels(f"{pod.path}.labels", pod.labels)
    wanted = (made["spec"].get("selector") or {}).get("matchLabels") or {}
    if not wanted.items() <= pod.labels.items():
        yield "spec.selector", "its own pods do not have the labels"
    volumes = {volume["name"] for volume in pod.spec.get("volumes") or ()}
    for container in pod.containers:
        mounts = [mount["name"] for mount in container.body.get("volumeMounts") or ()]
        for name in sorted(set(mounts) - volumes):
            yield f"{container.path}.volumeMounts[{name}]", "there is no volume of this name"
