"""The policy that holds each agent to its own node, as config/admission has it with its reasons.

A role knows no nodes; this one asks the token, which since Kubernetes 1.30 names the node of its
pod. The texts are CEL; a test compares them with the file.
"""

from __future__ import annotations

from kube_rdma.model.blueprint import Json

_NAME = "agents-own-node.kube-rdma.io"
_API = "admissionregistration.k8s.io/v1"
_AGENT = "^system:serviceaccount:[^:]+:kube-rdma-agent$"
_CONDITION = "kube-rdma.io/CardsHealthy"
_FORBIDDEN = "Forbidden"

_NODE = "request.userInfo.?extra['authentication.kubernetes.io/node-name'].orValue([''])[0]"
_CONCERNED = (
    "request.resource.resource == 'pods' ? object.spec.?nodeName.orValue('') : "
    "request.resource.resource == 'leases' ? object.metadata.name.replace('ipam.', '', 1) : "
    "object.metadata.name"
)
_OTHERS = " ".join(
    (
        "request.subResource == 'status' && request.resource.resource == 'nodes' ?",
        "[object, oldObject].map(node, node.status.?conditions.orValue([])",
        f".filter(condition, condition.type != '{_CONDITION}')) : [[], []]",
    )
)
_REFUSAL = (
    "'The agent of node ' + variables.node + ' may not change ' + request.resource.resource + "
    "' of ' + (variables.concerned == '' ? 'no node' : 'node ' + variables.concerned) + '.'"
)
_UNCHANGED = " ".join(
    (
        "request.resource.resource != 'nodes' || request.subResource != 'status' ||",
        "(variables.others[0] == variables.others[1] &&",
        *(
            f"object.{field} == oldObject.{field} &&"
            for field in ("status.?capacity", "status.?allocatable", "metadata.?labels")
        ),
        "object.metadata.?annotations == oldObject.metadata.?annotations)",
    )
)


def policy() -> tuple[Json, Json]:
    """The policy, and what puts it into force."""
    return (
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": _NAME},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [_core(), _leases(), _reports()]},
                "matchConditions": [
                    {
                        "name": "agent",
                        "expression": f"request.userInfo.username.matches('{_AGENT}')",
                    }
                ],
                "variables": [
                    {"name": "node", "expression": _NODE},
                    {"name": "concerned", "expression": _CONCERNED},
                    {"name": "others", "expression": _OTHERS},
                ],
                "validations": _validations(),
            },
        },
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": _NAME},
            "spec": {"policyName": _NAME, "validationActions": ["Deny"]},
        },
    )


def _core() -> Json:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["pods", "pods/status", "nodes", "nodes/status"],
    }


def _leases() -> Json:
    return {
        "apiGroups": ["coordination.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["leases"],
    }


def _reports() -> Json:
    return {
        "apiGroups": ["kube-rdma.io"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["nodereports", "nodereports/status"],
    }


def _validations() -> list[Json]:
    return [
        {
            "expression": "variables.node != ''",
            "message": "The agent's token is bound to no node. Run the agent as a pod, on "
            "Kubernetes 1.30 or newer.",
            "reason": _FORBIDDEN,
        },
        {
            "expression": "variables.node == '' || variables.node == variables.concerned",
            "messageExpression": _REFUSAL,
            "reason": _FORBIDDEN,
        },
        {
            "expression": _UNCHANGED,
            "message": "An agent changes nothing of its node's status but the condition "
            f"{_CONDITION}.",
            "reason": _FORBIDDEN,
        },
    ]
