"""KR208: versions of Kubernetes and of VKE's network plugin, and what needs newer ones.

kube-rdma needs Kubernetes 1.22 and works behind any CNI plugin. VKE's own component needs more,
which whoever goes back to it has to know: Volcengine, "Use RDMA in VKE".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kube_rdma.model.doctor import Observation
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.rules.install.kubernetes_version import OLDEST

_KUBELET = re.compile(r"v?1\.(\d{1,9})\.(\d{1,9})(?:-vke\.(\d{1,9}))?")
_PLUGIN = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# By the minor version of Kubernetes the patch and VKE's own number from which on it has RDMA.
_VKE_PATCHES = {20: (15, 18), 24: (15, 12)}
_VKE_OLDEST = min(_VKE_PATCHES)
_VKE_PLUGIN = (1, 7, 1)
_NEEDS = "VKE's own component needs Kubernetes 1.24.15-vke.12 or 1.20.15-vke.18, and vpc-cni 1.7.1"
_FIX = "kube-rdma needs nothing; upgrade before you go back to VKE's own component"


def outdated(seen: Observation) -> Iterator[Finding]:
    """What is older than something needs it."""
    assert seen.versions is not None
    kubelet, plugin = seen.versions.kubelet, seen.versions.vpc_cni
    if read := _KUBELET.match(kubelet):
        minor, patch, build = (int(number or 0) for number in read.groups())
        if minor < OLDEST:
            yield Finding(
                "kubelet",
                f"Its version is {kubelet}",
                f"kube-rdma needs Kubernetes 1.{OLDEST}",
                "Upgrade Kubernetes",
                Severity.WARNING,
            )
        behind = minor < _VKE_OLDEST or (patch, build) < _VKE_PATCHES.get(minor, (0, 0))
        if read[3] and behind:
            yield _advice("kubelet", kubelet)
    if (read := _PLUGIN.match(plugin)) and tuple(map(int, read.groups())) < _VKE_PLUGIN:
        yield _advice("vpc-cni", plugin)


def _advice(subject: str, version: str) -> Finding:
    return Finding(subject, f"Its version is {version}", _NEEDS, _FIX, Severity.ADVICE)
