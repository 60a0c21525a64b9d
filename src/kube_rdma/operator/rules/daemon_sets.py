"""Makes the objects of device plugins as documents, and what the DaemonSets of all parts share.

Names and host folders are those of NVIDIA's Network Operator 0.1.0, or of a later release for parts
that 0.1.0 lacks. So scripts and people find what they know. Comments name differences.
operator/rules/driver_sets makes the DaemonSets of drivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from kube_base.frozen import Frozen
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import merged
from kube_rdma.install.rules.release import GROUP, MANAGER, recommended, version_label
from kube_rdma.model.install import Blueprint, Values
from kube_rdma.model.operator import ClusterPolicy, ComponentImage, ComponentName
from kube_rdma.operator.rules.placement import CARDS_LABEL, READY_LABEL, label_value

Json: TypeAlias = dict[str, Any]

COMPONENT_LABEL = "kube-rdma.io/component"
DRIVER_ACCOUNT = "kube-rdma-driver"  # where constraints need one (objects/rights.yaml)
CONFIG_HASH = "kube-rdma.io/config-hash"
MANAGED_LABEL = f"{GROUP}managed-by"
DEVICE_INFOS = "/var/run/k8s.cni.cncf.io/devinfo/dp"
# The parent of device-plugins, whatever the kubelet's root is (kubernetes/kubernetes issue 120626).
_DEVICE_PLUGINS = "/var/lib/kubelet/"


class WantedObjects(Frozen):
    """The DaemonSets and the ConfigMap that one component of a policy wants."""

    daemon_sets: tuple[Json, ...] = ()
    config_map: Json | None = None


class PluginNames(Frozen):
    """The names and folders by which NVIDIA's operator deploys a device plugin."""

    component: ComponentName
    daemon_set: str
    config_map: str
    container: str
    config_folder: str
    folders: tuple[tuple[str, str], ...]  # name, and path on the node and in the container


SHARED = PluginNames(  # manifests/stage-rdma-device-plugin of v0.1.0
    ComponentName.DEVICE_PLUGIN,
    "rdma-shared-dp-ds",
    "rdma-devices",
    "k8s-rdma-shared-dp-ds",
    "/k8s-rdma-shared-dev-plugin",
    (("devs", "/dev/"),),
)
# manifests/state-sriov-device-plugin of v26.7.0-rc.2; without its arguments, which only say where
# logs go, and which kube-rdma's image does not have.
SRIOV = PluginNames(
    ComponentName.SRIOV_PLUGIN,
    "network-operator-sriov-device-plugin",
    "network-operator-sriovdp-config",
    "kube-sriovdp",
    "/etc/pcidp",
    (("devs", "/dev/"), ("device-info", DEVICE_INFOS)),
)


def plugin_objects(
    policy: ClusterPolicy,
    workloads: Sequence[Blueprint],
    away: int = 0,
    values: Values | None = None,
    names: PluginNames = SHARED,
) -> WantedObjects:
    """Return the objects that a policy wants for a device plugin; none if it wants no plugin.

    `away` is how many of its nodes are not ready. `workloads` are the workloads of an installation,
    one of which is the agent's DaemonSet. `values` are the operator's own installation's.
    """
    section = policy.device_plugin if names is SHARED else policy.sriov_plugin
    if section is None:
        return WantedObjects()
    # Node by node behind its driver: one that is away holds no other back.
    behind = {READY_LABEL: "true"} if policy.driver else {}
    selector = {CARDS_LABEL: "true", **behind}
    made = daemon_set(policy, names.component, names.daemon_set, selector)
    # One at a time, as by default. The controller counts the pod of a node that is away among those
    # (pkg/controller/daemon/update.go), and one such node would end every roll-out.
    made["spec"]["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": 1 + away}}
    template = made["spec"]["template"]
    if policy.affinity:
        template["spec"]["affinity"] = {"nodeAffinity": policy.affinity}
    if section.config is not None:
        # Vendors' plugins read their configuration once; a changed one has to start them anew.
        template["metadata"]["annotations"] = {
            CONFIG_HASH: sha256(section.config.encode()).hexdigest()[:16]
        }
    if section.networks:
        del template["spec"]["automountServiceAccountToken"]
        template["spec"] |= _agent_pod(section.image, names, workloads, values or {})
    else:
        template["spec"] |= _plugin_pod(section.image, names)
        template["spec"] |= account(values)
    if section.requirements is not None:
        template["spec"]["containers"][0]["resources"] = section.requirements
    if section.config is None:  # the administrator's own ConfigMap is mounted
        return WantedObjects((made,))
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(policy, names.config_map, names.component),
        "data": {"config.json": section.config},
    }
    return WantedObjects((made,), config_map)


