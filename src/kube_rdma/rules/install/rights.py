"""What agents, the controller and the operator may do at the API server, and who they are.

Each has a service account of its own. An agent's rights are the same in every preset; what of them
reaches beyond its own node, the policy of admission.py takes back. Roles for people are there to be
bound by an administrator.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.install.blueprint import Blueprint, Hole, Json, Node, When, equals, joined

AGENT = "kube-rdma-agent"
NAMESPACE = Hole("namespace.name")
CONTROLLER = Hole("controller.name")

# The right, at no API, by which the policy of admission.py lets an agent write labels by which
# others start their drivers.
NFD_RIGHT = ("kube-rdma.io", "nfdlabels", "write")
NFD_LABELS = equals("agent.nodeLabels", "write-nfd")

_RBAC = "rbac.authorization.k8s.io"
_PRIVILEGED = "system:openshift:scc:privileged"  # OpenShift has a role for each constraint


def rule(group: str, resource: str, verbs: str) -> Json:
    """A rule of a role for one resource; `verbs` stand between blanks."""
    return {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}


AGENT_RULES: Sequence[Node] = (
    rule("", "nodes", "get list watch patch"),  # labels, and the startup taint
    When(NFD_LABELS, rule(*NFD_RIGHT)),
    rule("", "nodes/status", "patch"),  # the condition kube-rdma.io/CardsHealthy
    rule("kube-rdma.io", "nodepolicies", "get list watch"),
    rule("kube-rdma.io", "nodereports", "get list watch create patch"),
    rule("kube-rdma.io", "nodereports/status", "patch"),
    rule("", "pods", "get list watch patch"),
    rule("k8s.cni.cncf.io", "network-attachment-definitions", "get"),
    rule("kube-rdma.io", "ippools", "get list watch create"),
    rule("kube-rdma.io", "ippools/status", "update"),
    rule("kube-rdma.io", "ipblocks", "get list watch create update"),
    rule("events.k8s.io", "events", "create patch"),
)
AGENT_LEASES: Sequence[Node] = (rule("coordination.k8s.io", "leases", "get create update"),)
CONTROLLER_RULES: Sequence[Node] = (
    rule("", "nodes", "get list watch"),
    rule("", "pods", "list"),
    rule("", "pods/eviction", "create"),
    rule("kube-rdma.io", "ippools", "get list watch"),
    rule("kube-rdma.io", "ippools/status", "update"),
    rule("kube-rdma.io", "ipblocks", "get list watch update delete"),
    rule("kube-rdma.io", "nodepolicies", "get list watch"),
    rule("kube-rdma.io", "nodepolicies/status", "patch"),
    rule("kube-rdma.io", "nodereports", "get list watch"),
    rule("kube-rdma.io", "bandwidthchecks", "get list watch"),
    rule("kube-rdma.io", "bandwidthchecks/status", "patch"),
    rule("events.k8s.io", "events", "create patch"),
)
_OPERATOR_RULES = (
    rule("mellanox.com", "nicclusterpolicies", "get list watch"),
    rule("mellanox.com", "nicclusterpolicies/status", "patch"),
    # An owner that blocks its own deletion has to be allowed to.
    rule("mellanox.com", "nicclusterpolicies/finalizers", "update"),
    rule("apps", "daemonsets", "get list watch create patch delete"),
    rule("", "configmaps", "get list watch create patch delete"),
    rule("", "pods", "get list watch delete"),  # of drivers: their end is their upgrade
)
# Nodes are closed for an upgrade that drains; a policy of admission.py allows nothing else of them.
_OPERATOR_CLUSTER_RULES = (rule("", "nodes", "patch"),)
# What people need for `kube-rdma status`, `ip`, `explain` and a look at the objects.
VIEW_RULES: Sequence[Node] = (
    rule("", "nodes", "get list"),
    rule("", "pods", "get list"),
    rule("", "events", "list"),
    rule("apps", "daemonsets", "get list"),
    rule("apps", "deployments", "get list"),
    rule("kube-rdma.io", "*", "get list watch"),
    rule("k8s.cni.cncf.io", "network-attachment-definitions", "get list"),
    rule("mellanox.com", "nicclusterpolicies", "get list watch"),
    rule("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "list"),
)
# A namespace that binds the controller to these lets it do the BandwidthChecks there.
CHECK_RULES: Sequence[Node] = (
    rule("", "pods", "get list create delete"),
    rule("", "pods/exec", "get create"),
)
# What people need for `kube-rdma verify nodes` and for checks of their own; `verify pods` needs no
# more than pods and exec.
VERIFY_RULES: Sequence[Node] = (
    *CHECK_RULES,
    rule("", "nodes", "get list"),
    rule("kube-rdma.io", "bandwidthchecks", "get list watch create update patch delete"),
)
# Beside VIEW_RULES, for `kube-rdma top`: what the agents answer, passed on by the API server.
TOP_RULES: Sequence[Node] = (rule("", "pods/proxy", "get"),)
CLUSTER_RULES: Sequence[Node] = (
    *CONTROLLER_RULES,
    *(When("seed.operator", further) for further in _OPERATOR_CLUSTER_RULES),
)
NAMESPACE_RULES: Sequence[Node] = (
    rule("coordination.k8s.io", "leases", "get list watch create update delete"),
    *(When("seed.operator", further) for further in _OPERATOR_RULES),
)


def agent_rights() -> tuple[Blueprint, ...]:
    """The agent's account and its roles. Without networks it has none, but on OpenShift.

    An operator's agents are deployed by a policy, which may not make roles.
    """
    networks, operator = ("agent.enabled", "seed.networks"), ("seed.operator",)
    cluster = joined(NAMESPACE, "-agent")
    roles = (
        role("ClusterRole", cluster, AGENT_RULES),
        role("Role", AGENT, AGENT_LEASES),
        binding("Role", AGENT, AGENT),
        binding("ClusterRole", cluster, AGENT),
    )
    return (
        Blueprint(account(AGENT), ("agent.enabled", "seed.account")),
        *(Blueprint(body, networks) for body in roles),
        Blueprint(_constraint(), ("agent.enabled", "seed.constraints")),
        *(Blueprint(body, operator) for body in (account(AGENT), *roles)),
    )


def controller_rights() -> tuple[Blueprint, ...]:
    """The controller's account and its roles; the operator's are these and more."""
    enabled = ("controller.enabled",)
    # Of operators a cluster has one, whatever its namespace.
    cluster = When("seed.operator", CONTROLLER, joined(NAMESPACE, "-controller"))
    return (
        Blueprint(account(CONTROLLER), enabled),
        Blueprint(role("ClusterRole", cluster, CLUSTER_RULES), enabled),
        Blueprint(binding("ClusterRole", cluster, CONTROLLER), enabled),
        Blueprint(role("Role", CONTROLLER, NAMESPACE_RULES), enabled),
        Blueprint(binding("Role", CONTROLLER, CONTROLLER), enabled),
    )


def people_rights() -> tuple[Blueprint, ...]:
    """Roles that an administrator may bind people to; nobody has them by the installation.

    They are called the same wherever the installation is: documents name them.
    """
    enabled = ("controller.enabled", "roles.install")
    shared = (
        ("kube-rdma-view", VIEW_RULES),
        ("kube-rdma-verify", VERIFY_RULES),
        ("kube-rdma-bandwidth-check", CHECK_RULES),
    )
    return (
        *(Blueprint(role("ClusterRole", name, rules), enabled) for name, rules in shared),
        # Of the namespace alone: behind the proxy is every port of its pods.
        Blueprint(role("Role", "kube-rdma-top", TOP_RULES), ("agent.enabled", "metrics.port")),
    )


def account(name: Node) -> Json:
    """A service account of the namespace."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def role(kind: str, name: Node, rules: Sequence[Node]) -> Json:
    """A Role of the namespace or a ClusterRole."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": _metadata(kind, name),
        "rules": list(rules),
    }


def binding(kind: str, name: Node, who: Node) -> Json:
    """The binding of a role to an account of the namespace, or of a ClusterRole."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(kind, name),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": who, "namespace": NAMESPACE}],
    }


def _metadata(kind: str, name: Node) -> Json:
    return {"name": name} if kind == "ClusterRole" else {"name": name, "namespace": NAMESPACE}


def _constraint() -> Json:
    """What `oc adm policy add-scc-to-user privileged -z kube-rdma-agent` makes."""
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _PRIVILEGED}
    name = f"{AGENT}-{_PRIVILEGED.rpartition(':')[2]}"
    return {**binding("Role", name, AGENT), "roleRef": reference}
