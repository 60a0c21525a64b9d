"""A network interface: as a plan found it on the node, and as a pod's namespace shows it.

Steps name a Host. adapters/kernel looks into namespaces, pools/rules/health/damping judges what a
card's interface does there.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.device import PciAddress


class PlannedHostLink(Frozen):
    """A link of the node at the moment of planning; `index` is the kernel's, `name` for people."""

    index: int
    name: str


class PodLink(Frozen):
    """An interface inside a pod. `pci` is the function it belongs to, None for a virtual one."""

    name: str
    up: bool  # administratively
    carrier: bool | None  # None: not readable, which the kernel says of an interface that is down
    pci: PciAddress | None
