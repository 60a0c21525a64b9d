"""The end of an installation: who must be gone before, and the Job that Helm runs for it.

An agent cannot tell an uninstall from an update, and Helm takes its rights while it still puts
things back. So a hook ends the agents first, and refuses while pods have networks that only an
agent can take back. Plain manifests have no hook: who deletes them runs `kube-rdma network retire`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_rdma.model.blueprint import Blueprint, Hole, Json, Node, joined
from kube_rdma.model.errors import Refused
from kube_rdma.model.pod import PodState
from kube_rdma.rules.install.rights import NAMESPACE, account, binding, role, rule
from kube_rdma.rules.install.workloads import (
    IMAGE,
    SECRETS,
    UNPRIVILEGED,
    leaving_mounts,
    leaving_pod,
)

NAME, LEAVING = "kube-rdma-retirement", "kube-rdma-leaving"
_ENDED = frozenset(("Succeeded", "Failed"))
_CONDITIONS = ("agent.enabled", "seed.networks")


def _hook(weight: int, **more: str) -> Mapping[str, str]:
    """Helm's notes for a part of the hook; those of smaller weight come first."""
    return {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-weight": str(weight),
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        **more,
    }


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
    """The hook: agents end, each node is cleaned, and only then Helm goes on.

    Its rights exist while it runs.
    """
    cluster: Node = [rule("", "pods", "list")]
    own: Node = [
        rule("apps", "daemonsets", "get list watch delete"),
        rule("", "pods", "list watch"),
    ]
    name = joined(NAMESPACE, "-retirement")
    rights = (
        account(NAME),
        role("ClusterRole", name, cluster),
        binding("ClusterRole", name, NAME),
        role("Role", NAME, own),
        binding("Role", NAME, NAME),
    )
    loud = {"helm.sh/hook-output-log-policy": "hook-failed"}
    retire, left = (["network", word] for word in ("retire", "left"))
    steps = (
        (_job(NAME, [*retire, Hole("seed.daemonSet")]), _hook(0, **loud)),
        (_leaving(), _hook(1)),
        (_job(f"{NAME}-left", [*left, LEAVING]), _hook(2, **loud)),
    )
    return (
        *(Blueprint(body, _CONDITIONS, notes=_hook(-1), for_helm=True) for body in rights),
        *(Blueprint(body, _CONDITIONS, notes=notes, for_helm=True) for body, notes in steps),
    )


def _job(name: str, arguments: list[Node]) -> Json:
    container = {
        "image": IMAGE,
        "name": "retirement",
        "args": arguments,
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
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"name": name}}, "spec": pod},
        },
    }


def _leaving() -> Json:
    """What takes shim, entry and records off each node, on the nodes that agents were on."""
    labels = {"name": LEAVING}
    command = ["network", "uninstall", "--host=/host", "--records"]
    pod = {
        **leaving_pod(),
        "initContainers": [_cleaner("leave", command)],
        # A DaemonSet's pods have to stay to count.
        "containers": [_cleaner("stay", [*command, "--stay"])],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": LEAVING, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _cleaner(name: str, arguments: list[Node]) -> Json:
    return {
        "image": IMAGE,
        "name": name,
        "args": arguments,
        "imagePullPolicy": Hole("image.pullPolicy"),
        "resources": Hole("agent.resources"),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"type": "spc_t"},
        },
        "volumeMounts": leaving_mounts(),
    }
