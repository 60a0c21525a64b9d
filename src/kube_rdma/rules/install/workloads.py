"""The agent's DaemonSet with its configuration, the controller's Deployment and what protects it.

What an agent's pod needs, and why, docs/agent.md says: the host's network namespace always; with
networks three capabilities and the host's CNI folders, its runtime's socket and /proc.
"""

from __future__ import annotations

from kube_rdma.model.install.blueprint import (
    Blueprint,
    Hole,
    Json,
    Node,
    When,
    joined,
    unless,
)
from kube_rdma.rules.install import metrics, webhook
from kube_rdma.rules.install.rights import AGENT, CONTROLLER, NAMESPACE, NFD_LABELS

NETWORKS, CONFIG = "seed.networks", "seed.configMap"
FOREIGN, FUNCTIONS, INFORMATION = "agent.otherPlugins", "agent.virtualFunctions", "agent.deviceInfo"
IMAGE = When(
    "image.digest",
    joined(Hole("image.repository"), "@", Hole("image.digest")),
    joined(Hole("image.repository"), ":", Hole("image.tag")),
)
_POLICY = Hole("image.pullPolicy")
SECRETS = When("image.pullSecrets", Hole("image.pullSecrets"))
UNPRIVILEGED = {
    "runAsUser": 65532,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONF, _BINARIES = Hole("host.cniConf"), Hole("host.cniBinaries")
_RUNTIME, _KUBELET = Hole("host.runtime"), Hole("host.kubelet")
_RELEASE = "/etc/os-release"  # for the labels of the distribution
_NODE = "/var/run/netns"
_INFORMATION = "/var/run/k8s.cni.cncf.io"
_OPT_OUT = {"key": "kube-rdma.io/agent", "operator": "NotIn", "values": ["off"]}


def workloads() -> tuple[Blueprint, ...]:
    """The programs of an installation, behind what they need."""
    return (
        Blueprint(_config_map(), ("agent.enabled", CONFIG)),
        Blueprint(_daemon_set(), ("agent.enabled",)),
        Blueprint(_deployment(), ("controller.enabled",)),
        Blueprint(_disruption_budget(), ("controller.enabled",)),
    )


def _config_map() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": Hole(CONFIG), "namespace": NAMESPACE},
        # The name of the file is the preset's, so each of the two is written out.
        "data": {
            "config.json": unless("seed.policy", Hole("agent.config")),
            "policy.yaml": When("seed.policy", Hole("agent.config")),
        },
    }


def _daemon_set() -> Json:
    labels = {"name": Hole("seed.label")}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": Hole("seed.daemonSet"), "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": labels}, "spec": _agent_pod()},
        },
    }


def _agent_pod() -> Json:
    return {
        "hostNetwork": True,
        # Other CNI plugins look themselves up in the host's /proc.
        "hostPID": When(NETWORKS, When(FOREIGN, True)),
        "serviceAccountName": When("seed.account", AGENT),
        "automountServiceAccountToken": unless(NETWORKS, False),
        "imagePullSecrets": SECRETS,
        "priorityClassName": "system-node-critical",
        **_nodes(),
        "containers": [_agent_container()],
        "volumes": _volumes(),
    }


