"""The container runtime of a node by its own words, its sandboxes, and how a container was made."""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.late_binding.binding import ContainerId, PodName


class Runtime(Frozen):
    """What makes containers here.

    `cdi`: whether it injects CDI devices, None when it does not say. `cdi_dirs`: where it looks for
    their files, none when it does not say. `cni_conf` and `cni_binaries`: where it looks for CNI,
    nothing when it does not say.
    """

    name: str  # containerd, cri-o
    version: str  # as the runtime writes it: v2.4.2, 1.7.13~ds1
    cdi: bool | None = None
    cdi_dirs: tuple[str, ...] = ()
    cni_conf: str = ""
    cni_binaries: tuple[str, ...] = ()


class PodSandbox(Frozen):
    """A sandbox of a pod. One that is not `ready` was stopped, or was never made to the end.

    `created`: nanoseconds of the wall clock, good to tell the newest of one pod.
    """

    container: ContainerId
    pod: PodName
    uid: str  # as the kubelet told it: that of a static pod is another one in the API
    ready: bool
    created: int = 0


class MadeContainer(Frozen):
    """What a container was made with, by its OCI spec.

    `variables` are those of its first process, from pod, image and CDI alike. `nodes` are the paths
    of its device files. `mounts` are the paths in it where something of the host lies, with the
    host's path.
    """

    variables: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
