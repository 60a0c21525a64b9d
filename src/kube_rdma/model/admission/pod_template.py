"""A pod as somebody writes it, before it runs: what admission/rules judges and completes.

admission/documents/pod_manifest makes it out of a Pod, or of the template inside of a Job and its
like. Paths lead from the pod on: ``("spec", "containers", 0)``.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import NetworkAsk
from kube_rdma.model.finding import FieldPath, Finding


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