def _nodes() -> Json:
    """Which nodes have agents."""
    terms = [{"matchExpressions": [_OPT_OUT]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {
        "tolerations": When("agent.tolerations", Hole("agent.tolerations")),
        "nodeSelector": When("agent.nodeSelector", Hole("agent.nodeSelector")),
        # Every node that nobody has taken out by this label.
        "affinity": When("seed.optOut", {"nodeAffinity": required}),
    }


def leaving_pod() -> Json:
    """What a pod has that cleans a node after its agent; its containers come from who asks."""
    return {
        "serviceAccountName": AGENT,
        "automountServiceAccountToken": False,
        "imagePullSecrets": SECRETS,
        **_nodes(),
        "volumes": [
            _folder("cni-conf", _CONF),
            _folder("cni-bin", _BINARIES),
            _folder("runtime", _RUNTIME),
            _made("run", "/run/kube-rdma"),
            _made("state", "/var/lib/kube-rdma"),
        ],
    }


def leaving_mounts() -> list[Node]:
    """The same folders where `kube-rdma network uninstall` looks for them."""
    return [
        _mount("cni-conf", joined("/host", _CONF)),
        _mount("cni-bin", joined("/host", _BINARIES)),
        _mount("runtime", _RUNTIME, readOnly=True),
        _mount("run", "/host/run/kube-rdma"),
        _mount("state", "/host/var/lib/kube-rdma"),
    ]


def _agent_container() -> Json:
    file = joined("--config=", Hole("seed.configFolder"), "/", Hole("seed.configFile"))
    return {
        "image": IMAGE,
        "name": Hole("seed.container"),
        "args": [
            "agent",
            *(When(NETWORKS, word) for word in ("--role=plugin", "--role=node", "--networks")),
            When(NETWORKS, When(webhook.ISOLATION, _isolation())),
            When(NETWORKS, joined("--node-labels=", Hole("agent.nodeLabels"))),
            When("seed.configArgument", file),
            When("agent.startupTaint", When(NETWORKS, "--startup-taint")),
            *metrics.arguments(),
        ],
        "imagePullPolicy": _POLICY,
        "env": When(
            NETWORKS,
            [
                _field("NODE_NAME", "spec.nodeName"),
                _field("POD_NAMESPACE", "metadata.namespace"),
                metrics.variable(),
            ],
            When(metrics.PORT, [metrics.variable()]),
        ),
        "ports": metrics.ports(),
        "resources": Hole("agent.resources"),
        "securityContext": _security(),
        "volumeMounts": _mounts(),
    }


def _isolation() -> Node:
    return joined("--namespace-isolation=", Hole(webhook.ISOLATION))


def _security() -> Json:
    added = ["NET_ADMIN", "SYS_ADMIN", "NET_RAW", When(FOREIGN, "SYS_CHROOT")]
    # AppArmor's profile for containers forbids the file by which functions are made.
    unconfined = When(NETWORKS, When(FUNCTIONS, {"type": "Unconfined"}))
    return {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": When(NETWORKS, added)},
        "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"type": When(NETWORKS, "spc_t", "container_device_plugin_t")},
        "appArmorProfile": unconfined,
    }


def _mounts() -> list[Node]:
    networks = [
        _mount("pod-resources", joined(_KUBELET, "/pod-resources"), readOnly=True),
        _mount("runtime", _RUNTIME, readOnly=True),
        _mount("dev", "/host/dev", readOnly=True),
        _mount("namespaces", _NODE, readOnly=True, mountPropagation="HostToContainer"),
        When(FUNCTIONS, _mount("sys", "/sys")),
    ]
    behind = [
        When(NFD_LABELS, _mount("os-release", f"/host{_RELEASE}", readOnly=True)),
        _mount("cni-conf", joined("/host", _CONF)),
        _mount("cni-bin", joined("/host", _BINARIES)),
        When(
            FOREIGN,
            _mount(
                "namespaces", f"/host{_NODE}", readOnly=True, mountPropagation="HostToContainer"
            ),
        ),
        When(FOREIGN, _mount("cni-data", "/host/var/lib/cni")),
        _mount("proc", "/host/proc"),
        _mount("run", "/run/kube-rdma"),
        _mount("cdi", "/var/run/cdi"),
        _mount("state", "/var/lib/kube-rdma"),
        When(INFORMATION, _mount("device-info", _INFORMATION)),
    ]
    return [
        _mount("device-plugins", joined(_KUBELET, "/device-plugins")),
        *(When(NETWORKS, mount) for mount in networks),
        When(CONFIG, _mount("config", Hole("seed.configFolder"), readOnly=True)),
        *(When(NETWORKS, mount) for mount in behind),
    ]


def _volumes() -> list[Node]:
    networks = [
        _folder("pod-resources", joined(_KUBELET, "/pod-resources")),
        _folder("runtime", _RUNTIME),
        _folder("dev", "/dev"),
        _made("namespaces", _NODE),
        When(FUNCTIONS, _folder("sys", "/sys")),
    ]
    behind = [
        When(NFD_LABELS, _folder("os-release", _RELEASE)),
        _folder("cni-conf", _CONF),
        _folder("cni-bin", _BINARIES),
        When(FOREIGN, _made("cni-data", "/var/lib/cni")),
        _folder("proc", "/proc"),
        _made("run", "/run/kube-rdma"),
        _made("cdi", "/var/run/cdi"),
        _made("state", "/var/lib/kube-rdma"),
        When(INFORMATION, _made("device-info", _INFORMATION)),
    ]
    return [
        _folder("device-plugins", joined(_KUBELET, "/device-plugins")),
        *(When(NETWORKS, volume) for volume in networks),
        When(CONFIG, {"name": "config", "configMap": {"name": Hole(CONFIG)}}),
        *(When(NETWORKS, volume) for volume in behind),
    ]


def _deployment() -> Json:
    labels = {"name": CONTROLLER}
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",  # a cluster may have a single node
        "labelSelector": {"matchLabels": labels},
    }
    container = {
        "image": IMAGE,
        "name": "controller",
        "args": ["controller", When("seed.operator", "--policies"), *webhook.arguments()],
        "imagePullPolicy": _POLICY,
        "env": [_field("POD_NAMESPACE", "metadata.namespace")],
        "resources": Hole("controller.resources"),
        "readinessProbe": webhook.readiness(),
        "securityContext": UNPRIVILEGED,
        "volumeMounts": When(webhook.SECRET, [webhook.mount()]),
    }
    pod = {
        "serviceAccountName": CONTROLLER,
        "imagePullSecrets": SECRETS,
        "topologySpreadConstraints": [apart],
        "containers": [container],
        "volumes": When(webhook.SECRET, [webhook.volume()]),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": CONTROLLER, "namespace": NAMESPACE},
        "spec": {
            "replicas": Hole("controller.replicas"),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _disruption_budget() -> Json:
    """Drains take copies of the controller by turns.

    It counts those that may be away: with `minAvailable` a single copy would hold up each drain.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": CONTROLLER, "namespace": NAMESPACE},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"name": CONTROLLER}}},
    }


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mount(name: str, path: Node, **further: Node) -> Json:
    return {"name": name, "mountPath": path, **further}


def _folder(name: str, path: Node) -> Json:
    return {"name": name, "hostPath": {"path": path}}


def _made(name: str, path: Node) -> Json:
    """A folder that the runtime makes where it is missing."""
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
