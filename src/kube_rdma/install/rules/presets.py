"""The default values of an installation, and the layers of presets and distributions.

Later layers win: DEFAULTS, a preset, a distribution, then the values of whoever installs. What is
below `platform` are names and habits of a preset, most of them of a platform's document, not for
users to set; all else is (install/documents/installation). docs/decisions/0093 says why which
preset has what, docs/agent.md explains the folders of the distributions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kube_rdma.install.rules.release import NAMES, SINCE, with_release, with_version
from kube_rdma.model.admission import USUAL
from kube_rdma.model.install import Json, Values

RESOURCES = "resources"
_AGENT_RESOURCES = {"requests": {"cpu": "10m", "memory": "70Mi"}, "limits": {"memory": "256Mi"}}
_CONTROLLER_RESOURCES = {
    "requests": {"cpu": "10m", "memory": "70Mi"},
    "limits": {"memory": "512Mi"},
}
_NO_AFFINITY: Json = {"nodeAffinity": {}, "podAffinity": {}, "podAntiAffinity": {}}

# Networks by rail: each of the first for cards of its rail, the last for a card of any.
_RAIL_POOLS = {str(rail): f"rail-{rail}" for rail in range(8)}
_RAILS = [
    *({"name": pool, "pools": json.dumps({rail: pool})} for rail, pool in _RAIL_POOLS.items()),
    {"name": "rails", "pools": json.dumps(_RAIL_POOLS)},
]

DEFAULTS: Json = {
    "preset": "default",
    "distribution": "kubernetes",
    "kubernetesVersion": "",
    "fullnameOverride": "",
    "image": {
        "repository": "kube-rdma.io/kube-rdma",
        "tag": "dev",
        "digest": "",
        "pullPolicy": "IfNotPresent",
        "pullSecrets": [],
        "architectures": ["amd64", "arm64"],
    },
    "namespace": {"name": "kube-system", "create": False},
    "agent": {
        "enabled": True,
        "config": "",
        "nodeSelector": {},
        "tolerations": [{"operator": "Exists"}],
        "affinity": _NO_AFFINITY,
        "priorityClassName": "system-node-critical",
        "resources": _AGENT_RESOURCES,
        "otherPlugins": False,
        "deviceInfo": False,
        "virtualFunctions": False,
        "shareLimits": False,
        "startupTaint": False,
        "nodeLabels": "write",
        "namespaceIsolation": "",
        "seLinuxType": "",
        "seccompProfile": "",
        "podLabels": {},
        "podAnnotations": {},
        "extraArgs": [],
    },
    "controller": {
        "enabled": False,
        "name": "",
        "policyScope": "Namespaced",
        "replicas": 2,
        "resources": _CONTROLLER_RESOURCES,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [],
        "affinity": _NO_AFFINITY,
        "priorityClassName": "",
        "seccompProfile": "",
        "podLabels": {},
        "podAnnotations": {},
        "extraArgs": [],
    },
    "labeller": {"enabled": False},
    "claims": {"enabled": False, "dranetAttributes": False, "templateClasses": True, "classes": []},
    "roles": {"install": True, "doctor": True},
    "pools": [],
    "networks": {"install": False, "mtu": 0},
    "crds": {"install": False, "nicClusterPolicies": True, "networkAttachmentDefinitions": False},
    "admission": {
        "install": False,
        "pods": {
            "check": False,
            "complete": False,
            "shareResources": ",".join(USUAL.shares),
            "mgpuResources": ",".join(USUAL.mgpu),
            "gpuResources": ",".join(USUAL.gpus),
            "vepfsDrivers": ",".join(USUAL.vepfs_drivers),
            "vepfsStorageClasses": "",
            "hostNetworkResources": "",
            "networkResources": "",
            "shmSize": USUAL.shm_size,
        },
        "webhook": {},
    },
    "metrics": {
        "port": 0,
        "pods": False,
        "names": "node-exporter",
        "podMonitor": False,
        "rules": False,
        "dashboards": False,
        "runbook": "https://kube-rdma.io/docs/runbook.md",
        "labels": {},
    },
    "host": {
        "kubelet": "/var/lib/kubelet",
        "cniConf": "/etc/cni/net.d",
        "cniBinaries": "/opt/cni/bin",
        "runtime": "/run/containerd",
        "cdi": "/var/run/cdi",
    },
    "platform": {
        "daemonSet": "rdma-device-plugin",
        "label": "rdma-device-plugin",
        "container": "agent",
        "networks": False,
        "account": False,
        "optOut": False,
        "operator": False,
        "configMap": "",
        "configFile": "config.json",
        "policy": False,
        "configFolder": "/config",
        "configArgument": False,
        "quota": False,
        "constraints": False,
        "user": 65532,
        "rails": _RAILS,
        **dict.fromkeys(SINCE, True),
        **dict.fromkeys(NAMES, ""),
    },
}


# Presets without a document: names of kube-rdma's own, and pools by what cards can do.
_ONE_POOL = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata:
  name: {}
spec:
  pools:
  - resource: {}
    mode: {}
"""
_NICS = _ONE_POOL.format("nics", "rdma/nic", "shared-multi")
_NIC_OF_EACH_RAIL = _ONE_POOL.format("rails", "rdma/nic", "shared")
_ALL_NICS = _ONE_POOL.format("all-nics", "rdma/ib", "hca")
_EFA = f"""\
{_ONE_POOL.format("efa", "vpc.amazonaws.com/efa", "exclusive")}\
    attach: none
    selectors:
    - drivers: [efa]
"""

