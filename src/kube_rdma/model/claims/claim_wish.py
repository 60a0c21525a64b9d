"""What a person wants a claim template to ask for, as the options of `kube-rdma claim` say it.

claims/rules/templates makes the template of it.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen

CARD_CLASS, SHARED_CLASS = "rdma", "rdma-shared"
GPU_CLASS = "gpu.nvidia.com"
NEWEST = 99
"""The minor version that stands for the newest Kubernetes."""


class Reach(StrEnum):
    """How far from its GPU a card may be: at the same PCIe root, the same NUMA node, or anywhere.

    A wider one takes a nearer card first.
    """

    ROOT = "root"
    NUMA_NODE = "numa-node"
    ANY = "any"


class ClaimWish(Frozen):
    """Devices of one claim, for a pod of Kubernetes 1.`minor`.

    `cards` is None for one beside each GPU, or one without GPUs. `rails`: so many cards, all on
    different rails. `reach` is None where nearness does not count. `gbps` is the rate of a card, or
    of a share of one. An empty `card_class` is that of whole cards or of shares.
    """

    name: str = "rdma"
    cards: int | None = None
    rails: int | None = None
    gpus: int = 0
    reach: Reach | None = None
    shared: bool = False
    gbps: int | None = None
    card_class: str = ""
    gpu_class: str = GPU_CLASS
    network: str = ""  # a NetworkAttachmentDefinition, with its namespace or without
    minor: int = NEWEST
