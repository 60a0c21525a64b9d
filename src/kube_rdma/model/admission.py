"""A pod as somebody writes it, before it runs: what admission/rules judges and completes.

admission/documents/pod_manifest makes it out of a Pod, or of the template inside of a Job and its
like. Paths lead from the pod on: ``("spec", "containers", 0)``.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import Network, NetworkAsk
from kube_rdma.model.finding import FieldPath, Finding
from kube_rdma.model.ipam import IPPool, PoolName
from kube_rdma.model.pools import Mode, PoolSpec

COMPLETE = "kube-rdma.io/complete"
"""The annotation by which a pod chooses what is added to it."""
SHM_VOLUME = "kube-rdma-shm"
MOST_BLOCKS = 128  # networks of a pod (attach/documents/networks)
VKE_LABEL = "vke.node.rdma.mode"
"""The label by which VKE says how its nodes give their cards; pools/documents/config reads it."""


class ContainerRole(StrEnum):
    """When a container runs: INIT ends before the others begin, a SIDECAR stays beside them."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


class ResourceAsk(Frozen):
    """How much of an extended resource a container asks for, and where that stands.

    `request` is what stands in requests besides, or in place of a limit; None: nothing does.
    """

    resource: str
    count: int
    path: FieldPath
    request: int | None = None
    limited: bool = True


class ContainerTemplate(Frozen):
    """A container. `mounts` are the names of volumes with their places in it.

    `own_user`: it runs as another user than root for sure, so a capability that is added does not
    come into force. `privileged`: it has every capability anyway.
    """

    name: str
    path: FieldPath
    role: ContainerRole = ContainerRole.MAIN
    asks: tuple[ResourceAsk, ...] = ()
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    own_user: bool = False
    privileged: bool = False
    mounts: tuple[tuple[str, str], ...] = ()


class VolumeTemplate(Frozen):
    """A volume; of its sources those that a rule looks at. `claim` is a PersistentVolumeClaim."""

    name: str
    path: FieldPath
    in_memory: bool = False
    claim: str = ""
    driver: str = ""  # of CSI or FlexVolume
    storage_class: str = ""  # of a claim that is made for the pod
    host_path: str = ""


class NodeDemand(Frozen):
    """What a node's label has to be: one of `values`, by ``operator: In``."""

    label: str
    values: tuple[str, ...]


class PodTemplate(Frozen):
    """The pod. `selector` has to hold, and besides all demands of one of `alternatives`, if any.

    `networks` and `blocks` are what both annotations ask for. `blocks` is None where nobody can
    count them yet: the annotation is missing, not readable, or still to be completed by Cello.
    `faults` are what kube-rdma cannot read in an annotation. `whole`: nothing is added to the pod
    before it is made, as to parts of one in other kinds. `runtime_class` is empty for the usual.
    """

    namespace: str
    name: str
    annotations: tuple[tuple[str, str], ...] = ()
    host_network: bool = False
    containers: tuple[ContainerTemplate, ...] = ()
    volumes: tuple[VolumeTemplate, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    alternatives: tuple[tuple[NodeDemand, ...], ...] = ()
    networks: tuple[NetworkAsk, ...] = ()
    blocks: tuple[NetworkAsk, ...] | None = None
    faults: tuple[Finding, ...] = ()
    whole: bool = True
    runtime_class: str = ""


class AnnotationAbove(Frozen):
    """An annotation for pods that stands at an object around their template, where nobody reads it.

    `owner` is the kind of that object, or the field that it is in.
    """

    key: str
    owner: str
    path: FieldPath  # from the document on


# What admission/rules has to know beside a pod, and what it completes in it.


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
