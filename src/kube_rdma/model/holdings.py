"""Defines who holds which shares, as the kubelet knows it.

adapters/kubelet reads this from the pod resources API, and from the kubelet's own record on disk.
Both tell the pod of a share, which Allocate does not name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.claims.devices import ClaimedDevice
from kube_rdma.model.device import PciPosition
from kube_rdma.model.late_binding import Edits, HeldShare, PodName
from kube_rdma.model.pools import ShareId


class Holding(Frozen):
    """The shares that one container holds of one resource, with their NUMA nodes; both sorted."""

    namespace: str
    pod: str
    container: str
    resource: str
    shares: tuple[ShareId, ...]
    numa_nodes: tuple[int, ...] = ()  # those that the shares are near to


class Allocatable(Frozen):
    """A healthy share of this node, held or free, with its NUMA nodes, sorted."""

    resource: str
    share: ShareId
    numa_nodes: tuple[int, ...] = ()


class NodeHoldings(Frozen):
    """The holdings of all containers of a node: shares by device plugins, and devices by claims."""

    shares: tuple[Holding, ...] = ()
    devices: tuple[ClaimedDevice, ...] = ()
    pods: tuple[PodName, ...] = ()  # that the kubelet reported, whether they hold anything or not


class RecordedGrant(Frozen):
    """The kubelet's record of the shares that it granted to a container.

    A record outlives its pod until the kubelet writes again.
    """

    uid: str  # of the pod; of a static pod the one that its runtime knows
    container: str
    resource: str
    shares: tuple[ShareId, ...]  # sorted


class ClaimingSandbox(Frozen):
    """A pod's sandbox, with the shares of its containers and the CDI edits for each share."""

    sandbox: Sandbox
    holdings: Sequence[Holding]
    annotations: Mapping[str, str]
    edits: Mapping[HeldShare, Edits]  # by share


# GPUs, as far as they matter for the cards beside them.


class FreeGpu(Frozen):
    """A GPU that no container holds."""

    numa_nodes: tuple[int, ...]
    position: PciPosition | None = None


class HeldGpu(Frozen):
    """A GPU that a container holds; `name` is its PCI address, else its plugin's name for it."""

    name: str
    numa_nodes: tuple[int, ...]
    position: PciPosition | None = None
