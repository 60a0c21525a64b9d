"""The end of an installation: who must be gone before, and the Job that Helm runs for it.

An agent cannot tell an uninstall from an update, and Helm takes its rights while it still puts
things back. So a hook ends the agents first, and refuses while pods have networks that only an
agent can take back. Plain manifests have no hook: who deletes them runs `kube-rdma network retire`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_rdma.model.blueprint import Blueprint, Hole, Json, Node, joined
from kube_rdma.model.errors import Refused
from kube_rdma.model.pod import PodState
from kube_rdma.rules.install.rights import NAMESPACE, account, binding, role, rule
from kube_rdma.rules.install.workloads import IMAGE, SECRETS, UNPRIVILEGED

NAME = "kube-rdma-retirement"
_ENDED = frozenset(("Succeeded", "Failed"))
_HOOK = {
    "helm.sh/hook": "pre-delete",
    "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
}
_RIGHTS = {**_HOOK, "helm.sh/hook-weight": "-1"}
_JOB = {**_HOOK, "helm.sh/hook-output-log-policy": "hook-failed"}


def still_needed(pods: Iterable[PodState], annotation: str) -> Refused | None:
    """Why the agents may not go yet: pods that an agent wrote this annotation on, and that run."""
    names = sorted(
        f"{pod.namespace}/{pod.name}"
        for pod in pods
        if annotation in dict(pod.annotations) and pod.phase not in _ENDED
    )
    if not names:
        return None
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Refused(
        f"pods have networks that only an agent can take back: {shown}",
        remedy="End them first; to leave them to themselves, write --force (helm: --no-hooks)",
    )


def retirement() -> tuple[Blueprint, ...]:
    """The hook with rights that exist only while it runs."""
    cluster: Node = [rule("", "pods", "list")]
    own: Node = [rule("apps", "daemonsets", "get delete"), rule("", "pods", "list watch")]
    name = joined(NAMESPACE, "-retirement")
    rights = (
        account(NAME),
        role("ClusterRole", name, cluster),
        binding("ClusterRole", name, NAME),
        role("Role", NAME, own),
        binding("Role", NAME, NAME),
    )
    conditions = ("agent.enabled", "seed.networks")
    return (
        *(Blueprint(body, conditions, notes=_RIGHTS, for_helm=True) for body in rights),
        Blueprint(_job(), conditions, notes=_JOB, for_helm=True),
    )


def _job() -> Json:
    container = {
        "image": IMAGE,
        "name": "retirement",
        "args": ["network", "retire", Hole("seed.daemonSet")],
        "imagePullPolicy": Hole("image.pullPolicy"),
        "env": [
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            }
        ],
        "resources": Hole("controller.resources"),
        "securityContext": UNPRIVILEGED,
    }
    pod = {
        "serviceAccountName": NAME,
        "imagePullSecrets": SECRETS,
        "restartPolicy": "Never",
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"name": NAME}}, "spec": pod},
        },
    }
