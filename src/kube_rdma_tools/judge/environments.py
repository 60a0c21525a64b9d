"""The kinds of clusters that installations are judged in, each with the sources of its facts."""

from __future__ import annotations

from kube_rdma.model.kubernetes import Taint
from kube_rdma_tools.judge.environment import Environment, JudgedNode, NodePaths, SecurityLevel
from kube_rdma_tools.judge.neighbours import (
    ACK_COMPONENT,
    CALICO,
    CARDS_LABEL,
    FEATURE_DISCOVERY,
    FIRST_NETWORK_OPERATOR,
    GPU_OPERATOR,
    GPUS_LABEL,
    NETWORK_OPERATOR,
    SCC_MANIFEST,
    SHARED_DEVICE_PLUGIN,
)
from kube_rdma_tools.judge.security_constraints import SECURITY_CONSTRAINTS, UNHELD_NAMESPACES
from kube_rdma_tools.judge.selinux_policies import (
    BOTTLEROCKET,
    CONTAINER_SELINUX,
    DEBIAN,
    FLATCAR,
    TALOS,
)

_SYSTEM = frozenset(("kube-system",))
# kubernetes.io "Well-Known Labels, Annotations and Taints".
_CONTROL_PLANE = JudgedNode(
    "control-plane",
    taints=(Taint("node-role.kubernetes.io/control-plane", "NoSchedule"),),
    labels={"node-role.kubernetes.io/control-plane": ""},
)
_WORKERS = (_CONTROL_PLANE, JudgedNode("worker", cards=True))
# GPU clouds and GKE set it, and NVIDIA's documents name it.
_GPUS = Taint("nvidia.com/gpu", "NoSchedule", "present")
_ADDONS = Taint("CriticalAddonsOnly", "NoSchedule", "true")
_WINDOWS = JudgedNode("windows", system="windows")

_VERSIONS = tuple(
    Environment(
        f"kubeadm-1.{minor}", f"kubeadm on Ubuntu, Kubernetes 1.{minor}", minor, nodes=_WORKERS
    )
    for minor in (22, 24, 28, 30, 36)
)

# Folders: docs/agent.md "Distributions", read from nodes and documents of each.
_DISTRIBUTIONS = (
    Environment(
        "crio",
        "kubeadm with CRI-O",
        nodes=_WORKERS,
        values={"host.runtime": "/run/crio"},
        paths=NodePaths(runtime="/run/crio"),
    ),
    Environment(
        "k3s",
        "k3s with its flannel",
        nodes=(JudgedNode("server", cards=True),),
        distributions=("k3s",),
        paths=NodePaths(
            cni_conf="/var/lib/rancher/k3s/agent/etc/cni/net.d",
            cni_binaries="/var/lib/rancher/k3s/data/cni",
            runtime="/run/k3s/containerd",
        ),
    ),
    Environment(
        "rke2",
        "RKE2",
        nodes=_WORKERS,
        distributions=("rke2",),
        paths=NodePaths(runtime="/run/k3s/containerd"),
    ),
    Environment(
        "k0s",
        "k0s",
        nodes=_WORKERS,
        distributions=("k0s",),
        paths=NodePaths(runtime="/run/k0s", kubelet="/var/lib/k0s/kubelet"),
    ),
    Environment(
        "microk8s",
        "MicroK8s",
        nodes=(JudgedNode("node", cards=True),),
        distributions=("microk8s",),
        paths=NodePaths(
            kubelet="/var/snap/microk8s/common/var/lib/kubelet",
            cni_conf="/var/snap/microk8s/current/args/cni-network",
            cni_binaries="/var/snap/microk8s/current/opt/cni/bin",
            runtime="/var/snap/microk8s/common/run",
        ),
    ),
)

