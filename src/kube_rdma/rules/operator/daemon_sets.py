"""The objects of a policy as documents: a DaemonSet for each image, and the plugin's ConfigMap.

Names, images and host folders are those of the Network Operator 0.1.0, so that scripts and people
find what they know; what differs stands beside the line. Drivers select a label of the operator
(rules/operator/placement), and belong to no policy: what goes with its owner goes at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from kube_base.frozen import Frozen
from kube_rdma.model.install.blueprint import Blueprint, Values
from kube_rdma.model.operator.cluster_policy import (
    ClusterPolicy,
    ComponentImage,
    ComponentName,
    PeerDriverSection,
    PolicyDriver,
)
from kube_rdma.model.operator.driver_upgrade import DRIVER_FIELDS
from kube_rdma.rules.install.fill import filled
from kube_rdma.rules.install.presets import merged
from kube_rdma.rules.install.recommended_labels import GROUP, recommended, version_label
from kube_rdma.rules.install.release import MANAGER
from kube_rdma.rules.operator.names import label_value, legal_names
from kube_rdma.rules.operator.node_groups import CARDS_LABEL, NodeGroup
from kube_rdma.rules.operator.placement import PLACE_LABELS, READY_LABEL, value_of

Json: TypeAlias = dict[str, Any]

COMPONENT_LABEL = "kube-rdma.io/component"
DRIVER_ACCOUNT = "kube-rdma-driver"  # where constraints need one (objects/rights.yaml)
CONFIG_HASH = "kube-rdma.io/config-hash"
CONFIG_MAP = "rdma-devices"
PLUGIN_CONTAINER = "k8s-rdma-shared-dp-ds"
CONFIG_FOLDER = "/k8s-rdma-shared-dev-plugin"
DRIVER_READY = "/.driver-ready"  # a driver's image makes this file when its modules are loaded
DRIVER_FILES = "/run/mellanox/drivers"  # headers and modules, for the peer-memory driver
GPU_FILES = "/run/nvidia/drivers"  # where the peer-memory driver's image looks, wherever they lie
NETWORK_FILES = "/etc/network"  # which the driver's image writes
MANAGED_LABEL = f"{GROUP}managed-by"
# Later images leave the modules where they are when their pod ends; earlier ones do not know it.
_STAY_LOADED = {"name": "RESTORE_DRIVER_ON_POD_TERMINATION", "value": "false"}
_PEER_GRACE = 300  # seconds
# Of device-plugins, whatever the kubelet's root is (kubernetes/kubernetes issue 120626).
_DEVICE_PLUGINS = "/var/lib/kubelet/"


class WantedObjects(Frozen):
    """All objects of one component; the ConfigMap is None where there is none."""

    daemon_sets: tuple[Json, ...] = ()
    config_map: Json | None = None


def plugin_objects(
    policy: ClusterPolicy,
    workloads: Sequence[Blueprint],
    away: int = 0,
    values: Values | None = None,
) -> WantedObjects:
    """The shared device plugin with its configuration; so many of its nodes are not ready.

    `workloads` are those of an installation, one of which is the agent's DaemonSet, and `values`
    those of the operator's own, as `merged` takes them.
    """
    section = policy.device_plugin
    if section is None:
        return WantedObjects()
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(policy, CONFIG_MAP, ComponentName.DEVICE_PLUGIN),
        "data": {"config.json": section.config},
    }
    # Node by node behind its driver: one that is away holds no other back.
    behind = {READY_LABEL: "true"} if policy.driver else {}
    selector = {CARDS_LABEL: "true", **behind}
    made = _daemon_set(policy, ComponentName.DEVICE_PLUGIN, "rdma-shared-dp-ds", selector)
    # One at a time, as by default. The controller counts the pod of a node that is away among those
    # (pkg/controller/daemon/update.go), and one such node would end every roll-out.
    made["spec"]["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": 1 + away}}
    template = made["spec"]["template"]
    if policy.affinity:
        template["spec"]["affinity"] = {"nodeAffinity": policy.affinity}
    # The vendor's plugin reads its configuration once; a changed one has to start it anew.
    template["metadata"]["annotations"] = {
        CONFIG_HASH: sha256(section.config.encode()).hexdigest()[:16]
    }
    if section.networks:
        del template["spec"]["automountServiceAccountToken"]
        template["spec"] |= _agent_pod(section.image, workloads, values or {})
    else:
        template["spec"] |= _plugin_pod(section.image)
        template["spec"] |= _account(values)
    return WantedObjects((made,), config)


def _account(values: Values | None) -> Json:
    """The account of a privileged pod, where not everyone's may have one."""
    constraints = _merged(values or {})["platform"]["constraints"]
    return {"serviceAccountName": DRIVER_ACCOUNT} if constraints else {}


