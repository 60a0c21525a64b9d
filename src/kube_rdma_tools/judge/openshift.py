"""Admission of a pod in OpenShift: one of the constraints bound to its account has to admit it.

A field that the pod leaves out is no reason to refuse: the constraint fills it in (a user, a
seccomp profile, dropped capabilities). A field that the pod sets to another value is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kube_rdma.model.install import Json
from kube_rdma_tools.judge.environment import SecurityConstraint, UserRange
from kube_rdma_tools.judge.judged_pods import JudgedPod
from kube_rdma_tools.judge.pod_security import (
    Breach,
    added_capabilities,
    contexts,
    host_namespaces,
    host_ports,
    privileged_containers,
    volume_types,
)
from kube_rdma_tools.judge.security_constraints import CONSTRAINT_ROLE, SMALLEST_USER, USERS

Refusal: TypeAlias = tuple[str, str, str]
"""The name of a container or "", a field and its value."""


def admitted_by(
    objects: Sequence[Json], pod: JudgedPod, constraints: Sequence[SecurityConstraint]
) -> tuple[SecurityConstraint, ...]:
    """Return the constraints of a pod's account: those that `objects` bind, and those `for_all`."""
    bound = {
        made["roleRef"]["name"].removeprefix(CONSTRAINT_ROLE)
        for made in objects
        if made["kind"] in ("RoleBinding", "ClusterRoleBinding")
        and made["roleRef"]["name"].startswith(CONSTRAINT_ROLE)
        and made["metadata"].get("namespace", pod.namespace) == pod.namespace
        and any(_is_account(subject, pod) for subject in made.get("subjects", ()))
    }
    return tuple(row for row in constraints if row.for_all or row.name in bound)


def _is_account(subject: Json, pod: JudgedPod) -> bool:
    """Decide whether a binding's subject is the pod's account or one of its groups."""
    if subject["kind"] == "ServiceAccount":
        return (subject["name"], subject["namespace"]) == (pod.account, pod.namespace)
    groups = ("system:authenticated", "system:serviceaccounts")
    return subject["name"] in (*groups, f"system:serviceaccounts:{pod.namespace}")


def refusals(pod: JudgedPod, row: SecurityConstraint) -> Iterator[Refusal]:
    """Yield each part of a pod that a constraint refuses, as container, field and value."""
    yield from _of_host(pod, row)
    yield from _of_rights(pod, row)
    yield from _of_users(pod, row)
    if not row.any_selinux:
        for container, options in contexts(pod, "seLinuxOptions"):
            name = container.name if container else ""
            yield name, "securityContext.seLinuxOptions", str(options.get("type", options))


def _of_host(pod: JudgedPod, row: SecurityConstraint) -> Iterator[Refusal]:
    if "*" not in row.host:
        for breach in host_namespaces(pod):
            if breach.field not in row.host:
                yield "", breach.field, breach.value
        for breach in () if "hostPort" in row.host else host_ports(pod):
            yield breach.container.name if breach.container else "", breach.field, breach.value
    if "*" not in row.volumes:
        for breach in volume_types(pod, row.volumes):
            yield "", breach.field, breach.value


def _of_rights(pod: JudgedPod, row: SecurityConstraint) -> Iterator[Refusal]:
    breaches: list[Breach] = []
    if not row.privileged:
        breaches += privileged_containers(pod)
    if "*" not in row.capabilities:
        breaches += added_capabilities(pod, row.capabilities)
    for breach in breaches:
        yield breach.container.name if breach.container else "", breach.field, breach.value
    if not row.escalation:
        for container in pod.containers:
            if container.security.get("allowPrivilegeEscalation"):
                yield container.name, "securityContext.allowPrivilegeEscalation", "true"
    if "*" not in row.seccomp:
        for holder, profile in contexts(pod, "seccompProfile"):
            if profile["type"] not in row.seccomp:
                name = holder.name if holder else ""
                yield name, "securityContext.seccompProfile.type", profile["type"]


def _of_users(pod: JudgedPod, row: SecurityConstraint) -> Iterator[Refusal]:
    for container in pod.containers:
        user = pod.effective(container, "runAsUser")
        if user is None:
            continue
        in_range = SMALLEST_USER <= user < SMALLEST_USER + USERS
        if (row.users is UserRange.OF_NAMESPACE and not in_range) or (
            row.users is UserRange.NOT_ROOT and user == 0
        ):
            yield container.name, "securityContext.runAsUser", str(user)
