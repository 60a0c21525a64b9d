"""All objects of an installation in the order in which they are applied, by part.

A part is a file of the Helm chart. The resource definitions are made from the models in api, which
this floor does not see: whoever asks brings them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_rdma.model.install.blueprint import Blueprint, Hole, Json
from kube_rdma.rules.install.admission import policies
from kube_rdma.rules.install.metrics import metrics
from kube_rdma.rules.install.pod_admission import pod_policies
from kube_rdma.rules.install.pod_completion import completing_policy
from kube_rdma.rules.install.retirement import retirement
from kube_rdma.rules.install.rights import NAMESPACE, agent_rights, controller_rights, people_rights
from kube_rdma.rules.install.webhook import webhook, webhook_rights
from kube_rdma.rules.install.workloads import workloads

DEFINITIONS = "definitions"
# `helm uninstall` would delete the blocks of living pods with their definition.
_KEPT = {"helm.sh/resource-policy": "keep"}
# Helm looks a kind up before it makes its definition, but for hooks. A pool is made once: from then
# on it is whoever owns the addresses who changes it.
_ONCE = {"helm.sh/hook": "post-install", "helm.sh/hook-delete-policy": "hook-failed"}


def parts(definitions: Sequence[Json], operator: Sequence[Json]) -> Mapping[str, list[Blueprint]]:
    """Every part with its blueprints; `operator` are definitions that only the operator needs."""
    return {
        "namespace": [Blueprint(_namespace(), ("namespace.create",)), _quota()],
        DEFINITIONS: [
            *(Blueprint(body, ("crds.install",), notes=_KEPT) for body in definitions),
            *(Blueprint(body, ("crds.install", "seed.operator"), notes=_KEPT) for body in operator),
            Blueprint(network_definition(), ("crds.networkAttachmentDefinitions",), notes=_KEPT),
        ],
        "admission": [
            *policies(),
            *pod_policies(),
            *completing_policy(),
            *webhook(),
        ],
        "rights": [
            *agent_rights(),
            *controller_rights(),
            *webhook_rights(),
            *people_rights(),
        ],
        "pools": [Blueprint(_pool(), over="pools", notes=_ONCE)],
        "workloads": list(workloads()),
        "metrics": list(metrics()),
        "retirement": list(retirement()),
    }


def network_definition() -> Json:
    """The Network Plumbing Working Group's, as config/foreign has it."""
    config = {"description": "A CNI configuration, or a list of them, as JSON.", "type": "string"}
    text = {"type": "string"}
    fields = {
        "apiVersion": text,
        "kind": text,
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {"config": config}},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": fields}}
    names = {
        "kind": "NetworkAttachmentDefinition",
        "listKind": "NetworkAttachmentDefinitionList",
        "plural": "network-attachment-definitions",
        "singular": "network-attachment-definition",
        "shortNames": ["net-attach-def"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io",
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def _namespace() -> Json:
    # An agent has folders of its host; where that is checked, the namespace has to allow it.
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": labels},
    }


def _quota() -> Blueprint:
    """GKE allows the agents' class nowhere but in kube-system without a quota (docs/agent.md)."""
    scope = {
        "scopeName": "PriorityClass",
        "operator": "In",
        "values": ["system-node-critical"],
    }
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "node-critical", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": "100k"}, "scopeSelector": {"matchExpressions": [scope]}},
    }
    return Blueprint(body, ("seed.quota", "namespace.create"))


def _pool() -> Json:
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": Hole(".name")},
        "spec": Hole(".spec"),
    }