# As their documents write them.
_HCA = """\
{
  "mode" : "hca"
}
"""
_HCA_ON_HOST = """\
{
  "mode" : "hca",
  "hostNetwork" : true
}
"""
_SHARED_DEVICES = """\
{
  "configList": [
    {
      "resourceName": "hca_shared_devices_a",
      "rdmaHcaMax": 1000,
      "devices": ["ens2f0"]
    }
  ]
}
"""
_FUNCTIONS = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata:
  name: infiniband
spec:
  virtualFunctions:
  - selectors:
    - interfaces: ["ens4f0"]
    count: 4
  pools:
  - resource: rdma/vf
    mode: sriov
    attach: auto
    selectors:
    - physicalFunctions: ["ens4f0#0-3"]
"""
_CARDS = {"feature.node.kubernetes.io/pci-15b3.present": "true"}
_NETWORKS: Json = {
    "controller": {"enabled": True},
    "crds": {"install": True},
    "admission": {"install": True},
}

_OWN_NAMES = {
    "daemonSet": "kube-rdma-agent",
    "label": "kube-rdma-agent",
    "optOut": True,
    "configMap": "kube-rdma-agent",
    "configFile": "policy.yaml",
    "policy": True,
    "configArgument": True,
}
_OWN_NAMESPACE = {"name": "kube-rdma", "create": True}
# A document says what its agents run with; where there is none, alerts work.
_OWN_METRICS = {"port": 9879}
_OWN: Json = {
    **_NETWORKS,
    "namespace": _OWN_NAMESPACE,
    "metrics": _OWN_METRICS,
    "platform": {**_OWN_NAMES, "networks": True, "account": True},
}

PRESETS: Mapping[str, Json] = {
    "default": {**_OWN, "agent": {"config": _NICS}},
    "rails": {
        **_OWN,
        "agent": {"config": _NIC_OF_EACH_RAIL},
        "networks": {"install": True},
        "admission": {"install": True, "pods": {"check": True, "networkResources": "rdma/nic"}},
    },
    "rdma-ib": {**_OWN, "agent": {"config": _ALL_NICS}},
    # EFA has no interface to attach, so agents need neither networks nor rights.
    "efa": {
        "namespace": _OWN_NAMESPACE,
        "agent": {"config": _EFA},
        "admission": {"pods": {"shareResources": "rdma/*,vpc.amazonaws.com/efa"}},
        "metrics": _OWN_METRICS,
        "platform": _OWN_NAMES,
    },
    "ack": {
        "agent": {"config": _HCA_ON_HOST},
        "admission": {"pods": {"check": True, "hostNetworkResources": "rdma/hca"}},
        "platform": {
            "daemonSet": "ack-rdma-dp-ds",
            "label": "ack-rdma-dp-ds",
            "container": "rdma-device-plugin",
            "configMap": "ack-rdma-dp",
            "configArgument": True,
        },
    },
    "scc": {
        "agent": {"config": _HCA},
        "platform": {
            "label": "rdma-sriov-dp-ds",
            "container": "k8s-rdma-device-plugin",
            "configMap": "rdma-devices",
            "configFolder": "/k8s-rdma-sriov-dev-plugin",
        },
    },
    "vke": {
        **_NETWORKS,
        "admission": {"install": True, "pods": {"check": True}},
        "namespace": {"name": "kube-rdma-vke", "create": True},
        "platform": {"networks": True, "account": True, "optOut": True},
    },
    "nvidia": {
        **_NETWORKS,
        "namespace": {"name": "mlnx-network-operator", "create": True},
        "agent": {
            "config": _SHARED_DEVICES,
            "nodeSelector": _CARDS,
            # Where a label selects the agent, it is not the one to write labels.
            "nodeLabels": "leave",
            "otherPlugins": True,
            "deviceInfo": True,
        },
        "platform": {
            "daemonSet": "rdma-shared-dp-ds",
            "label": "rdma-shared-dp-ds",
            "networks": True,
            "account": True,
            "configMap": "rdma-devices",
            "configArgument": True,
        },
    },
    "nvidia-operator": {
        "namespace": {"name": "mlnx-network-operator", "create": True},
        **_NETWORKS,
        "agent": {"enabled": False, "nodeLabels": "leave"},
        "platform": {"operator": True},
    },
    "ib": {
        **_NETWORKS,
        "namespace": {"name": "kube-rdma-vf", "create": True},
        "agent": {
            "config": _FUNCTIONS,
            "deviceInfo": True,
            "virtualFunctions": True,
            "namespaceIsolation": "default,kube-system",
        },
        "platform": {
            "daemonSet": "rdma-vf",
            "label": "rdma-vf",
            "networks": True,
            "account": True,
            "optOut": True,
            "configMap": "rdma-functions",
            "configFile": "policy.yaml",
            "policy": True,
            "configArgument": True,
        },
    },
}

# Their policies have no type for device plugins, and a container with a type that the policy lacks
# is never created: bottlerocket-core-kit packages/selinux-policy, SELinuxProject/refpolicy
# container.te, siderolabs/talos internal/pkg/selinux. All have spc_t, by this or as another name.
_NO_PLUGIN_TYPE: Json = {"agent": {"seLinuxType": "spc_t"}}
_K3S_AGENT = "/var/lib/rancher/k3s"
_SNAP = "/var/snap/microk8s"
DISTRIBUTIONS: Mapping[str, Json] = {
    "kubernetes": {},
    "gke": {"host": {"cniBinaries": "/home/kubernetes/bin"}, "platform": {"quota": True}},
    # All of data, for the folder of binaries in it has another name from release to release.
    "k3s": {
        "host": {
            "cniConf": f"{_K3S_AGENT}/agent/etc/cni/net.d",
            "cniBinaries": f"{_K3S_AGENT}/data",
            "runtime": "/run/k3s/containerd",
        }
    },
    "rke2": {"host": {"runtime": "/run/k3s/containerd"}},
    # docs.k0sproject.io "k0s directories", k0s docs/runtime.md.
    "k0s": {"host": {"kubelet": "/var/lib/k0s/kubelet", "runtime": "/run/k0s"}},
    # canonical/microk8s microk8s-resources/default-args: kubelet, containerd, containerd-template.
    # `current` is a link to the snap's revision, which agents read as this (cni/conf/places).
    "microk8s": {
        "host": {
            "kubelet": f"{_SNAP}/common/var/lib/kubelet",
            "cniConf": f"{_SNAP}/current/args/cni-network",
            "cniBinaries": f"{_SNAP}/current/opt/cni/bin",
            "runtime": f"{_SNAP}/common/run",
        }
    },
    "openshift": {
        "host": {
            "cniConf": "/etc/kubernetes/cni/net.d",
            "cniBinaries": "/var/lib/cni/bin",
            "runtime": "/run/crio",
        },
        "platform": {"account": True, "constraints": True, "user": 0},
    },
    "bottlerocket": _NO_PLUGIN_TYPE,
    "flatcar": _NO_PLUGIN_TYPE,
    "talos": _NO_PLUGIN_TYPE,
}


DEFAULT_PRESET: str = DEFAULTS["preset"]


def namespaces() -> tuple[str, ...]:
    """Return the namespaces that presets install into, that of the default preset first."""
    layers = [PRESETS[DEFAULT_PRESET], *PRESETS.values(), DEFAULTS]
    return tuple(dict.fromkeys(one["namespace"]["name"] for one in layers if "namespace" in one))


def merged(given: Values) -> Json:
    """Return all values of an installation, `given` over those of its preset and distribution.

    Objects are merged field by field, everything else is replaced. KeyError for a preset or
    distribution of another name. Without a name the preset is that of DEFAULTS.
    """
    given = written(given)
    layers = (
        PRESETS[given.get("preset", DEFAULT_PRESET)],
        DISTRIBUTIONS[given.get("distribution", "kubernetes")],
    )
    values: Any = DEFAULTS
    for layer in (*layers, given):
        values = over(values, layer)
    return with_release(with_version(_without_nulls(values)))


def written(given: Values) -> Json:
    """Return the values without those that are null, which are as if they were left out.

    Inside of `resources`, objects of Kubernetes, a null takes away a part of the default.
    """
    return {
        key: written(value) if isinstance(value, Mapping) and key != RESOURCES else value
        for key, value in given.items()
        if value is not None
    }


def _without_nulls(values: Values) -> Json:
    return {
        key: _without_nulls(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def over(below: Any, above: Any) -> Any:
    """Return `above` laid over `below`, as Helm merges values."""
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    kept = {key: value for key, value in below.items() if key not in above}
    return kept | {
        key: over(below[key], value) if key in below else value for key, value in above.items()
    }
