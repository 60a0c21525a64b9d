"""The policy that holds each agent to its own node, as config/admission has it with its reasons.

A role knows no nodes; this one asks the token, which since Kubernetes 1.30 names the node of its
pod. The texts are CEL, to the letter those of the file, which a test compares.
"""

from __future__ import annotations

from kube_rdma.model.blueprint import Json

_NAME = "agents-own-node.kube-rdma.io"
_API = "admissionregistration.k8s.io/v1"
_AGENT = "request.userInfo.username.matches('^system:serviceaccount:[^:]+:kube-rdma-agent$')"

# What the policy looks at: group, version, operations and resources.
_CONCERNED = (
    ("", "v1", "UPDATE", "pods pods/status nodes nodes/status"),
    ("coordination.k8s.io", "v1", "CREATE UPDATE", "leases"),
    ("kube-rdma.io", "v1alpha1", "CREATE UPDATE", "nodereports nodereports/status"),
)
# Expressions by name; each may use those before it.
_VARIABLES = {
    "node": "request.userInfo.?extra['authentication.kubernetes.io/node-name'].orValue([''])[0]",
    "concerned": (
        "request.resource.resource == 'pods' ? object.spec.?nodeName.orValue('') : "
        "request.resource.resource == 'leases' ? object.metadata.name.replace('ipam.', '', 1)"
        " : object.metadata.name"
    ),
    "part": "request.?subResource.orValue('')",
    "others": (
        "variables.part == 'status' && request.resource.resource == 'nodes' ? [object, "
        "oldObject].map(node, node.status.?conditions.orValue([]) .filter(condition, "
        "condition.type != 'kube-rdma.io/CardsHealthy')) : [[], []]"
    ),
    "itself": "request.resource.resource == 'nodes' && variables.part == ''",
    "labels": (
        "!variables.itself ? [] : [[oldObject, object], [object, oldObject]].map(pair, "
        "pair[0].metadata.?labels.orValue({}).filter(key, pair[1].metadata.?labels[?key] != "
        "optional.of(pair[0].metadata.labels[key])))"
    ),
    "annotations": (
        "!variables.itself ? [] : [[oldObject, object], [object, oldObject]].map(pair, "
        "pair[0].metadata.?annotations.orValue({}).filter(key, "
        "pair[1].metadata.?annotations[?key] != "
        "optional.of(pair[0].metadata.annotations[key])))"
    ),
    "key": (
        "'^(feature[.]node[.]kubernetes[.]io/(pci-[0-9a-f]{4}[.]present|' + "
        "'kernel-version[.](full|major|minor|revision)|' + "
        "'system-os_release[.](ID|VERSION_ID|VERSION_ID[.]major|VERSION_ID[.]minor))|' + "
        "'kube-rdma[.]io/(link-layer|rate-gbps|ports|mode|rdma-namespaces|gpus-near|rails|fabric))$'"
    ),
}
# What has to hold, and a sentence for what does not: a text, or an expression that makes one.
_VALIDATIONS = (
    (
        "variables.node != ''",
        "message",
        (
            "The agent's token is bound to no node. Run the agent as a pod, on Kubernetes "
            "1.30 or newer."
        ),
    ),
    (
        "variables.node == '' || variables.node == variables.concerned",
        "messageExpression",
        (
            "'The agent of node ' + variables.node + ' may not change ' + "
            "request.resource.resource + ' of ' + (variables.concerned == '' ? 'no node' : "
            "'node ' + variables.concerned) + '.'"
        ),
    ),
    (
        (
            "request.resource.resource != 'nodes' || variables.part != 'status' || "
            "(variables.others[0] == variables.others[1] && object.status.?capacity == "
            "oldObject.status.?capacity && object.status.?allocatable == "
            "oldObject.status.?allocatable && object.metadata.?labels == "
            "oldObject.metadata.?labels && object.metadata.?annotations == "
            "oldObject.metadata.?annotations)"
        ),
        "message",
        (
            "An agent changes nothing of its node's status but the condition "
            "kube-rdma.io/CardsHealthy."
        ),
    ),
    (
        "variables.labels.all(keys, keys.all(key, key.matches(variables.key)))",
        "messageExpression",
        (
            "'An agent writes no label ' + variables.labels.map(keys, keys.filter(key, "
            "!key.matches(variables.key))).filter(keys, keys.size() > 0)[0][0] + '.'"
        ),
    ),
    (
        (
            "!variables.itself || (variables.annotations.all(keys, keys.all(key, key == "
            "'kube-rdma.io/node-labels')) && object.metadata.?finalizers == "
            "oldObject.metadata.?finalizers && object.metadata.?ownerReferences == "
            "oldObject.metadata.?ownerReferences && object.spec.?unschedulable.orValue(false)"
            " == oldObject.spec.?unschedulable.orValue(false) && object.spec.?podCIDR == "
            "oldObject.spec.?podCIDR && object.spec.?podCIDRs == oldObject.spec.?podCIDRs && "
            "object.spec.?providerID == oldObject.spec.?providerID && "
            "object.spec.?configSource == oldObject.spec.?configSource && "
            "object.spec.?taints.orValue([]).all(taint, taint in "
            "oldObject.spec.?taints.orValue([])) && "
            "oldObject.spec.?taints.orValue([]).all(taint, taint in "
            "object.spec.?taints.orValue([]) || (taint.key == 'kube-rdma.io/starting' && "
            "taint.effect == 'NoSchedule')))"
        ),
        "message",
        "An agent changes nothing of its node but its labels and the startup taint.",
    ),
)


def policy() -> tuple[Json, Json]:
    """The policy, and what puts it into force."""
    metadata = {"name": _NAME}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule(*row) for row in _CONCERNED]},
        "matchConditions": [{"name": "agent", "expression": _AGENT}],
        "variables": [{"name": name, "expression": text} for name, text in _VARIABLES.items()],
        "validations": [
            {"expression": expression, kind: sentence, "reason": "Forbidden"}
            for expression, kind, sentence in _VALIDATIONS
        ],
    }
    return (
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": spec,
        },
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": _NAME, "validationActions": ["Deny"]},
        },
    )


def _rule(group: str, version: str, operations: str, resources: str) -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations.split(),
        "resources": resources.split(),
    }
