"""What the control group of a pod says of its RDMA devices, for programs/doctor/evidence."""

from __future__ import annotations

from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.adapters.kernel.cgroups.files import HOST_CGROUPS, HostCgroups
from kube_rdma.adapters.kernel.cgroups.rdma import RdmaGroups
from kube_rdma.model.doctor import ObservedLimit


def observed_limits(host: Path, uid: str) -> tuple[ObservedLimit, ...]:
    """Device by device; none where the node cannot limit, or has no group of the pod.

    `host` is the node's root, `uid` the pod's as the kubelet has it. Raise Unavailable.
    """
    root = inside(host, HOST_CGROUPS)
    if not (root / "cgroup.controllers").is_file():
        return ()
    groups = RdmaGroups(HostCgroups(root))
    try:
        path = groups.find(uid)
    except Unavailable:  # a pod of another node, or one that has not begun
        return ()
    group = groups.read(path)
    limits = {entry.device: entry.limits for entry in group.limits}
    return tuple(
        ObservedLimit(
            use.device,
            use.handles,
            use.objects,
            limits[use.device].handles,
            limits[use.device].objects,
        )
        for use in group.current
        if use.device in limits
    )