def _merged(values: Values) -> Json:
    """All values of the preset whose agents a policy deploys."""
    return merged({**values, "preset": "nvidia"})


def _plugin_pod(image: ComponentImage) -> Json:
    """The pod of any device plugin, as v0.1.0 has it."""
    container = {
        "name": PLUGIN_CONTAINER,
        "image": _named(image, f"{image.repository}/{image.image}:{image.version}"),
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "device-plugin", "mountPath": _DEVICE_PLUGINS},
            {"name": "config", "mountPath": CONFIG_FOLDER},
            {"name": "devs", "mountPath": "/dev/"},
        ],
    }
    volumes = [
        _folder("device-plugin", _DEVICE_PLUGINS),
        {"name": "config", "configMap": {"name": CONFIG_MAP}},
        _folder("devs", "/dev/"),
    ]
    return {"containers": [container], "volumes": volumes}


def _agent_pod(image: ComponentImage, workloads: Sequence[Blueprint], values: Values) -> Json:
    """The pod of kube-rdma's agent with networks, as the preset `nvidia` installs it."""
    own = {
        "image": {
            "repository": f"{image.repository}/{image.image}",
            "tag": image.version,
            "digest": image.digest,
        },
        "platform": {"container": PLUGIN_CONTAINER, "configMap": CONFIG_MAP},
    }
    objects = filled(workloads, _merged({**values, **own}))
    (pod,) = (made["spec"]["template"]["spec"] for made in objects if made["kind"] == "DaemonSet")
    fields = ("containers", "volumes", "hostPID", "serviceAccountName")
    return {name: pod[name] for name in fields}


def driver_objects(
    policy: ClusterPolicy, groups: Sequence[NodeGroup], values: Values | None = None
) -> WantedObjects:
    """A driver DaemonSet for each group of nodes."""
    section = policy.driver
    if section is None:
        return WantedObjects()
    names = legal_names(f"ofed-driver-{group.tag}-ds" for group in groups)
    made = tuple(
        _ofed_daemon_set(policy, section, names[f"ofed-driver-{group.tag}-ds"], group)
        for group in groups
    )
    return _with_account(made, values)


def peer_objects(
    policy: ClusterPolicy, groups: Sequence[NodeGroup], values: Values | None = None
) -> WantedObjects:
    """A peer-memory DaemonSet for each group of nodes."""
    section = policy.peer_driver
    if section is None:
        return WantedObjects()
    names = legal_names(f"nv-peer-mem-driver-{group.tag}-ds" for group in groups)
    made = tuple(
        _peer_daemon_set(policy, section, names[f"nv-peer-mem-driver-{group.tag}-ds"], group)
        for group in groups
    )
    return _with_account(made, values)


def _with_account(made: tuple[Json, ...], values: Values | None) -> WantedObjects:
    """Drivers with the account that their constraint is bound to, where there are constraints."""
    account = _account(values)
    for document in made:
        document["spec"]["template"]["spec"] |= account
    return WantedObjects(made)


