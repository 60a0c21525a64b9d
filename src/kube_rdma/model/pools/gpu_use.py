"""Where GPUs sit, as far as it matters for the cards beside them.

A program learns from the kubelet which GPUs are free and which a container holds, and from the
survey where they sit; pools/rules/preference and pools/rules/distance take them. A kubelet may know
no more of a GPU than its NUMA nodes, so the seat can be missing.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.device import PciPosition


class FreeGpu(Frozen):
    """A GPU that no container holds."""

    numa_nodes: tuple[int, ...]
    seat: PciPosition | None = None


class HeldGpu(Frozen):
    """A GPU of a container; `name` is its PCI address, else what its own plugin calls it."""

    name: str
    numa_nodes: tuple[int, ...]
    seat: PciPosition | None = None
