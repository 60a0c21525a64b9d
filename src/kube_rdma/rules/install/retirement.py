"""The end of an installation: who must be gone before, and the Job that Helm runs for it.

An agent cannot tell an uninstall from an update, and Helm takes its rights while it still puts
things back. So a hook ends the agents first, and refuses while pods have networks that only an
agent can take back. Of an operator it refuses while drivers run: Helm would take their namespace,
and with it all of them at once. Plain manifests have no hook: who deletes them runs `kube-rdma
network retire`, or `retire-drivers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_base.errors import Refused
from kube_rdma.model.install.blueprint import Blueprint, Hole, Json, Node, joined
from kube_rdma.model.pod import PodState
from kube_rdma.rules.install.rights import NAMESPACE, account, binding, role, rule
from kube_rdma.rules.install.workloads import (
    IMAGE,
    SECRETS,
    UNPRIVILEGED,
    leaving_mounts,
    leaving_pod,
)
from kube_rdma.rules.phrases import listed

NAME, LEAVING = "kube-rdma-retirement", "kube-rdma-leaving"
_ENDED = frozenset(("Succeeded", "Failed"))
_CONDITIONS = ("agent.enabled", "seed.networks")
_OPERATOR = ("seed.operator",)
DRIVERS_NAME = f"{NAME}-drivers"


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


def drivers_run(nodes: Iterable[str], daemon_sets: Iterable[str]) -> Refused | None:
    """Why an operator may not go yet: its drivers, on these nodes, by these DaemonSets."""
    names, sets = sorted(set(nodes)), sorted(daemon_sets)
    if not sets:
        return None
    where = f"on nodes {listed(names)}" if names else f"by DaemonSet {listed(sets)}"
    return Refused(
        f"drivers of a NicClusterPolicy run {where}, and would all be unloaded at once",
        remedy="Delete the policy and wait until the operator has unloaded them node by node "
        "(docs/drivers.md); to end them all the same: helm uninstall --no-hooks",
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
        *_drivers(loud),
    )


def _drivers(loud: Mapping[str, str]) -> tuple[Blueprint, ...]:
    """The operator's part of the hook, which looks and touches nothing."""
    own: Node = [rule("apps", "daemonsets", "list"), rule("", "pods", "list")]
    rights = (
        account(DRIVERS_NAME),
        role("Role", DRIVERS_NAME, own),
        binding("Role", DRIVERS_NAME, DRIVERS_NAME),
    )
    job = _job(DRIVERS_NAME, ["network", "retire-drivers"], DRIVERS_NAME)
    return (
        *(Blueprint(body, _OPERATOR, notes=_hook(-1), for_helm=True) for body in rights),
        Blueprint(job, _OPERATOR, notes=_hook(0, **loud), for_helm=True),
    )


def _job(name: str, arguments: list[Node], who: str = NAME) -> Json:
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
        "serviceAccountName": who,
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
