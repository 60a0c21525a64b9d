"""Describes workloads, ConfigMaps, and pods in two sizes, by the fields that are read of them.

POD is what an agent keeps of each pod of its node; FULL_POD adds what commands and controllers
read. resource_api.py has pods with their claims. The API server checks the form of objects, so a
field here has the form of the API, or is missing.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from kube_base.foreign_json import decoded
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Owner, Stored
from kube_rdma.adapters.cluster.kinds.node import units
from kube_rdma.model.attach.attachment import RESTART
from kube_rdma.model.kubernetes import MIRROR, OVER, PodState, Toleration
from kube_rdma.model.preflight import REQUEST

READ = frozenset(
    (
        *("k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"),
        *("k8s.volcengine.com/pod-networks", "k8s.volcengine.com/pod-networks-definition"),
        *("k8s.volcengine.com/network-status", "v1.multus-cni.io/default-network"),
        *("kube-rdma.io/network-status", "kube-rdma.io/settings", RESTART, MIRROR, REQUEST),
    )
)
"""The annotations of pods that POD decodes; a pod may have 256 KiB of others."""

_TRIES = "ErrImagePull, ImagePullBackOff"
# Words of a kubelet about images (pkg/kubelet/images/types.go).
_FINAL = (
    *("InvalidImageName", "ErrImageNeverPull", "ImageInspectError"),
    *("RegistryUnavailable", "SignatureValidationFailed"),
)
PULL_FAULTS = {word: word for word in _FINAL} | dict.fromkeys(_TRIES.split(", "), _TRIES)
"""Names for reasons why a container waits for its image; ErrImagePull and back-off share one."""


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Pod's spec that the kind POD reads."""

    node_name: str = ""
    host_network: bool = False
    init_containers: tuple[_Named, ...] = ()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Pod's status that the kind POD reads."""

    phase: str = ""

    @property
    def is_over(self) -> bool:
        """Return whether all containers of the pod have ended for good."""
        return self.phase in OVER


class ContainerResources(msgspec.Struct, frozen=True):
    """The resources that a container asks for: quantities by name."""

    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class Container(_Named, frozen=True, rename="camel"):
    """The fields of a container that kube-rdma reads, in a pod or a template."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""  # Always: this init container is a sidecar

    @property
    def extended(self) -> tuple[str, ...]:
        """Return the names of the extended resources that the container asks for, limits first."""
        named = (*self.resources.limits, *self.resources.requests)
        return tuple(dict.fromkeys(name for name in named if "/" in name))


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    empty_dir: dict[str, object] | None = None


class FullPodSpec(PodSpec, frozen=True, rename="camel"):
    """The fields of a Pod's spec that the kind FULL_POD reads."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()
    resource_claims: tuple[msgspec.Raw, ...] = ()
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()

    @property
    def extended(self) -> tuple[str, ...]:
        """Return the names of the extended resources that any container asks for, sidecars too."""
        every = (*self.init_containers, *self.containers)
        return tuple(dict.fromkeys(name for one in every for name in one.extended))