_SYSTEMS = (
    Environment(
        "rhel",
        "kubeadm on RHEL 9, SELinux enforcing",
        nodes=(JudgedNode("worker", cards=True, selinux=CONTAINER_SELINUX),),
    ),
    Environment(
        "debian-selinux",
        "kubeadm on Debian with SELinux",
        nodes=(JudgedNode("worker", cards=True, selinux=DEBIAN),),
        values={"agent.seLinuxType": "spc_t"},
    ),
    Environment(
        "openshift",
        "OpenShift 4.20",
        33,
        nodes=(
            JudgedNode(
                "master",
                taints=(Taint("node-role.kubernetes.io/master", "NoSchedule"),),
                selinux=CONTAINER_SELINUX,
            ),
            JudgedNode("worker", cards=True, selinux=CONTAINER_SELINUX),
        ),
        distributions=("openshift",),
        # RHEL CoreOS is an ostree system: all but /etc and /var is read-only, /opt lies below /var.
        paths=NodePaths(
            cni_conf="/etc/kubernetes/cni/net.d",
            cni_binaries="/var/lib/cni/bin",
            runtime="/run/crio",
            read_only=("/",),
            writable=("/etc", "/var", "/opt", "/home"),
        ),
        exempt=UNHELD_NAMESPACES,
        constraints=SECURITY_CONSTRAINTS,
    ),
    Environment(
        "bottlerocket",
        "EKS on Bottlerocket",
        33,
        nodes=(JudgedNode("worker", cards=True, selinux=BOTTLEROCKET),),
        distributions=("bottlerocket", "eks", "kubernetes"),
        # bottlerocket-core-kit packages/release: the root is verified by dm-verity, /etc and
        # /etc/cni are file systems in memory, /opt and /var lie on local storage.
        paths=NodePaths(
            read_only=("/",),
            writable=("/etc", "/var", "/opt", "/mnt"),
        ),
    ),
    Environment(
        "flatcar",
        "kubeadm on Flatcar",
        nodes=(_CONTROL_PLANE, JudgedNode("worker", cards=True, selinux=FLATCAR)),
        distributions=("flatcar", "kubernetes"),
        paths=NodePaths(read_only=("/usr",)),  # flatcar.org "Disk layout"
    ),
    Environment(
        "talos",
        "Talos Linux",
        nodes=_WORKERS,
        distributions=("talos", "kubernetes"),
        # siderolabs/talos hack/cri-plugin.part: its CRI labels no containers.
        paths=NodePaths(
            read_only=("/",),
            writable=("/etc/cni", "/etc/kubernetes", "/opt", "/var"),  # constants.Overlays
        ),
        level=SecurityLevel.BASELINE,  # docs.siderolabs.com "Pod Security"
        exempt=_SYSTEM,
    ),
    Environment(
        "talos-dra",
        "Talos Linux as its guide for DRA has it, with SELinux labels",
        nodes=(_CONTROL_PLANE, JudgedNode("worker", cards=True, selinux=TALOS)),
        distributions=("talos", "kubernetes"),
        values={"host.cdi": "/var/cdi/dynamic"},
        # docs.siderolabs.com "Set CDI plugin Spec Dirs to writable directories".
        paths=NodePaths(cdi=("/var/cdi/static", "/var/cdi/dynamic")),
        level=SecurityLevel.BASELINE,
        exempt=_SYSTEM,
    ),
)

_CLOUDS = (
    Environment(
        "gke",
        "GKE Standard, GPU nodes tainted",
        33,
        nodes=(JudgedNode("default"), JudgedNode("gpu", cards=True, taints=(_GPUS,))),
        distributions=("gke",),
        # Container-Optimized OS, "Filesystem": the root is read-only and verified.
        paths=NodePaths(
            cni_binaries="/home/kubernetes/bin",
            read_only=("/",),
            writable=("/etc", "/var", "/home", "/mnt"),
        ),
        # open-policy-agent/gatekeeper issue 1120: GKE limits both classes outside of kube-system.
        quota_classes=frozenset(("system-node-critical", "system-cluster-critical")),
    ),
    Environment(
        "gke-arm",
        "GKE with GB200 nodes",
        33,
        nodes=(
            JudgedNode("default"),
            JudgedNode(
                "gb200",
                cards=True,
                # GKE taints every Arm node pool so by itself.
                taints=(_GPUS, Taint("kubernetes.io/arch", "NoSchedule", "arm64")),
                architecture="arm64",
            ),
        ),
        distributions=("gke",),
        paths=NodePaths(cni_binaries="/home/kubernetes/bin"),
        quota_classes=frozenset(("system-node-critical", "system-cluster-critical")),
    ),
    Environment(
        "eks",
        "EKS on Amazon Linux 2023, with Fargate",
        33,
        nodes=(
            JudgedNode("worker", cards=True),
            # aws/eks-charts pull request 260; the taint is EKS's own.
            JudgedNode(
                "fargate",
                taints=(Taint("eks.amazonaws.com/compute-type", "NoSchedule", "fargate"),),
                labels={"eks.amazonaws.com/compute-type": "fargate"},
                virtual=True,
            ),
        ),
        distributions=("eks", "kubernetes"),
    ),
    Environment(
        "aks",
        "AKS with virtual nodes",
        33,
        nodes=(
            JudgedNode("system", taints=(_ADDONS,)),
            JudgedNode("gpu", cards=True),
            # learn.microsoft.com "virtual nodes"; kubernetes-sigs/azurefile-csi-driver issue 454.
            JudgedNode(
                "virtual-node-aci-linux",
                taints=(Taint("virtual-kubelet.io/provider", "NoSchedule", "azure"),),
                labels={"type": "virtual-kubelet"},
                virtual=True,
            ),
        ),
        distributions=("aks", "kubernetes"),
    ),
    Environment(
        "ack",
        "ACK with virtual nodes and its RDMA component",
        32,
        nodes=(
            JudgedNode("worker", cards=True),
            # alibabacloud.com "Elastic container instances": the taint of every virtual node.
            JudgedNode(
                "virtual-kubelet",
                taints=(Taint("virtual-kubelet.io/provider", "NoSchedule", "alibabacloud"),),
                labels={"type": "virtual-kubelet"},
                virtual=True,
            ),
        ),
        neighbours=(ACK_COMPONENT,),
    ),
    Environment(
        "vke",
        "VKE with virtual nodes",
        30,
        nodes=(
            JudgedNode("worker", cards=True),
            # volcengine.com "Elastic container instances": taint and label of its virtual nodes.
            JudgedNode(
                "vci",
                taints=(Taint("vci.vke.volcengine.com/node-type", "NoSchedule", "vci"),),
                labels={"vci.vke.volcengine.com/node-type": "vci"},
                virtual=True,
            ),
        ),
    ),
    Environment(
        "karpenter",
        "EKS with Karpenter",
        33,
        nodes=(
            JudgedNode("managed", taints=(_ADDONS,)),
            # karpenter.sh "NodePools": by default of both architectures, tainted as one writes it.
            JudgedNode("general", labels={"karpenter.sh/nodepool": "general"}),
            JudgedNode(
                "graviton", labels={"karpenter.sh/nodepool": "general"}, architecture="arm64"
            ),
            JudgedNode(
                "gpu",
                cards=True,
                taints=(_GPUS,),
                labels={"karpenter.sh/nodepool": "gpu"},
            ),
        ),
        distributions=("eks", "kubernetes"),
    ),
)

