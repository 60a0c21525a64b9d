"""Installations of others in a cluster: names, definitions, labels that they select.

Objects have the names that a release has if it is called as in the other project's documents.
"""

from __future__ import annotations

from kube_rdma_tools.judge.environment import Neighbour, TakenDefinition, TakenObject

CARDS_LABEL = "feature.node.kubernetes.io/pci-15b3.present"
GPUS_LABEL = "feature.node.kubernetes.io/pci-10de.present"
_ATTACHMENTS = TakenDefinition(
    "network-attachment-definitions.k8s.cni.cncf.io",
    "NetworkAttachmentDefinition",
    short_names=("net-attach-def",),
)

# Mellanox/network-operator deployment/network-operator (2026-08): templates/role.yaml and
# role_binding.yaml by "network-operator.fullname", operator.yaml, crds/; nv-ipam by
# Mellanox/nvidia-k8s-ipam deploy/crds; Whereabouts by its doc/crds.
NETWORK_OPERATOR = Neighbour(
    "NVIDIA's Network Operator",
    (
        TakenObject("Namespace", "nvidia-network-operator"),
        TakenObject("ClusterRole", "network-operator"),
        TakenObject("ClusterRoleBinding", "network-operator"),
        TakenObject("Deployment", "network-operator", "nvidia-network-operator"),
        TakenObject("ServiceAccount", "network-operator", "nvidia-network-operator"),
        TakenObject("DaemonSet", "rdma-shared-dp-ds", "nvidia-network-operator"),
        TakenObject("ConfigMap", "rdma-devices", "nvidia-network-operator"),
    ),
    (
        TakenDefinition("nicclusterpolicies.mellanox.com", "NicClusterPolicy", cluster_wide=True),
        TakenDefinition("nicnodepolicies.mellanox.com", "NicNodePolicy", cluster_wide=True),
        TakenDefinition("macvlannetworks.mellanox.com", "MacvlanNetwork", cluster_wide=True),
        TakenDefinition("hostdevicenetworks.mellanox.com", "HostDeviceNetwork", cluster_wide=True),
        TakenDefinition("ipoibnetworks.mellanox.com", "IPoIBNetwork", cluster_wide=True),
        TakenDefinition("ippools.nv-ipam.nvidia.com", "IPPool"),
        TakenDefinition("cidrpools.nv-ipam.nvidia.com", "CIDRPool"),
        TakenDefinition("ippools.whereabouts.cni.cncf.io", "IPPool"),
        _ATTACHMENTS,
    ),
    (CARDS_LABEL,),
)
# Mellanox/network-operator v0.1.0 deploy/: what the document of preset nvidia installs by hand.
# There the definition was in namespaces still.
FIRST_NETWORK_OPERATOR = Neighbour(
    "NVIDIA's Network Operator 0.1.0",
    (
        TakenObject("Namespace", "mlnx-network-operator"),
        TakenObject("ClusterRole", "network-operator"),
        TakenObject("ClusterRoleBinding", "network-operator"),
        TakenObject("Deployment", "network-operator", "mlnx-network-operator"),
        TakenObject("ServiceAccount", "network-operator", "mlnx-network-operator"),
        TakenObject("DaemonSet", "rdma-shared-dp-ds", "mlnx-network-operator"),
        TakenObject("ConfigMap", "rdma-devices", "mlnx-network-operator"),
    ),
    (TakenDefinition("nicclusterpolicies.mellanox.com", "NicClusterPolicy"), _ATTACHMENTS),
    (CARDS_LABEL,),
)
# NVIDIA/gpu-operator deployments/gpu-operator/templates (2026-08), in the namespace of its docs.
GPU_OPERATOR = Neighbour(
    "NVIDIA's GPU Operator",
    (
        TakenObject("Namespace", "gpu-operator"),
        TakenObject("ClusterRole", "gpu-operator"),
        TakenObject("ClusterRoleBinding", "gpu-operator"),
        TakenObject("Deployment", "gpu-operator", "gpu-operator"),
        TakenObject("ServiceAccount", "gpu-operator", "gpu-operator"),
    ),
    (
        TakenDefinition("clusterpolicies.nvidia.com", "ClusterPolicy", cluster_wide=True),
        TakenDefinition("nvidiadrivers.nvidia.com", "NVIDIADriver", cluster_wide=True),
    ),
    (GPUS_LABEL,),
)
# kubernetes-sigs/node-feature-discovery deployment/base: kustomize, in its own namespace. By its
# default a label has class and vendor, so CARDS_LABEL is nobody's; NVIDIA's charts set the vendor
# alone (deviceLabelFields).
FEATURE_DISCOVERY = Neighbour(
    "Node Feature Discovery",
    (
        TakenObject("Namespace", "node-feature-discovery"),
        TakenObject("ClusterRole", "nfd-master"),
        TakenObject("ClusterRoleBinding", "nfd-master"),
        TakenObject("ClusterRole", "nfd-gc"),
        TakenObject("ClusterRoleBinding", "nfd-gc"),
        TakenObject("DaemonSet", "nfd-worker", "node-feature-discovery"),
    ),
    (
        TakenDefinition("nodefeatures.nfd.k8s-sigs.io", "NodeFeature"),
        TakenDefinition("nodefeaturerules.nfd.k8s-sigs.io", "NodeFeatureRule", cluster_wide=True),
    ),
)
# Mellanox/k8s-rdma-shared-dev-plugin deployment/k8s/base: daemonset.yaml, configmap.yaml.
SHARED_DEVICE_PLUGIN = Neighbour(
    "Mellanox' shared device plugin",
    (
        TakenObject("DaemonSet", "rdma-shared-dp-ds", "kube-system"),
        TakenObject("ConfigMap", "rdma-devices", "kube-system"),
    ),
)
# Alibaba Cloud, "Use RDMA in ACK Lingjun clusters": the DaemonSet that the console's component has.
ACK_COMPONENT = Neighbour(
    "ACK's RDMA component",
    (TakenObject("DaemonSet", "ack-rdma-dp-ds", "kube-system"),),
)
# Alibaba Cloud, "Use RDMA on Super Computing Clusters": the document's own manifest.
SCC_MANIFEST = Neighbour(
    "the SCC document's device plugin",
    (
        TakenObject("DaemonSet", "rdma-device-plugin", "kube-system"),
        TakenObject("ConfigMap", "rdma-devices", "kube-system"),
    ),
)
# projectcalico/calico manifests/crds.yaml.
CALICO = Neighbour(
    "Calico",
    definitions=(TakenDefinition("ippools.crd.projectcalico.org", "IPPool", cluster_wide=True),),
)
