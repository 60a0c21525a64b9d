"""What admission/rules has to know beside a pod, and what it completes in it.

Facts are what the cluster has, or what the checked files say together; settings are an
administrator's. What is wrong with a pod is a Finding.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import Network
from kube_rdma.model.finding import FieldPath
from kube_rdma.model.ipam import IPPool, PoolName
from kube_rdma.model.pools.pool import Mode, PoolSpec


class Completion(Frozen):
    """A value that is set at `path`; the last part "-" appends it to the list before.

    `what` says it to a person.
    """

    path: FieldPath
    value: object  # as JSON
    what: str


class OfferedPool(Frozen):
    """A pool that nodes with these labels offer; without labels, nodes that nobody names."""

    spec: PoolSpec
    selector: tuple[tuple[str, str], ...] = ()


class ClaimFacts(Frozen):
    """What a PersistentVolumeClaim is bound to, as far as it is known."""

    namespace: str
    name: str
    driver: str = ""
    storage_class: str = ""


class AdmissionFacts(Frozen):
    """What is known beside the pod. `ip_pools` is None where nobody looked for pools.

    `reserved` are pools of addresses that have namespaces. `resources` are names that policies and
    networks have besides those of `pools`. `handlers` are those of runtime classes, by name.
    """

    pools: tuple[OfferedPool, ...] = ()
    networks: tuple[Network, ...] = ()
    ip_pools: tuple[PoolName, ...] | None = None
    reserved: tuple[IPPool, ...] = ()
    claims: tuple[ClaimFacts, ...] = ()
    resources: tuple[str, ...] = ()
    handlers: tuple[tuple[str, str], ...] = ()


class Completes(StrEnum):
    """What can be added to a pod that asks for a share."""

    IPC_LOCK = "ipc-lock"
    SHM = "shm"
    POD_NETWORKS = "pod-networks"


class AdmissionSettings(Frozen):
    """What an administrator can set. A resource that ends in ``/*`` is all with this prefix.

    Besides `shares` every resource that the facts name is one (admission/rules/shares).

    mGPU is VKE's share of a GPU: its resources are those of Volcengine's scheduler for it, in
    limits of the pod. vePFS is Volcengine's parallel file system: its CSI driver is
    vepfs.csi.volcengine.com; a cluster's own storage classes and folders of hosts can be added.
    """

    shares: tuple[str, ...] = ("rdma/*", "vke.volcengine.com/rdma")
    mgpu: tuple[str, ...] = ("vke.volcengine.com/mgpu-core", "vke.volcengine.com/mgpu-memory")
    gpus: tuple[str, ...] = (
        "nvidia.com/gpu",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "huawei.com/Ascend910",
    )
    vepfs_drivers: tuple[str, ...] = ("vepfs.csi.volcengine.com",)
    vepfs_classes: tuple[str, ...] = ()
    vepfs_folders: tuple[str, ...] = ()
    on_host: tuple[str, ...] = ()  # whose pods have to be on the node's own network
    without_vepfs: tuple[Mode, ...] = (Mode.EXCLUSIVE,)  # refused beside it
    without_gpus: tuple[Mode, ...] = (Mode.SHARED_MULTI,)  # not recommended beside them
    counted: str = "vke.volcengine.com/rdma"  # one block of the pod's annotation for each
    advised: tuple[int, ...] = (2, 4)  # cards of it for a container
    block: str = "rdma"  # the network that a completed block names
    shm_size: str = "8Gi"
    completes: tuple[Completes, ...] = (Completes.IPC_LOCK,)  # without the pod's asking
    everybodys: tuple[str, ...] | None = None  # namespaces of networks for all pods; None: any


NOTHING_KNOWN = AdmissionFacts()
USUAL = AdmissionSettings()
