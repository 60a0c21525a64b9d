"""A pod as somebody writes it, before it runs, and the facts and settings to judge it by.

admission/documents/pod_manifest makes a PodTemplate out of a Pod, or of the template in a Job or
another workload. Paths lead from the pod on: ``("spec", "containers", 0)``.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import Network, NetworkAsk
from kube_rdma.model.card import Card
from kube_rdma.model.finding import FieldPath, Finding
from kube_rdma.model.ipam import IPPool, PoolName
from kube_rdma.model.kubernetes import NamespacedName, Toleration
from kube_rdma.model.pools import Mode, PoolSpec

COMPLETE = "kube-rdma.io/complete"
"""The annotation by which a pod chooses what is added to it."""
SHM_VOLUME = "kube-rdma-shm"
MOST_BLOCKS = 128  # networks of a pod (attach/documents/networks)
VKE_LABEL = "vke.node.rdma.mode"
"""The label by which VKE says how its nodes give their cards; pools/documents/config reads it."""


class ContainerRole(StrEnum):
    """The role of a container in its pod.

    An INIT container ends before the MAIN ones begin, a SIDECAR runs beside them.
    """

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


class ResourceAsk(Frozen):
    """The amount of an extended resource that a container of a pod asks for."""

    resource: str
    count: int
    path: FieldPath
    request: int | None = None  # in requests besides, or in place of a limit
    limited: bool = True  # it has a limit
    known: bool = True  # else a placeholder stands for the number


class ContainerTemplate(Frozen):
    """A container of a pod, with what admission rules read of it."""

    name: str
    path: FieldPath
    role: ContainerRole = ContainerRole.MAIN
    asks: tuple[ResourceAsk, ...] = ()
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    own_user: bool = False  # not root for sure: a capability that is added has no effect
    user: int | None = None  # its number, where it is written
    escalates: bool = True  # capabilities of a program's file count
    privileged: bool = False  # it has every capability
    mounts: tuple[tuple[str, str], ...] = ()  # names of volumes with their places
    claims: tuple[str, ...] = ()  # of the pod's claims, those that it names
    env: tuple[tuple[str, str], ...] = ()  # in order; the value is empty where it is not literal


class VolumeTemplate(Frozen):
    """A volume of a pod, with those of its sources that admission rules read."""

    name: str
    path: FieldPath
    claim: str = ""  # a PersistentVolumeClaim
    driver: str = ""  # of CSI or FlexVolume
    storage_class: str = ""  # of a claim that is made for the pod
    host_path: str = ""


class PodClaim(Frozen):
    """An entry of a pod's resourceClaims; `old` is the form until Kubernetes 1.30."""

    name: str
    path: FieldPath
    named: tuple[str, ...]  # of the claim and of a template, as they are written; one is right
    old: bool = False


class NodeDemand(Frozen):
    """A requirement that a node's label has one of `values`, as ``operator: In`` says it."""

    label: str
    values: tuple[str, ...]


class PodTemplate(NamespacedName):
    """A pod or the template of one, as its author wrote it, with what admission rules read."""

    annotations: tuple[tuple[str, str], ...] = ()
    host_network: bool = False
    containers: tuple[ContainerTemplate, ...] = ()
    volumes: tuple[VolumeTemplate, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()  # labels that its node has to have
    alternatives: tuple[tuple[NodeDemand, ...], ...] = ()  # one has to hold with all its demands
    networks: tuple[NetworkAsk, ...] = ()
    # None where nobody can count them yet: the annotation is missing, not readable, or still to be
    # completed by Cello.
    blocks: tuple[NetworkAsk, ...] | None = None
    faults: tuple[Finding, ...] = ()  # that kube-rdma cannot read in an annotation
    whole: bool = True  # False: a program adds more to it, as to parts of pods in other kinds
    runtime_class: str = ""  # empty for the usual
    claims: tuple[PodClaim, ...] = ()
    host_ipc: bool = False
    kind: str = "Pod"  # of the object that it stands in
    copies: int = 1  # pods of this template at a time
    tolerations: tuple[Toleration, ...] = ()

    @property
    def init_containers(self) -> tuple[str, ...]:
        """Return the names of the first two init containers."""
        return tuple(c.name for c in self.containers[:2] if "initContainers" in c.path)


class AnnotationAbove(Frozen):
    """An annotation meant for pods that is written on an object around their template, in vain."""

    key: str
    owner: str  # the kind of that object, or the field that it is in
    path: FieldPath  # from the document on


# Facts beside a pod, and what is completed in it.


class Completion(Frozen):
    """A value to set at `path` of a pod; a last part "-" appends it to a list."""

    path: FieldPath
    value: object  # as JSON
    what: str  # for people


class OfferedPool(Frozen):
    """A pool that nodes with the labels of `selector` offer; without labels, all nodes."""

    spec: PoolSpec
    selector: tuple[tuple[str, str], ...] = ()
    cards: tuple[Card, ...] = ()  # none where nobody has seen them


class ClaimFacts(NamespacedName):
    """The facts about a PersistentVolumeClaim's binding."""

    driver: str = ""
    storage_class: str = ""


class AdmissionFacts(Frozen):
    """The facts about a cluster by which admission rules judge pods."""

    pools: tuple[OfferedPool, ...] = ()
    networks: tuple[Network, ...] = ()
    ip_pools: tuple[PoolName, ...] | None = None  # None where nobody looked for pools
    reserved: tuple[IPPool, ...] = ()  # pools of addresses that have namespaces
    claims: tuple[ClaimFacts, ...] = ()
    resources: tuple[str, ...] = ()  # that policies and networks name besides those of `pools`
    handlers: tuple[tuple[str, str], ...] = ()  # of runtime classes, by name
    placeless: tuple[str, ...] = ()  # networks of files that name no namespace


class Completes(StrEnum):
    """The parts that the completing policy can add to a pod that asks for a share of RDMA cards."""

    IPC_LOCK = "ipc-lock"
    SHM = "shm"
    POD_NETWORKS = "pod-networks"


class AdmissionSettings(Frozen):
    """The settings of an administrator for the admission rules.

    A resource that ends in ``/*`` stands for all with this prefix. Besides `shares` every resource
    that the facts name counts as a share, except GPUs (admission/rules/shares). mGPU is VKE's share
    of a GPU. vePFS is Volcengine's parallel file system; a cluster's own storage classes and
    folders of hosts for it can be added.
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
    network_resources: tuple[str, ...] = ()  # of which each share needs a network
    without_vepfs: tuple[Mode, ...] = (Mode.EXCLUSIVE,)  # refused beside it
    without_gpus: tuple[Mode, ...] = (Mode.SHARED_MULTI,)  # not recommended beside them
    counted: str = "vke.volcengine.com/rdma"  # one block of the pod's annotation for each
    advised: tuple[int, ...] = (2, 4)  # cards of it for a container
    block: str = "rdma"  # the network that a completed block names
    shm_size: str = "8Gi"
    completes: tuple[Completes, ...] = (Completes.IPC_LOCK,)  # without the pod's asking
    global_namespaces: tuple[str, ...] | None = (
        None  # namespaces of networks for all pods; None: any
    )


NOTHING_KNOWN = AdmissionFacts()
USUAL = AdmissionSettings()
