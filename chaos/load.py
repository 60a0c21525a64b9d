"""The pods of a run: what they ask for, as documents.

A pod has its card by a share or by a claim; with each it asks for the network of setup.py, one
interface or two. Two interfaces bring tables and rules of their own.
"""

from __future__ import annotations

from typing import Any

from chaos.schedule import Create, Way
from chaos.setup import CLASS, NETWORK, SHARES

Document = dict[str, Any]

IMAGE = "localhost/lab/verbs:1"
LABEL = "chaos"  # of all pods of all runs
INTERFACES = "chaos/interfaces"  # how many a pod asked for, for the audit
VERBS = "chaos/verbs"  # whether each of them has an RDMA device
NETWORKS = "k8s.v1.cni.cncf.io/networks"
# The first process of a container ends of no signal that it has no handler for.
UNTIL_ASKED = ("sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait")


def documents(made: Create, *, has_verbs: bool = False) -> list[Document]:
    """The pod, after the template of its claim where it has one."""
    pod = _pod(made)
    if has_verbs:
        pod["metadata"]["annotations"] |= {VERBS: "yes"}
    if made.way is Way.SHARE:
        pod["spec"]["containers"][0]["resources"] = {"limits": {SHARES: made.interfaces}}
        pod["metadata"]["annotations"] |= {NETWORKS: ",".join([NETWORK] * made.interfaces)}
        return [pod]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "nic"}]}
    source = {"name": "nic", "resourceClaimTemplateName": made.name}
    pod["spec"]["resourceClaims"] = [source]
    return [_template(made), pod]


def _pod(made: Create) -> Document:
    container = {"name": "main", "image": IMAGE, "command": list(UNTIL_ASKED)}
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": made.node},
        "terminationGracePeriodSeconds": 1,
        # A node that is away for a moment keeps its pods.
        "tolerations": [{"operator": "Exists"}],
    }
    metadata = {"name": made.name, "namespace": "default", "labels": {LABEL: "yes"}}
    metadata["annotations"] = {INTERFACES: str(made.interfaces)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _template(made: Create) -> Document:
    parameters = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "ClaimParameters",
        "network": NETWORK,
    }
    request = {"name": "nic", "exactly": {"deviceClassName": CLASS, "count": made.interfaces}}
    opaque = {"driver": "rdma.kube-rdma.io", "parameters": parameters}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": made.name, "namespace": "default", "labels": {LABEL: "yes"}},
        "spec": {"spec": {"devices": {"requests": [request], "config": [{"opaque": opaque}]}}},
    }
