"""What agents, the controller and the operator may do at the API server, and who they are.

Each has a service account of its own. An agent's rights are the same in every preset; what of them
reaches beyond its own node, the policy of admission.py takes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.blueprint import Blueprint, Hole, Json, Node, When, joined

AGENT = "kube-rdma-agent"
NAMESPACE = Hole("namespace.name")
CONTROLLER = Hole("seed.controller")

_RBAC = "rbac.authorization.k8s.io"
_PRIVILEGED = "system:openshift:scc:privileged"  # OpenShift has a role for each constraint


def _rule(group: str, resource: str, verbs: str) -> Json:
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}


AGENT_RULES: Sequence[Node] = (
    _rule("", "nodes", "get list watch"),
    _rule("", "nodes/status", "patch"),  # the condition kube-rdma.io/CardsHealthy
    _rule("kube-rdma.io", "nodereports", "get list watch create patch"),
    _rule("kube-rdma.io", "nodereports/status", "patch"),
    When("agent.startupTaint", _rule("", "nodes", "patch")),
    _rule("", "pods", "get list watch patch"),
    _rule("k8s.cni.cncf.io", "network-attachment-definitions", "get"),
    _rule("kube-rdma.io", "ippools", "get list watch create"),
    _rule("kube-rdma.io", "ippools/status", "get update patch"),
    _rule("kube-rdma.io", "ipblocks", "get list watch create update delete"),
    _rule("events.k8s.io", "events", "create patch"),
)
AGENT_LEASES: Sequence[Node] = (
    _rule("coordination.k8s.io", "leases", "get list watch create update"),
)
CONTROLLER_RULES: Sequence[Node] = (
    _rule("", "nodes", "get list watch"),
    _rule("", "pods", "list"),
    _rule("", "pods/eviction", "create"),
    _rule("kube-rdma.io", "ippools", "get list watch"),
    _rule("kube-rdma.io", "ippools/status", "update"),
    _rule("kube-rdma.io", "ipblocks", "get list watch update delete"),
    _rule("events.k8s.io", "events", "create patch"),
)
_OPERATOR_RULES = (
    _rule("mellanox.com", "nicclusterpolicies", "get list watch"),
    _rule("mellanox.com", "nicclusterpolicies/status", "patch"),
    # An owner that blocks its own deletion has to be allowed to.
    _rule("mellanox.com", "nicclusterpolicies/finalizers", "update"),
    _rule("apps", "daemonsets", "get list watch create patch delete"),
    _rule("", "configmaps", "get list watch create patch delete"),
)
NAMESPACE_RULES: Sequence[Node] = (
    _rule("coordination.k8s.io", "leases", "get list watch update delete"),
    *(When("seed.operator", rule) for rule in _OPERATOR_RULES),
)


def agent_rights() -> tuple[Blueprint, ...]:
    """The agent's account and its roles. Without networks it has none, but on OpenShift."""
    networks = ("agent.enabled", "seed.networks")
    cluster = joined(NAMESPACE, "-agent")
    return (
        Blueprint(_account(AGENT), ("agent.enabled", "seed.account")),
        Blueprint(_role("ClusterRole", cluster, AGENT_RULES), networks),
        Blueprint(_role("Role", AGENT, AGENT_LEASES), networks),
        Blueprint(_binding("Role", AGENT, AGENT), networks),
        Blueprint(_binding("ClusterRole", cluster, AGENT), networks),
        Blueprint(_constraint(), ("agent.enabled", "seed.constraints")),
    )


def controller_rights() -> tuple[Blueprint, ...]:
    """The controller's account and its roles; the operator's are these and more."""
    enabled = ("controller.enabled",)
    # The operator's role is called as that of 0.1.0, whatever its namespace.
    cluster = When("seed.operator", CONTROLLER, joined(NAMESPACE, "-controller"))
    return (
        Blueprint(_account(CONTROLLER), enabled),
        Blueprint(_role("ClusterRole", cluster, CONTROLLER_RULES), enabled),
        Blueprint(_binding("ClusterRole", cluster, CONTROLLER), enabled),
        Blueprint(_role("Role", CONTROLLER, NAMESPACE_RULES), enabled),
        Blueprint(_binding("Role", CONTROLLER, CONTROLLER), enabled),
    )


def _account(name: Node) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _role(kind: str, name: Node, rules: Sequence[Node]) -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": _metadata(kind, name),
        "rules": list(rules),
    }


def _binding(kind: str, name: Node, account: Node) -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(kind, name),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }


def _metadata(kind: str, name: Node) -> Json:
    return {"name": name} if kind == "ClusterRole" else {"name": name, "namespace": NAMESPACE}


def _constraint() -> Json:
    """What `oc adm policy add-scc-to-user privileged -z kube-rdma-agent` makes."""
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _PRIVILEGED}
    return {
        **_binding("Role", f"{AGENT}-{_PRIVILEGED.rpartition(':')[2]}", AGENT),
        "roleRef": role,
    }