_NODES = (
    Environment(
        "tainted",
        "a GPU cloud whose nodes are all tainted",
        values={"controller.tolerations": "[{key: CriticalAddonsOnly, operator: Exists}]"},
        nodes=(
            _CONTROL_PLANE,
            JudgedNode("system", taints=(_ADDONS,)),
            JudgedNode("gpu", cards=True, taints=(_GPUS,)),
        ),
    ),
    Environment(
        "drained",
        "GPU nodes whose taint also evicts",
        nodes=(
            JudgedNode("worker"),
            JudgedNode("gpu", cards=True, taints=(Taint("dedicated", "NoExecute", "training"),)),
        ),
    ),
    Environment(
        "mixed",
        "amd64 and arm64 nodes, image for amd64 alone",
        nodes=(
            JudgedNode("worker", cards=True),
            JudgedNode("arm", cards=True, architecture="arm64"),
        ),
        values={"image.architectures": "[amd64]"},
        image=frozenset(("amd64",)),
    ),
    # AKS and kubeadm leave Windows nodes without a taint.
    Environment("windows", "kubeadm with Windows nodes", nodes=(*_WORKERS, _WINDOWS)),
)

_LEVELS = (
    Environment(
        "baseline",
        "Pod Security baseline enforced in every namespace but kube-system",
        nodes=_WORKERS,
        level=SecurityLevel.BASELINE,
        exempt=_SYSTEM,
    ),
    Environment(
        "restricted",
        "Pod Security restricted enforced in every namespace but kube-system",
        nodes=_WORKERS,
        level=SecurityLevel.RESTRICTED,
        exempt=_SYSTEM,
    ),
)

_LABELLED = JudgedNode("gpu", cards=True, labels={CARDS_LABEL: "true", GPUS_LABEL: "true"})
_NEIGHBOURS = (
    Environment(
        "network-operator",
        "beside NVIDIA's Network Operator and GPU Operator",
        nodes=(_CONTROL_PLANE, _LABELLED),
        neighbours=(NETWORK_OPERATOR, GPU_OPERATOR, FEATURE_DISCOVERY),
    ),
    Environment(
        "network-operator-0.1",
        "beside NVIDIA's Network Operator 0.1.0",
        nodes=(_CONTROL_PLANE, _LABELLED),
        neighbours=(FIRST_NETWORK_OPERATOR, FEATURE_DISCOVERY),
    ),
    Environment(
        "nfd",
        "beside Node Feature Discovery as it comes",
        nodes=(
            _CONTROL_PLANE,
            JudgedNode(
                "gpu",
                cards=True,
                labels={"feature.node.kubernetes.io/pci-0200_15b3.present": "true"},
            ),
        ),
        neighbours=(FEATURE_DISCOVERY,),
    ),
    Environment(
        "shared-device-plugin",
        "beside Mellanox' shared device plugin",
        nodes=_WORKERS,
        neighbours=(SHARED_DEVICE_PLUGIN,),
    ),
    Environment(
        "scc",
        "Alibaba SCC with the document's device plugin",
        nodes=_WORKERS,
        neighbours=(SCC_MANIFEST,),
    ),
    Environment("calico", "kubeadm with Calico", nodes=_WORKERS, neighbours=(CALICO,)),
)

ENVIRONMENTS = {
    environment.name: environment
    for group in (_VERSIONS, _DISTRIBUTIONS, _SYSTEMS, _CLOUDS, _NODES, _LEVELS, _NEIGHBOURS)
    for environment in group
}
