"""The DaemonSets of other device plugins as `kube-rdma migrate plan` meets them, by their start.

As their owners write them: k8s-rdma-shared-dev-plugin (deployment/k8s/base), network-operator
(manifests/state-rdma-shared-device-plugin of v26.4.0 and manifests/stage-rdma-device-plugin of
v0.1.0), the SCC document; of ACK's and VKE's components the documents have the names alone.
"""

SHARED_FOLDER, SCC_FOLDER = "/k8s-rdma-shared-dev-plugin", "/k8s-rdma-sriov-dev-plugin"
SHARED_TEXT = """{
  "configList": [
    {"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 12, "selectors": {"vendors": ["15b3"]}}
  ]
}
"""
SHARED_RESOURCE = "rdma/hca_shared_devices_a"


def daemon_set(
    namespace, name, labels, *, container="c", image="vendor/plugin:1", folder="", owner=()
):
    """A device plugin; at `folder` is its ConfigMap rdma-devices, `owner` is kind and name."""
    mounts = [{"name": "device-plugin", "mountPath": "/var/lib/kubelet/device-plugins"}]
    volumes = [{"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    if folder:
        mounts.append({"name": "config", "mountPath": folder})
        volumes.append({"name": "config", "configMap": {"name": "rdma-devices"}})
    metadata = {"name": name, "namespace": namespace}
    if owner:
        kind, of = owner
        metadata["ownerReferences"] = [
            {
                "apiVersion": "mellanox.com/v1alpha1",
                "kind": kind,
                "name": of,
                "uid": "u",
                "controller": True,
            }
        ]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": container, "image": image, "volumeMounts": mounts}],
                    "volumes": volumes,
                },
            },
        },
    }


def shared():
    """The shared plugin alone."""
    return daemon_set(
        "kube-system",
        "rdma-shared-dp-ds",
        {"name": "rdma-shared-dp-ds"},
        container="k8s-rdma-shared-dp-ds",
        image="ghcr.io/mellanox/k8s-rdma-shared-dev-plugin",
        folder=SHARED_FOLDER,
    )


def scc():
    """The SCC document's."""
    return daemon_set(
        "kube-system",
        "rdma-device-plugin",
        {"name": "rdma-sriov-dp-ds"},
        container="k8s-rdma-device-plugin",
        folder=SCC_FOLDER,
    )


def ack():
    """ACK's component."""
    return daemon_set("kube-system", "ack-rdma-dp-ds", {"app": "ack-rdma-dp-ds"})


def vke():
    """VKE's component."""
    return daemon_set("kube-system", "rdma-device-plugin", {"app": "rdma-device-plugin"})


def nvidia(namespace="nvidia-network-operator", policy="nic-cluster-policy"):
    """That of NVIDIA's operator, of 0.1.0 and since alike."""
    return daemon_set(
        namespace,
        "rdma-shared-dp-ds",
        {"app": "rdma-shared-dp"},
        container="rdma-shared-dp",
        image="nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:v1",
        folder=SHARED_FOLDER,
        owner=("NicClusterPolicy", policy),
    )