def _ofed_daemon_set(
    policy: ClusterPolicy, section: PolicyDriver, name: str, group: NodeGroup
) -> Json:
    container = _driver(
        "ofed-driver-container",
        _driver_image(section.image, group),
        "lsmod | grep mlx5_core",
        [
            _mount("run-mofed", DRIVER_FILES, "Bidirectional"),
            _mount("etc-network", NETWORK_FILES),
        ],
    )
    own = {entry["name"] for entry in section.env}
    container["env"] = [
        *([_STAY_LOADED] if _STAY_LOADED["name"] not in own else []),
        *section.env,
    ]
    volumes = [_folder("run-mofed", DRIVER_FILES), _folder("etc-network", NETWORK_FILES)]
    document = _driver_daemon_set(policy, ComponentName.DRIVER, name, group)
    template = document["spec"]["template"]
    template["spec"] |= {
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": section.grace_seconds,
    }
    if section.env:  # its pods are outdated when it changes, as by another image
        text = json.dumps(section.env, sort_keys=True)
        template["metadata"]["annotations"] = {
            DRIVER_FIELDS: sha256(text.encode()).hexdigest()[:16]
        }
    return document


def _peer_daemon_set(
    policy: ClusterPolicy, section: PeerDriverSection, name: str, group: NodeGroup
) -> Json:
    mounts = [_mount("run-mofed", DRIVER_FILES, "HostToContainer")]
    volumes = [_folder("run-mofed", DRIVER_FILES)]
    if section.gpu_driver_path:
        mounts.append(_mount("run-nvidia", GPU_FILES, "HostToContainer"))
        volumes.append(_folder("run-nvidia", section.gpu_driver_path))
    container = _driver(
        "nv-peer-mem-driver-container",
        _driver_image(section.image, group),
        "lsmod | grep nv_peer_mem",
        mounts,
    )
    document = _driver_daemon_set(policy, ComponentName.PEER_DRIVER, name, group)
    document["spec"]["template"]["spec"] |= {
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": _PEER_GRACE,
    }
    return document


def _driver_daemon_set(
    policy: ClusterPolicy, component: ComponentName, name: str, group: NodeGroup
) -> Json:
    """What both drivers' have in common: their pods come and go by rules/operator/upgrade alone."""
    document = _daemon_set(policy, component, name, {PLACE_LABELS[component]: value_of(group)})
    document["spec"]["updateStrategy"] = {"type": "OnDelete"}
    document["metadata"]["ownerReferences"] = []
    return document


def _driver_image(image: ComponentImage, group: NodeGroup) -> str:
    return _named(image, f"{image.repository}/{image.image}-{image.version}:{group.tag}")


def _named(image: ComponentImage, by_tag: str) -> str:
    """The image by its digest, where the policy has one; a digest stands for all kernels."""
    return f"{image.repository}/{image.image}@{image.digest}" if image.digest else by_tag


def _driver(name: str, image: str, loaded: str, mounts: Sequence[Json]) -> Json:
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
        "volumeMounts": list(mounts),
    }


def _mount(name: str, path: str, propagation: str = "") -> Json:
    mount = {"name": name, "mountPath": path}
    return mount | ({"mountPropagation": propagation} if propagation else {})


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
        "labels": {COMPONENT_LABEL: component.value, **_recommended(policy, component)},
        "ownerReferences": [owner],
    }


def _recommended(policy: ClusterPolicy, component: ComponentName) -> Json:
    """The labels of what the policy brings. By one of them the operator finds its drivers."""
    sections = {
        ComponentName.DRIVER: policy.driver,
        ComponentName.DEVICE_PLUGIN: policy.device_plugin,
        ComponentName.PEER_DRIVER: policy.peer_driver,
    }
    section = sections[component]
    version = version_label(section.image.version) if section else ""
    return recommended(component.value, label_value(policy.name), version, MANAGER)


def _daemon_set(
    policy: ClusterPolicy, component: ComponentName, name: str, selector: Mapping[str, str]
) -> Json:
    """What the DaemonSets of all components have in common."""
    # A selector cannot be changed, so none of the other labels is in it.
    labels = {COMPONENT_LABEL: component.value, "name": label_value(name)}
    all_labels = labels | _recommended(policy, component)
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
            "template": {"metadata": {"labels": all_labels}, "spec": pod},
        },
    }
