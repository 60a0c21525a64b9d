"""Says of an installation what is left to do, and which values have no effect.

`kube-rdma render` prints these notes above the objects, and on standard error. The chart's
NOTES.txt has the same sentences under the same conditions, which tests compare.
"""

from __future__ import annotations

from kube_rdma.model.install import Values

NO_POOL = (
    "The network rdma has no addresses: set `pools`, or create an IPPool named rdma (docs/ip.md). "
    "RoCE pods are refused until then, but those with cards that bring their own."
)
NO_RAIL_POOL = (
    "The networks rail-0 to rail-7 have no addresses: set `pools`, or create an IPPool for each "
    "rail (docs/networks.md). Pods with these networks do not start until then."
)
NO_DEFINITION = (
    "The networks need the definition NetworkAttachmentDefinition, which Multus brings. Where "
    "Multus is not installed, set crds.networkAttachmentDefinitions=true."
)
DOCUMENTS_NAMES = (
    "The objects have the names of a document. Where its own plugin is in the cluster, take its "
    "nodes over or uninstall it first (docs/migrate.md); Helm refuses, and kubectl apply "
    "overwrites it."
)
ONE_OPERATOR = (
    "A cluster has one operator of NicClusterPolicies. Where NVIDIA's runs, take preset nvidia; "
    "where it left its definition, set crds.nicClusterPolicies=false (docs/drivers.md)."
)
NO_LABEL = (
    "Device plugins run on nodes with the label feature.node.kubernetes.io/pci-15b3.present=true. "
    "If no other program writes it, set labeller.enabled=true (docs/config.md)."
)
READ_ONLY_NODES = (
    "Nodes of this distribution have a read-only /usr, which driver images of NVIDIA's mount to "
    "write. Name images that are made for these nodes, or leave ofedDriver out of the policy "
    "(docs/drivers.md)."
)
# Volcengine, "Use RDMA in VKE": what its own component needs.
VKE_VERSIONS = (
    "VKE's own component needs vpc-cni 1.7.1 and Kubernetes 1.24.15-vke.12 or 1.20.15-vke.18. "
    "kube-rdma works behind any vpc-cni and needs Kubernetes 1.22."
)
NO_CONFIG = (
    "agent.config has no effect with preset vke, whose agents follow NodePolicies and the label "
    "vke.node.rdma.mode: write a NodePolicy in its place (docs/config.md)."
)
NO_CONFIG_OF_POLICY = (
    "agent.config has no effect with preset nvidia-operator: write the configuration into "
    "devicePlugin.config of the NicClusterPolicy in its place."
)
NO_WEBHOOK = (
    "admission.webhook has no effect: kube-rdma has no webhook any more. Set "
    "admission.pods.check=true in its place, and take the value out (docs/admission.md)."
)
UNSEEN = (NO_DEFINITION, DOCUMENTS_NAMES)
"""Notes about the cluster; `kube-rdma install` leaves them out, for it looks there itself."""
OF_DOCUMENTS = {
    "ack": "kube-system",
    "scc": "kube-system",
    "nvidia": "mlnx-network-operator",
    "nvidia-operator": "mlnx-network-operator",
}
"""Presets that name their objects as another program does, with the namespace of that program."""
READ_ONLY = ("openshift", "bottlerocket", "flatcar", "talos", "gke")
"""Distributions whose nodes have a read-only root, or a read-only /usr."""
_CARDS = "feature.node.kubernetes.io/pci-15b3.present"


def notes(values: Values) -> tuple[str, ...]:
    """Return the notes that apply to an installation with these values, one sentence each."""
    preset, crds = values["preset"], values["crds"]
    operator, vke = values["platform"]["operator"], preset == "vke"
    names = OF_DOCUMENTS.get(preset) == values["namespace"]["name"]
    selected = operator or _CARDS in values["agent"]["nodeSelector"]
    networks, pools = values["networks"]["install"], values["pools"]
    configured = bool(values["agent"]["config"])
    rows = (
        (DOCUMENTS_NAMES, names and not values["fullnameOverride"]),
        (ONE_OPERATOR, operator and crds["install"] and crds["nicClusterPolicies"]),
        (NO_LABEL, selected and not values["labeller"]["enabled"]),
        (NO_WEBHOOK, any(map(values["admission"]["webhook"].get, ("certificate", "secret")))),
        (READ_ONLY_NODES, operator and values["distribution"] in READ_ONLY),
        (NO_POOL, vke and not pools),
        (NO_RAIL_POOL, networks and not pools),
        (NO_DEFINITION, networks and not crds["networkAttachmentDefinitions"]),
        (VKE_VERSIONS, vke),
        (NO_CONFIG, vke and configured),
        (NO_CONFIG_OF_POLICY, operator and configured),
    )
    return tuple(sentence for sentence, holds in rows if holds)
