"""The API server's own admission policies for pods: what all of them have in common.

rules/install/pod_admission refuses and warns with them, rules/install/pod_completion completes.
Both look at new pods in CEL, let pass what they cannot evaluate, and leave kube-system and the
namespace of the installation alone: so they can lock nobody out.
"""

from __future__ import annotations

from kube_rdma.model.install.blueprint import (
    NAMESPACE,
    OWN_NAMES,
    Hole,
    Joined,
    Json,
    Node,
    joined,
)
from kube_rdma.rules.attach.requests import POD_NETWORKS, RESOURCE

API = "admissionregistration.k8s.io/v1"

LIMITS = "c.?resources.?limits.orValue({})"
CARDS = f"quantity(string(c.?resources.?limits[?'{RESOURCE}'].orValue('0'))).asInteger()"
_INIT = "object.spec.?initContainers.orValue([])"
_SIDECAR = "c.?restartPolicy.orValue('') == 'Always'"
SHARED = "(key in variables.shares || key.split('/')[0] + '/*' in variables.shares)"


def values(path: str) -> Joined:
    """A value with commas as a list."""
    return joined("'", Hole(f"admission.pods.{path}"), "'.split(',')")


# Expressions by name; each may use those before it.
VARIABLES: dict[str, Node] = {
    "shares": values("shareResources"),
    "containers": f"object.spec.containers + {_INIT}",
    "annotations": "object.metadata.?annotations.orValue({})",
    "rdma": f"variables.containers.exists(c, {LIMITS}.exists(key, {SHARED}))",
    "beside": (f"(object.spec.containers + {_INIT}.filter(c, {_SIDECAR})).map(c, {CARDS}).sum()"),
    "most": f"([0] + {_INIT}.filter(c, !({_SIDECAR})).map(c, {CARDS})).max()",
    "cards": "variables.beside > 0 ? variables.beside : variables.most",
    "text": f"variables.annotations[?'{POD_NETWORKS}'].orValue('')",
}


def policy(kind: str, name: str, variables: dict[str, Node], **spec: Node) -> Json:
    """A policy about new pods. What it cannot evaluate it lets pass."""
    elsewhere = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", NAMESPACE],
    }
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return {
        "apiVersion": API,
        "kind": f"{kind}AdmissionPolicy",
        "metadata": {"name": joined(OWN_NAMES, name)},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [elsewhere]},
                "resourceRules": [{**pods, "operations": ["CREATE"]}],
            },
            "variables": [{"name": key, "expression": text} for key, text in variables.items()],
            **spec,
        },
    }


def binding(kind: str, name: str, **spec: Node) -> Json:
    """What puts the policy of this name into force."""
    return {
        "apiVersion": API,
        "kind": f"{kind}AdmissionPolicyBinding",
        "metadata": {"name": joined(OWN_NAMES, name)},
        "spec": {"policyName": joined(OWN_NAMES, name), **spec},
    }
