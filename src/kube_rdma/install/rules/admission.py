"""The policies that hold agents and an operator to what they do, at the API server.

A role knows no nodes and no fields. A policy asks the token, which since Kubernetes 1.30 names the
node of its pod, and compares what is written with what was there (agent_cel). Every installation
has policies of its own, for the accounts of its namespace, so that none goes with another one;
config/admission has the agents' for accounts of every namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_rdma.install.rules import agent_cel
from kube_rdma.model.install import NAMESPACE, OWN_NAMES, Blueprint, Hole, Json, Node, joined
from kube_rdma.operator.rules.placement import PLACE_LABELS, READY_LABEL

AGENTS = "agents-own-node.kube-rdma.io"
OPERATOR = "operator-closes-nodes.kube-rdma.io"
# The accounts of objects/rights.yaml.
_AGENT, _CONTROLLER = Hole("platform.agentAccount"), Hole("platform.controller")
_API = "admissionregistration.k8s.io/v1"
_ANYWHERE = "request.userInfo.username.matches('^system:serviceaccount:[^:]+:kube-rdma-agent$')"

# What the agents' policy looks at: group, version, operations and resources.
_CONCERNED = (
    ("", "v1", "UPDATE", "pods pods/status nodes nodes/status"),
    ("coordination.k8s.io", "v1", "CREATE UPDATE", "leases"),
    ("resource.k8s.io", "v1", "CREATE UPDATE DELETE", "resourceslices"),
    ("resource.k8s.io", "v1", "UPDATE", "resourceclaims/status"),
    (
        "kube-rdma.io",
        "v1alpha1",
        "CREATE UPDATE",
        "nodereports nodereports/status ipblocks ippools ippools/status",
    ),
)
# An operator closes nodes, marks them as closed by it, and says which drivers are theirs.
_MARK = "kube-rdma.io/closed-for-upgrade"
_LABELS = (*PLACE_LABELS.values(), READY_LABEL)
_OPERATOR_VARIABLES = {
    "fields": "['spec.unschedulable', 'metadata.labels', 'metadata.annotations', "
    "'metadata.generation', 'metadata.resourceVersion', 'metadata.managedFields']",
    "strays": agent_cel.changed_fields("variables.fields"),
    "labels": agent_cel.changed_keys("labels"),
    "annotations": agent_cel.changed_keys("annotations"),
}
_OPERATOR_VALIDATIONS = (
    (
        (
            "variables.strays.all(parts, parts.all(paths, paths.size() == 0)) && "
            f"variables.labels.all(keys, keys.all(key, key in {list(_LABELS)!r})) && "
            f"variables.annotations.all(keys, keys.all(key, key == '{_MARK}'))"
        ),
        "message",
        (
            f"An operator changes nothing of a node but {', '.join(_LABELS)}, {_MARK}, and whether "
            "it takes pods."
        ),
    ),
)


def policies() -> tuple[Blueprint, ...]:
    """The policies of an installation, each with what puts it into force."""
    conditions = ("admission.install", "platform.validatingPolicies")
    # `kube-rdma status` looks for them by namespace.
    agents = _agents(joined(NAMESPACE, ".", OWN_NAMES, AGENTS), _is(_AGENT))
    operator = _policy(
        joined(NAMESPACE, ".", OWN_NAMES, OPERATOR),
        _is(_CONTROLLER),
        (("", "v1", "UPDATE", "nodes nodes/status"),),
        (_OPERATOR_VARIABLES, _OPERATOR_VALIDATIONS),
    )
    return (
        *(Blueprint(body, conditions) for body in agents),
        *(Blueprint(body, (*conditions, "platform.operator")) for body in operator),
    )


def anywhere() -> tuple[Json, Json]:
    """The policy for agents of every namespace, as config/admission has it."""
    return _agents(AGENTS, _ANYWHERE)


def _agents(name: Node, who: Node) -> tuple[Json, Json]:
    return _policy(name, who, _CONCERNED, (agent_cel.VARIABLES, agent_cel.VALIDATIONS))


def _is(name: Node) -> Node:
    """Whether an account of the namespace asks."""
    return joined("request.userInfo.username == 'system:serviceaccount:", NAMESPACE, ":", name, "'")


def _policy(
    name: Node,
    who: Node,
    rows: Sequence[tuple[str, str, str, str]],
    texts: tuple[Mapping[str, str], Sequence[tuple[str, str, str]]],
) -> tuple[Json, Json]:
    """A policy and what puts it into force: whom it holds, what it looks at, what has to hold."""
    variables, validations = texts
    metadata = {"name": name}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule(*row) for row in rows]},
        "matchConditions": [{"name": "account", "expression": who}],
        "variables": [{"name": key, "expression": text} for key, text in variables.items()],
        "validations": [
            {"expression": expression, kind: sentence, "reason": "Forbidden"}
            for expression, kind, sentence in validations
        ],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    head: Json = {"apiVersion": _API}
    kind = "ValidatingAdmissionPolicy"
    return (
        {**head, "kind": kind, "metadata": metadata, "spec": spec},
        {**head, "kind": f"{kind}Binding", "metadata": metadata, "spec": bound},
    )


def _rule(group: str, version: str, operations: str, resources: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations.split(),
        "resources": resources.split(),
    }
