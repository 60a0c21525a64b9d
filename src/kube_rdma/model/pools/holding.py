"""Who holds which shares, as the kubelet knows it.

adapters/kubelet reads it from the pod resources API, and from the kubelet's own record on the disk;
it joins a share to the pod that Allocate does not name.
"""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.claims.device import ClaimedDevice
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.pools.pool import ShareId


class Holding(Frozen):
    """What one container holds of one resource; `shares` and `numa_nodes` are sorted."""

    namespace: str
    pod: str
    container: str
    resource: str
    shares: tuple[ShareId, ...]
    numa_nodes: tuple[int, ...] = ()  # those that the shares are near to


class Allocatable(Frozen):
    """A healthy device of this node, given away or not; `numa_nodes` are sorted."""

    resource: str
    share: ShareId
    numa_nodes: tuple[int, ...] = ()


class NodeHoldings(Frozen):
    """All that the containers of a node hold: shares of device plugins, and devices by claims.

    `pods` are those that the kubelet told of, whether they hold anything or not.
    """

    shares: tuple[Holding, ...] = ()
    devices: tuple[ClaimedDevice, ...] = ()
    pods: tuple[PodName, ...] = ()


class RecordedGrant(Frozen):
    """What the kubelet wrote down for a container, before that started; `shares` are sorted.

    `uid` is the pod's, of a static pod the one that its runtime knows. A record outlives its pod
    until the kubelet writes again.
    """

    uid: str
    container: str
    resource: str
    shares: tuple[ShareId, ...]
