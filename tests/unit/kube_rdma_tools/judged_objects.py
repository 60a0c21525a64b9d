"""Objects for the judge's tests: whole ones, of which a test spoils a part."""

from __future__ import annotations

from typing import Any

CONTAINER: dict[str, Any] = {
    "name": "agent",
    "image": "registry.example.com/agent:1",
    "securityContext": {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
EVERYWHERE = [{"operator": "Exists"}]


def container(**fields: Any) -> dict[str, Any]:
    """A container that level restricted allows, but for these fields of its security context."""
    return CONTAINER | {"securityContext": CONTAINER["securityContext"] | fields}


def workload(
    kind: str = "DaemonSet", *containers: dict[str, Any], namespace: str = "team", **spec: Any
) -> dict[str, Any]:
    """A DaemonSet or the like whose pod has these fields."""
    labels = {"name": "agent"}
    pod = {"containers": list(containers) or [CONTAINER], **spec}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "agent", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def mounting(
    path: str, name: str = "folder", security: dict[str, Any] | None = None, **mount: Any
) -> dict[str, Any]:
    """A DaemonSet that mounts a folder of the host."""
    body = container(**(security or {})) | {
        "volumeMounts": [{"name": name, "mountPath": "/x", **mount}]
    }
    return workload("DaemonSet", body, volumes=[{"name": name, "hostPath": {"path": path}}])


def plain(api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    """An object with a name and these fields."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **fields}


def namespace(name: str = "team", **labels: str) -> dict[str, Any]:
    """A namespace, with a Pod Security level."""
    made = plain("v1", "Namespace", name)
    level = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
    made["metadata"]["labels"] = level
    return made


def definition(name: str, kind: str, scope: str = "Cluster", **version: Any) -> dict[str, Any]:
    """A CustomResourceDefinition by plural.group."""
    plural, _, group = name.partition(".")
    versions = [{"name": "v1", "served": True, "storage": True, **version}]
    names = {"kind": kind, "plural": plural}
    spec = {"group": group, "scope": scope, "names": names, "versions": versions}
    return plain("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=spec)


def bound(role: str, account: str = "default", place: str = "team") -> dict[str, Any]:
    """A RoleBinding of an account to a ClusterRole."""
    made = plain("rbac.authorization.k8s.io/v1", "RoleBinding", "agent")
    made["metadata"]["namespace"] = place
    subject = {"kind": "ServiceAccount", "name": account, "namespace": place}
    return made | {"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject]}
