"""The objects of a policy as documents: a DaemonSet for each image, and the plugin's ConfigMap.

Names, images, selectors and host folders are those of the Network Operator 0.1.0, so that scripts
and people find what they know; what differs stands beside the line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from kube_rdma.model.cluster_policy import (
    ClusterPolicy,
    ComponentImage,
    ComponentName,
    PeerDriverSection,
)
from kube_rdma.model.frozen import Frozen
from kube_rdma.rules.install.fill import filled
from kube_rdma.rules.install.presets import merged
from kube_rdma.rules.install.workloads import workloads
from kube_rdma.rules.operator.names import label_value, legal_names
from kube_rdma.rules.operator.node_groups import CARDS_LABEL, GPUS_LABEL, NodeGroup

Json: TypeAlias = dict[str, Any]

COMPONENT_LABEL = "kube-rdma.io/component"
CONFIG_HASH = "kube-rdma.io/config-hash"
CONFIG_MAP = "rdma-devices"
PLUGIN_CONTAINER = "k8s-rdma-shared-dp-ds"
CONFIG_FOLDER = "/k8s-rdma-shared-dev-plugin"
DRIVER_READY = "/.driver-ready"  # a driver's image makes this file when its modules are loaded
DRIVER_FILES = "/run/mellanox/drivers"  # headers and modules, for the peer-memory driver


class WantedObjects(Frozen):
    """All objects of one component; the ConfigMap is None where there is none."""

    daemon_sets: tuple[Json, ...] = ()
    config_map: Json | None = None


def plugin_objects(policy: ClusterPolicy) -> WantedObjects:
    """The shared device plugin with its configuration."""
    section = policy.device_plugin
    if section is None:
        return WantedObjects()
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(policy, CONFIG_MAP, ComponentName.DEVICE_PLUGIN),
        "data": {"config.json": section.config},
    }
    made = _daemon_set(
        policy, ComponentName.DEVICE_PLUGIN, "rdma-shared-dp-ds", {CARDS_LABEL: "true"}
    )
    template = made["spec"]["template"]
    # The vendor's plugin reads its configuration once; a changed one has to start it anew.
    template["metadata"]["annotations"] = {
        CONFIG_HASH: sha256(section.config.encode()).hexdigest()[:16]
    }
    if section.networks:
        del template["spec"]["automountServiceAccountToken"]
        template["spec"] |= _agent_pod(section.image)
    else:
        template["spec"] |= _plugin_pod(section.image)
    return WantedObjects((made,), config)


def _plugin_pod(image: ComponentImage) -> Json:
    """The pod of any device plugin, as v0.1.0 has it."""
    container = {
        "name": PLUGIN_CONTAINER,
        "image": f"{image.repository}/{image.image}:{image.version}",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "device-plugin", "mountPath": "/var/lib/kubelet/"},
            {"name": "config", "mountPath": CONFIG_FOLDER},
            {"name": "devs", "mountPath": "/dev/"},
        ],
    }
    volumes = [
        _folder("device-plugin", "/var/lib/kubelet/"),
        {"name": "config", "configMap": {"name": CONFIG_MAP}},
        _folder("devs", "/dev/"),
    ]
    return {"containers": [container], "volumes": volumes}


def _agent_pod(image: ComponentImage) -> Json:
    """The pod of kube-rdma's agent with networks, as the preset `nvidia` installs it."""
    values = {
        "preset": "nvidia",
        "image": {"repository": f"{image.repository}/{image.image}", "tag": image.version},
        "seed": {"container": PLUGIN_CONTAINER, "configMap": CONFIG_MAP},
    }
    objects = filled(workloads(), merged(values))
    (pod,) = (made["spec"]["template"]["spec"] for made in objects if made["kind"] == "DaemonSet")
    fields = ("containers", "volumes", "hostPID", "serviceAccountName")
    return {name: pod[name] for name in fields}


