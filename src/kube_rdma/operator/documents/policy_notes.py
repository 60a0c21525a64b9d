"""What is told of fields of a NicClusterPolicy that have no effect: where, and what to do instead.

operator/documents/nic_cluster_policy asks for each field that no model has. Sections that whole
products stand behind have a row here, with what kube-rdma has in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_rdma.lib.text.document import Path, name
from kube_rdma.lib.text.typed import Typed
from kube_rdma.model.operator.cluster_policy import PolicyNote

_OTHERS = "Remove it, or deploy that component yourself"
_MULTUS = "Remove it: kube-rdma reads the annotations of pods itself, or install Multus yourself"
_REMEDIES: Mapping[Path, str] = {
    ("nvIpam",): "Write an IPPool, which gives addresses (docs/ip.md), or install nv-ipam yourself",
    ("secondaryNetwork", "multus"): _MULTUS,
    ("secondaryNetwork", "ipoib"): (
        "Write networks of type ipoib (docs/networks.md), which need no further plugin"
    ),
    ("secondaryNetwork", "ipamPlugin"): "Write an IPPool, which gives addresses (docs/ip.md)",
    ("ibKubernetes",): "Write GUIDs and P_Keys into networks of type ib-sriov (docs/networks.md)",
    ("nicFeatureDiscovery",): "Remove it: agents write labels of their nodes (docs/labels.md)",
    ("docaTelemetryService",): "Remove it: agents serve metrics of the cards (docs/metrics.md)",
    ("nicConfigurationOperator",): _OTHERS,
    ("spectrumXOperator",): _OTHERS,
    ("deploymentNodeAffinity",): "Remove it: no Deployment of NVIDIA's is deployed",
    ("deploymentTolerations",): "Remove it: no Deployment of NVIDIA's is deployed",
    ("psp",): "Remove it: Kubernetes has no PodSecurityPolicies since 1.25",
    ("ofedDriver", "certConfig"): "Take an image that trusts your registry of packages",
    ("ofedDriver", "repoConfig"): "Set forcePrecompiled, whose images fetch no packages",
    **{
        (section, "useCdi"): "Remove it: kube-rdma's own image needs no such switch"
        for section in ("devicePlugin", "rdmaSharedDevicePlugin", "sriovDevicePlugin")
    },
}


def note(path: Path, sentence: str, remedy: str = "") -> PolicyNote:
    """A note about the field at `path` below spec."""
    return PolicyNote(path, f"{name(('spec', *path))} {sentence}", remedy)


def without_effect(spec: Typed) -> Iterator[PolicyNote]:
    """A note for each field that no model has."""
    for path in _unknown(spec, ()):
        yield note(path, "has no effect", _REMEDIES.get(path, "Remove it"))


def _unknown(part: Typed, path: Path) -> Iterator[Path]:
    """The fields of an object, and of those in it, that no model has."""
    for field in part.model_extra or {}:
        yield (*path, field)
    for attribute, info in type(part).model_fields.items():
        value = getattr(part, attribute)
        if isinstance(value, Typed):
            yield from _unknown(value, (*path, info.alias or attribute))