class _Why(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    exit_code: int = 0  # of a container that ended


class ContainerState(msgspec.Struct, frozen=True):
    """The one of three states that a container is in."""

    running: _Why | None = None  # since when is not read
    waiting: _Why | None = None
    terminated: _Why | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a container."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    ready: bool = False
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodCondition(msgspec.Struct, frozen=True):
    """A condition in a Pod's status, such as PodScheduled."""

    type: str = ""
    status: str = ""
    message: str = ""


class FullPodStatus(PodStatus, frozen=True, rename="camel"):
    """The fields of a Pod's status that the kind FULL_POD reads."""

    reason: str = ""  # why the kubelet or a controller ended it
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


# An agent decodes each change of each pod of its node with it: FULL_POD costs a quarter more.
POD = ObjectKind(
    "",
    "v1",
    "Pod",
    "pods",
    namespaced=True,
    spec=ObjectCodec.of(PodSpec, writes=False),
    status=ObjectCodec.of(PodStatus, writes=False),
    page=8,  # of 1.5 MiB each at worst: 250 KiB of "<", which Go writes as six bytes
    annotations=READ.__contains__,
)
_SPEC = ObjectCodec.of(FullPodSpec, writes=False)
_STATUS = ObjectCodec.of(FullPodStatus, writes=False)
FULL_POD = ObjectKind("", "v1", "Pod", "pods", namespaced=True, spec=_SPEC, status=_STATUS)
FullPod: TypeAlias = Stored[FullPodSpec, FullPodStatus]
Spec = TypeVar("Spec", bound=PodSpec)
Status = TypeVar("Status", bound=PodStatus)


def status_of(pod: FullPod) -> FullPodStatus:
    """Return the status of a pod, an empty one before it has any."""
    return pod.status or FullPodStatus()


def extended_requests(spec: FullPodSpec) -> Counter[str]:
    """Return how many of each extended resource a pod requests, as Kubernetes counts them.

    Sidecars run beside the containers, and beside the init containers after them. Kubernetes counts
    so in PodRequests (component-helpers/resource/helpers.go). What is no quantity counts 0.
    """
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            sidecars += _limits(container)
        else:
            most |= sidecars + _limits(container)
    return most | sum(map(_limits, spec.containers), sidecars)


def _limits(container: Container) -> Counter[str]:
    """Return a container's limits of extended resources, which equal its requests."""
    limits = container.resources.limits
    return Counter({name: units(str(count)) for name, count in limits.items() if "/" in name})


def pod_state(pod: Stored[Spec, Status]) -> PodState:
    """Return the model value of a Pod object."""
    return PodState(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        annotations=pod.annotations,
        labels=pod.labels,
        host_network=pod.spec.host_network,
        node=pod.spec.node_name,
        phase=pod.status.phase if pod.status else "",
        deleting=pod.deleting,
        owner=next((_owner(pod, owner) for owner in pod.owners if owner.controller), ""),
        created=pod.created,
        init_containers=tuple(one.name for one in pod.spec.init_containers[:2]),
    )


def _owner(pod: Stored[Spec, Status], owner: Owner) -> str:
    """Return kind and name of a pod's owner; a ReplicaSet has the name of its Deployment."""
    generation = f"-{pod.label('pod-template-hash')}"
    name = owner.name.removesuffix(generation) if owner.kind == "ReplicaSet" else owner.name
    return f"{owner.kind}/{name}"


# DaemonSets and Deployments, and the ConfigMaps that their pods read.

Json = dict[str, Any]


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class WorkloadTemplate(msgspec.Struct, frozen=True):
    """The fields that kube-rdma reads in the template of a workload's pods."""

    spec: FullPodSpec = FullPodSpec()
    metadata: _Metadata = _Metadata()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = {}


class WorkloadSpec(msgspec.Struct, frozen=True):
    """The fields that kube-rdma reads in the spec of a DaemonSet or a Deployment."""

    template: WorkloadTemplate = WorkloadTemplate()
    selector: _Selector = _Selector()
    replicas: int = 1


class WorkloadStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The counts in the status of a DaemonSet or a Deployment."""

    desired_number_scheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    updated_number_scheduled: int = 0
    observed_generation: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0


DOCUMENT: ObjectCodec[Json] = ObjectCodec(
    partial(decoded, what=dict[str, Any]), msgspec.json.encode
)
_WORKLOAD = ObjectCodec.of(WorkloadSpec, writes=False)
_COUNTS = ObjectCodec.of(WorkloadStatus, writes=False)

DAEMON_SET = ObjectKind(
    "apps", "v1", "DaemonSet", "daemonsets", namespaced=True, spec=DOCUMENT, status=_COUNTS
)
DAEMON_SETS = DAEMON_SET.read_as(_WORKLOAD, _COUNTS)
DEPLOYMENTS = ObjectKind(
    "apps", "v1", "Deployment", "deployments", namespaced=True, spec=_WORKLOAD, status=_COUNTS
)
CONFIG_MAP: ObjectKind[Json, None] = ObjectKind(
    "", "v1", "ConfigMap", "configmaps", True, spec=DOCUMENT, status=NOTHING, content="data"
)