def driver_objects(policy: ClusterPolicy, groups: Sequence[NodeGroup]) -> WantedObjects:
    """A driver DaemonSet for each group of nodes."""
    if policy.driver is None:
        return WantedObjects()
    names = legal_names(f"ofed-driver-{group.tag}-ds" for group in groups)
    made = []
    for group in groups:
        document = _daemon_set(
            policy,
            ComponentName.DRIVER,
            names[f"ofed-driver-{group.tag}-ds"],
            {CARDS_LABEL: "true", **group.selector},
        )
        # A new image unloads what pods use: rules/operator/upgrade says when.
        document["spec"]["updateStrategy"] = {"type": "OnDelete"}
        document["spec"]["template"]["spec"] |= {
            "containers": [
                _driver(
                    "ofed-driver-container",
                    _driver_image(policy.driver, group),
                    "lsmod | grep mlx5_core",
                    [(DRIVER_FILES, "run-mofed")],
                )
            ],
            "volumes": [_folder("run-mofed", DRIVER_FILES)],
        }
        made.append(document)
    return WantedObjects(tuple(made))


def peer_objects(policy: ClusterPolicy, groups: Sequence[NodeGroup]) -> WantedObjects:
    """A peer-memory DaemonSet for each group of nodes."""
    section = policy.peer_driver
    if section is None:
        return WantedObjects()
    names = legal_names(f"nv-peer-mem-driver-{group.tag}-ds" for group in groups)
    return WantedObjects(
        tuple(
            _peer_daemon_set(policy, section, names[f"nv-peer-mem-driver-{group.tag}-ds"], group)
            for group in groups
        )
    )


def _peer_daemon_set(
    policy: ClusterPolicy, section: PeerDriverSection, name: str, group: NodeGroup
) -> Json:
    selector = {CARDS_LABEL: "true", GPUS_LABEL: "true", **group.selector}
    document = _daemon_set(policy, ComponentName.PEER_DRIVER, name, selector)
    folders = [(DRIVER_FILES, "run-mofed")]
    volumes = [_folder("run-mofed", DRIVER_FILES)]
    if section.gpu_driver_path:
        folders.append((section.gpu_driver_path, "run-nvidia"))
        volumes.append(_folder("run-nvidia", section.gpu_driver_path))
    container = _driver(
        "nv-peer-mem-driver-container",
        _driver_image(section.image, group),
        "lsmod | grep nv_peer_mem",
        folders,
    )
    document["spec"]["updateStrategy"] = {"type": "OnDelete"}
    document["spec"]["template"]["spec"] |= {"containers": [container], "volumes": volumes}
    return document


def _driver_image(image: ComponentImage, group: NodeGroup) -> str:
    return f"{image.repository}/{image.image}-{image.version}:{group.tag}"


def _driver(name: str, image: str, loaded: str, folders: Sequence[tuple[str, str]]) -> Json:
    """The container of a driver, by the contract of the vendor's images."""
    # 0.1.0 gives a look one second and ends the driver, and so all verbs of the node, at the first
    # one that is late: a busy node is late.
    patience = {"timeoutSeconds": 30, "failureThreshold": 3}
    check = {"exec": {"command": ["sh", "-c", loaded]}, "periodSeconds": 30, **patience}
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "startupProbe": {
            "exec": {"command": ["sh", "-c", f"ls {DRIVER_READY}"]},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
            "timeoutSeconds": 30,
            "failureThreshold": 120,  # building for a kernel takes its time
        },
        "livenessProbe": check,
        "readinessProbe": check,
        "volumeMounts": [
            {"name": volume, "mountPath": path, "mountPropagation": "Bidirectional"}
            for path, volume in folders
        ],
    }


def _folder(name: str, path: str) -> Json:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _metadata(policy: ClusterPolicy, name: str, component: ComponentName) -> Json:
    owner = {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "name": policy.name,
        "uid": policy.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": policy.namespace,
        "labels": {COMPONENT_LABEL: component.value},
        "ownerReferences": [owner],
    }


def _daemon_set(
    policy: ClusterPolicy, component: ComponentName, name: str, selector: Mapping[str, str]
) -> Json:
    """What the DaemonSets of all components have in common."""
    labels = {COMPONENT_LABEL: component.value, "name": label_value(name)}
    pod: Json = {
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "nodeSelector": dict(selector),
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}, *policy.tolerations],
    }
    if policy.pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in policy.pull_secrets]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(policy, name, component),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
