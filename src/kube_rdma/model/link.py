"""A network interface as the namespace of a pod shows it.

adapters/kernel looks into the namespace, rules/health judges what a card's interface does there.
"""

from __future__ import annotations

from dataclasses import dataclass

from kube_rdma.model.device import PciAddress


@dataclass(frozen=True, slots=True)
class PodLink:
    """An interface inside a pod. `pci` is the function it belongs to, None for a virtual one."""

    name: str
    up: bool  # administratively
    carrier: bool | None  # None: not readable, which the kernel says of an interface that is down
    pci: PciAddress | None
