"""What an installation's values leave to do, and what of them has no effect, a sentence each.

`kube-rdma render` prints them above the objects; the chart's NOTES.txt has the same sentences under
the same conditions, which tests compare.
"""

from __future__ import annotations

from kube_rdma.model.install.blueprint import Values
from kube_rdma.rules.install.presets import DEFAULTS

NO_IMAGE = (
    "No registry has the image kube-rdma.io/kube-rdma: build it, push it to a registry of yours, "
    "and set image.repository and image.tag (docs/install.md); or load it on each node and set "
    "image.pullPolicy=Never."
)
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


def notes(values: Values) -> tuple[str, ...]:
    """What is to be said of all values of an installation."""
    vke = values["preset"] == "vke"
    without = NO_CONFIG if vke else NO_CONFIG_OF_POLICY if values["platform"]["operator"] else ""
    image, networks = values["image"], values["networks"]["install"]
    named = image["repository"] != DEFAULTS["image"]["repository"]
    rows = (
        (NO_IMAGE, not named and image["pullPolicy"] != "Never"),
        (NO_POOL, vke and not values["pools"]),
        (NO_RAIL_POOL, networks and not values["pools"]),
        (NO_DEFINITION, networks and not values["crds"]["networkAttachmentDefinitions"]),
        (VKE_VERSIONS, vke),
        (without, without and values["agent"]["config"]),
    )
    return tuple(sentence for sentence, holds in rows if holds)
