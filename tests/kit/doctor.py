"""A pod that sees a node as root does: it runs `kube-rdma doctor` for tests that break things.

It is no part of the installation, so it lives on where an agent does not, and with the host's
processes in sight it judges pods too. tests/lab/native and tests/lab/machines use it.
"""

from __future__ import annotations

import json

from kube_rdma_lab import cluster
from tests.kit.pods import UNTIL_ASKED

NAME, NAMESPACE = "doctor", "kube-system"
IMAGE = "localhost/kube-rdma:dev"
RBAC = "rbac.authorization.k8s.io"
# Of the node, by the name of the volume: where it is on the node, and where in the container.
MOUNTS = {
    "kubelet": ("/var/lib/kubelet", "/var/lib/kubelet"),
    "runtime": ("/run/containerd", "/run/containerd"),
    "state": ("/var/lib/kube-rdma", "/var/lib/kube-rdma"),
    "dev": ("/dev", "/host/dev"),
    "etc": ("/etc", "/host/etc"),
    "opt": ("/opt", "/host/opt"),
}


def call(lab, node):
    """Have the pod on a node, Ready."""
    cluster.apply(lab, *_documents(node))
    cluster.ready(lab, NAME, namespace=NAMESPACE)


def dismiss(lab):
    """Take all of it away."""
    for what in (f"pod/{NAME}", f"serviceaccount/{NAME}"):
        cluster.kubectl(lab, "delete", what, "-n", NAMESPACE, "--ignore-not-found")
    cluster.kubectl(lab, "delete", "clusterrolebinding", NAME, "--ignore-not-found")


def findings(lab, target="node"):
    """What the doctor finds about a target, roots first."""
    script = f"kube-rdma doctor {target} --json || [ $? = 1 ]"
    words = ("exec", "-n", NAMESPACE, NAME, "--", "sh", "-c", script)
    return json.loads(cluster.kubectl(lab, *words))["findings"]


def codes(lab, target="node"):
    """The codes alone, in their order."""
    return [finding["code"] for finding in findings(lab, target)]


def _documents(node):
    metadata = {"name": NAME, "namespace": NAMESPACE}
    volumes = [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, (path, _) in MOUNTS.items()
    ]
    container = {
        "name": "main",
        "image": IMAGE,
        "command": list(UNTIL_ASKED),
        "securityContext": {"privileged": True},
        "env": [{"name": "NODE_NAME", "value": node}],
        "volumeMounts": [
            {"name": name, "mountPath": inside} for name, (_, inside) in MOUNTS.items()
        ],
    }
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    spec = {
        "nodeName": node,
        "hostNetwork": True,
        "hostPID": True,
        "serviceAccountName": NAME,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": volumes,
    }
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