def account(values: Values | None) -> Json:
    """Return the pod fields that name a privileged service account, {} if the cluster needs none.

    A cluster needs the account where not every account may have privileged pods.
    """
    constraints = _merged(values or {})["platform"]["constraints"]
    return {"serviceAccountName": DRIVER_ACCOUNT} if constraints else {}


def _merged(values: Values) -> Json:
    """Return all values with preset `nvidia`, whose agents are like those that policies deploy."""
    return merged({**values, "preset": "nvidia"})


def _plugin_pod(image: ComponentImage, names: PluginNames) -> Json:
    """Return the pod spec of a foreign device plugin, as NVIDIA's operator has it."""
    container = {
        "name": names.container,
        "image": named(image, f"{image.repository}/{image.image}:{image.version}"),
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "volumeMounts": [
            mount("device-plugin", _DEVICE_PLUGINS),
            mount("config", names.config_folder),
            *(mount(name, path) for name, path in names.folders),
        ],
    }
    volumes = [
        folder("device-plugin", _DEVICE_PLUGINS),
        {"name": "config", "configMap": {"name": names.config_map}},
        *(folder(name, path) for name, path in names.folders),
    ]
    return {"containers": [container], "volumes": volumes}


def _agent_pod(
    image: ComponentImage, names: PluginNames, workloads: Sequence[Blueprint], values: Values
) -> Json:
    """Return the pod spec of kube-rdma's agent with networks, as preset `nvidia` installs it."""
    own = {
        "image": {
            "repository": f"{image.repository}/{image.image}",
            "tag": image.version,
            "digest": image.digest,
        },
        "platform": {"container": names.container, "configMap": names.config_map},
    }
    objects = filled(workloads, _merged({**values, **own}))
    (pod,) = (made["spec"]["template"]["spec"] for made in objects if made["kind"] == "DaemonSet")
    fields = ("containers", "volumes", "hostPID", "serviceAccountName")
    return {name: pod[name] for name in fields}


def named(image: ComponentImage, by_tag: str) -> str:
    """Return the name of an image with its digest if the policy has one, else `by_tag`.

    A digest stands for all kernels.
    """
    return f"{image.repository}/{image.image}@{image.digest}" if image.digest else by_tag


def mount(name: str, path: str, propagation: str = "") -> Json:
    """Return a volumeMount of a container."""
    made = {"name": name, "mountPath": path}
    return made | ({"mountPropagation": propagation} if propagation else {})


def folder(name: str, path: str, kind: str = "DirectoryOrCreate") -> Json:
    """Return a volume of a pod that is a folder of the node."""
    return {"name": name, "hostPath": {"path": path, **({"type": kind} if kind else {})}}


def metadata(policy: ClusterPolicy, name: str, component: ComponentName) -> Json:
    """Return the metadata of an object that belongs to a policy."""
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
    """Return the recommended labels of a component's objects.

    By one of these labels the operator finds its drivers.
    """
    sections = {
        ComponentName.DRIVER: policy.driver,
        ComponentName.DEVICE_PLUGIN: policy.device_plugin,
        ComponentName.SRIOV_PLUGIN: policy.sriov_plugin,
        ComponentName.PEER_DRIVER: policy.peer_driver,
    }
    section = sections[component]
    version = version_label(section.image.version) if section else ""
    return recommended(component.value, label_value(policy.name), version, MANAGER)


def daemon_set(
    policy: ClusterPolicy, component: ComponentName, name: str, selector: Mapping[str, str]
) -> Json:
    """Return the DaemonSet that all components start from, without containers."""
    # A selector cannot be changed, so none of the other labels is in it.
    labels = {COMPONENT_LABEL: component.value, "name": label_value(name)}
    all_labels = labels | _recommended(policy, component)
    pod: Json = {
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "nodeSelector": dict(selector),
        "priorityClassName": "system-node-critical",
        # NoExecute too: such a taint on a running node would end its driver under the pods there.
        "tolerations": [{"operator": "Exists"}, *policy.tolerations],
    }
    if policy.pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in policy.pull_secrets]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(policy, name, component),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": all_labels}, "spec": pod},
        },
    }


# Comparison of an object with what kube-rdma wrote into it.


def holds(stored: object, wanted: object) -> bool:
    """Return whether `stored` has all values of `wanted`; lists are compared entry by entry."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            holds(stored.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return (
            isinstance(stored, Sequence)
            and len(stored) == len(wanted)
            and all(map(holds, stored, wanted))
        )
    return stored == wanted
