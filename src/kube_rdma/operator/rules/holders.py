"""Who would notice a driver that goes: pods that hold cards, and the node itself.

    pods' resources, NodeReports ─► here ─► operator/rules/upgrade

A resource that is not known counts as one of RDMA cards: who waits needlessly is told for whom, who
is cut off is not. What no resource and no report shows, nobody can see.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from kube_rdma.model.reports.node_report import NodeReport

# Plugins whose devices are no RDMA cards, by the names that their own documents give.
_HARMLESS = re.compile(
    r"(nvidia|amd)\.com/(gpu|gpu\.shared|mig-[\w.-]+|vgpu|pgpu)"
    r"|aliyun\.com/gpu-[\w.-]+"
    r"|habana\.ai/gaudi|google\.com/tpu|aws\.amazon\.com/neuron[\w.-]*"
    r"|gpu\.intel\.com/[\w.-]+"
    r"|vke\.volcengine\.com/m?gpu-[\w.-]+"
    r"|devices\.kubevirt\.io/(kvm|tun|vhost-net|vhost-vsock|sev)"
    r"|(smarter-devices|github\.com)/fuse"
)


def is_share(resource: str, offered: Collection[str]) -> bool:
    """Whether a resource may stand for RDMA cards: one that is offered, or not known to be else.

    ``cpu``, ``memory`` and ``hugepages-2Mi`` have no domain and are the kubelet's own.
    """
    if resource in offered:
        return True
    return "/" in resource and not _HARMLESS.fullmatch(resource)


def needs(report: NodeReport, addresses: Collection[str]) -> tuple[str, ...]:
    """What a node needs its RDMA cards for; `addresses` are those by which it is known.

    Traffic of kubelet and pods with the API server has such an address.
    """
    return tuple(
        f"{card.name}: {what}"
        for card in (*report.cards, *report.rejected)
        for what in (
            *card.carries,
            *(f"the node's address {a} is on it" for a in card.addresses if a in addresses),
        )
    )
