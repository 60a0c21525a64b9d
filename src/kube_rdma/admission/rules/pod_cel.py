"""The API server's own admission policies for pods: what all of them have in common.

admission/rules/pod_admission refuses and warns with them, admission/rules/pod_completion completes.
Both look at new pods in CEL, let pass what they cannot evaluate, and leave kube-system and the
namespace of the installation alone: so they can lock nobody out.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.attach.rules.requests import POD_NETWORKS, RESOURCE
from kube_rdma.model.install.blueprint import (
    NAMESPACE,
    OWN_NAMES,
    Hole,
    Joined,
    Json,
    Node,
    joined,
)

API = "admissionregistration.k8s.io/v1"

LIMITS = "c.?resources.?limits.orValue({})"
# In pods a quantity is a text; in kinds of other projects it may be a number, as it was written.
CARDS = f"quantity(string(c.?resources.?limits[?'{RESOURCE}'].orValue(dyn('0')))).asInteger()"
SHARED = "(key in variables.shares || key.split('/')[0] + '/*' in variables.shares)"
_SIDECAR = "c.?restartPolicy.orValue('') == 'Always'"
PODS: Json = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def values(path: str) -> Joined:
    """A value with commas as a list."""
    return joined("'", Hole(f"admission.pods.{path}"), "'.split(',')")


def of_pod(pod: str) -> dict[str, str]:
    """Expressions about a pod, or the template of one, by name."""
    init = f"{pod}.spec.?initContainers.orValue([])"
    every = f"({pod}.spec.containers + {init})"
    annotations = f"{pod}.?metadata.?annotations.orValue({{}})"
    beside = f"({pod}.spec.containers + {init}.filter(c, {_SIDECAR})).map(c, {CARDS}).sum()"
    most = f"([0] + {init}.filter(c, !({_SIDECAR})).map(c, {CARDS})).max()"
    return {
        "containers": every,
        "annotations": annotations,
        "rdma": f"{every}.exists(c, {LIMITS}.exists(key, {SHARED}))",
        "cards": f"([{beside}, {most}].filter(count, count > 0) + [0])[0]",
        "text": f"{annotations}[?'{POD_NETWORKS}'].orValue('')",
    }


SHARES: dict[str, Node] = {"shares": values("shareResources")}
"""The first variable, which all other expressions may use."""


def policy(
    kind: str, name: str, variables: dict[str, Node], rules: Sequence[Node] = (), **spec: Node
) -> Json:
    """A policy about new pods and what `rules` match besides. What it cannot evaluate it admits."""
    elsewhere = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", NAMESPACE],
    }
    return {
        "apiVersion": API,
        "kind": f"{kind}AdmissionPolicy",
        "metadata": {"name": joined(OWN_NAMES, name)},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [elsewhere]},
                "resourceRules": [{**PODS, "operations": ["CREATE"]}, *rules],
            },
            "variables": [{"name": key, "expression": text} for key, text in variables.items()],
            **spec,
        },
    }


def binding(kind: str, name: str, policy_name: str = "", **spec: Node) -> Json:
    """What puts a policy into force, the one of this name unless another is named."""
    return {
        "apiVersion": API,
        "kind": f"{kind}AdmissionPolicyBinding",
        "metadata": {"name": joined(OWN_NAMES, name)},
        "spec": {"policyName": joined(OWN_NAMES, policy_name or name), **spec},
    }
