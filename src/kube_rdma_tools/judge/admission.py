"""Rules of the API server about pods: Pod Security levels, OpenShift's constraints, quotas.

A pod that is refused never exists: its DaemonSet or Deployment stays at zero, and the reason stands
in Events that people see late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.model.install import Json
from kube_rdma_tools.judge.environment import EVERY, Environment, SecurityConstraint, SecurityLevel
from kube_rdma_tools.judge.judged_pods import JudgedPod, judged_pods
from kube_rdma_tools.judge.openshift import admitted_by, refusals
from kube_rdma_tools.judge.pod_security import controls
from kube_rdma_tools.judge.violation import Violation

_LEVEL_LABEL = "pod-security.kubernetes.io/enforce"
_FIRST_LEVELS = 23  # the minor version in which the API server enforces levels by default
_QUOTA_SCOPE = "PriorityClass"


def pod_security(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The namespace's Pod Security level forbids the pod."""
    if environment.kubernetes < _FIRST_LEVELS:
        return
    for pod in judged_pods(objects):
        level = _level(objects, pod.namespace, environment)
        for control in controls(level):
            for breach in control.breaches(pod):
                yield pod.violation(
                    breach.field,
                    f"{control.name}: {breach.value} is forbidden at level {level}, which "
                    f"namespace {pod.namespace} has",
                    f"label the namespace {_LEVEL_LABEL}=privileged, or do without",
                    breach.container,
                )


def _level(objects: Sequence[Json], namespace: str, environment: Environment) -> SecurityLevel:
    """Return the Pod Security level enforced in a namespace, by label or the cluster's default."""
    if namespace in environment.exempt:
        return SecurityLevel.PRIVILEGED
    for made in objects:
        if (made["kind"], made["metadata"]["name"]) == ("Namespace", namespace):
            label = (made["metadata"].get("labels") or {}).get(_LEVEL_LABEL)
            if label:
                return SecurityLevel(label)
    return environment.level


def constraint(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """No SecurityContextConstraints of the pod's account admits the pod."""
    for pod in judged_pods(objects):
        if not environment.constraints or pod.namespace in environment.exempt:
            continue
        bound = admitted_by(objects, pod, environment.constraints)
        judged = [(constraint, tuple(refusals(pod, constraint))) for constraint in bound]
        if all(breaches for _, breaches in judged):
            yield from _refused(pod, min(judged, key=lambda entry: len(entry[1]), default=None))


def _refused(
    pod: JudgedPod, nearest: tuple[SecurityConstraint, tuple[tuple[str, str, str], ...]] | None
) -> Iterator[Violation]:
    """Yield a violation for each field that the `nearest` constraint refuses; none without one."""
    if nearest is None:
        return
    row, breaches = nearest
    containers = {container.name: container for container in pod.containers}
    for name, field, value in breaches:
        yield pod.violation(
            field,
            f"{value} is refused by {row.name}, the nearest constraint that its account has",
            "leave it out, or bind the account to a constraint that allows it",
            containers.get(name),
        )


def priority_quota(objects: Sequence[Json], environment: Environment) -> Iterator[Violation]:
    """The namespace has no quota for the pod's priority class, where one is needed."""
    for pod in judged_pods(objects):
        wanted = pod.spec.get("priorityClassName", "")
        if wanted not in environment.quota_classes or pod.namespace == "kube-system":
            continue
        if not _quotas(objects, pod.namespace) & {wanted, *EVERY}:
            yield pod.violation(
                "priorityClassName",
                f"{wanted} needs a ResourceQuota with scope {_QUOTA_SCOPE} in namespace "
                f"{pod.namespace}: no pod is created",
                "add a quota for this class to the namespace",
            )


def _quotas(objects: Sequence[Json], namespace: str) -> frozenset[str]:
    """Return the priority classes that quotas of a namespace name, "*" for a quota of all."""
    return frozenset(
        value
        for made in objects
        if made["kind"] == "ResourceQuota" and made["metadata"].get("namespace") == namespace
        for expression in made["spec"].get("scopeSelector", {}).get("matchExpressions", ())
        if expression["scopeName"] == _QUOTA_SCOPE and expression["operator"] in ("In", "Exists")
        for value in expression.get("values") or EVERY
    )
