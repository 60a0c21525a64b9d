"""Reads a pod of a manifest or of the API server, as far as admission/rules looks at it.

Fields that the rules do not read are passed over, and null counts as absent. The template inside of
a Job or its like is read by the same models; admission/documents/manifests knows where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.admission.documents.manifests import PodSection
from kube_rdma.attach.documents import networks, pod_networks
from kube_rdma.lib.text.document import Document, of_json, shown
from kube_rdma.lib.text.faults import Slip, near, slips, validate
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.model import admission
from kube_rdma.model.attach.attachment import NetworkAsk
from kube_rdma.model.finding import FieldPath, Finding, Severity
from kube_rdma.model.kubernetes import Toleration

_TOLERATION = ("key", "operator", "value", "effect")
DEFAULT_NAMESPACE = "default"

_MULTIPLES: dict[str, int] = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)},
}
_PLACEHOLDER = re.compile(r"\$|\{\{|^<.+>$|^[A-Z]+(_[A-Z]+)+$")
_CLAIM_NAMES = ("resourceClaimName", "resourceClaimTemplateName")
_DIGITS = 15  # nobody has more of a resource, and a longer number would cost


class PartialObject(Typed):
    """The base of Kubernetes objects of which only some fields are read; null means absent."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, value: object) -> object:
        if isinstance(value, dict) and None in value.values():
            return {key: inner for key, inner in value.items() if inner is not None}
        return value


def counted(quantity: object) -> int:
    """Return how many of an extended resource a quantity means.

    Raise ValueError unless it is a whole number, with a known unit or without.
    """
    text = str(quantity).strip() if isinstance(quantity, int | float | str) else ""
    digits = text.rstrip("kKMGTPEi")
    whole, point, rest = digits.partition(".")
    fits = not isinstance(quantity, bool) and whole.isascii() and whole.isdigit()
    if not fits or len(whole) > _DIGITS or rest.strip("0") or (point and not rest):
        problem = f"{shown(quantity)} is not a whole number of shares"
        raise slips(Slip(problem, "Write digits, such as 2"))
    unit = text[len(digits) :]
    if unit not in _MULTIPLES:
        raise slips(Slip(f"{shown(quantity)} has no unit that is known", "Write digits, such as 2"))
    return int(whole) * _MULTIPLES[unit]


def _is_open(quantity: object) -> bool:
    """Decide whether a number has yet to be filled in: ``${GPUS}``, ``GPUS_N``, null."""
    return quantity is None or bool(_PLACEHOLDER.search(str(quantity)))


class Resources(PartialObject):
    """Limits and requests, of which names with a prefix are read: the node's own resources have
    none.
    """

    limits: dict[str, Any] = Field(default_factory=dict)
    requests: dict[str, Any] = Field(default_factory=dict)
    claims: Many[dict[str, Any]] = ()

    @model_validator(mode="after")
    def _counts(self) -> Resources:
        wrong = []
        for field, amounts in (("limits", self.limits), ("requests", self.requests)):
            for resource, quantity in amounts.items():
                if "/" in resource and not _is_open(quantity):
                    try:
                        counted(quantity)
                    except ValueError as error:
                        (slip,) = error.context["slips"]  # type: ignore[attr-defined]
                        wrong.append(Slip(slip.problem, slip.remedy, (field, resource)))
        if wrong:
            raise slips(*wrong)
        return self


class Capabilities(PartialObject):
    """The capabilities that a container adds and drops."""

    add: Many[str] = ()
    drop: Many[str] = ()


class SecurityContext(PartialObject):
    """The security context of a container, or of all containers of the pod."""

    capabilities: Capabilities = Capabilities.model_construct()
    privileged: bool = False
    run_as_user: int | None = None
    run_as_non_root: bool | None = None
    allow_privilege_escalation: bool = True


class Mount(PartialObject):
    """A volumeMount of a container."""

    name: str = ""
    mount_path: str = ""


class PodContainer(PartialObject):
    """A container; `restartPolicy: Always` makes a sidecar of one of initContainers."""

    name: str = ""
    resources: Resources = Resources.model_construct(limits={}, requests={})
    security_context: SecurityContext = SecurityContext.model_construct()
    volume_mounts: Many[Mount] = ()
    env: Any = None
    restart_policy: str = ""


class ClaimSpec(PartialObject):
    """The spec of a PersistentVolumeClaim."""

    storage_class_name: str = ""
    volume_name: str = ""


class ClaimTemplate(PartialObject):
    """The template of a PersistentVolumeClaim that is made with the pod."""

    spec: ClaimSpec = ClaimSpec.model_construct()


class VolumeSource(PartialObject):
    """The fields of a volume's source that rules need; each kind of source has some of them."""

    claim_name: str = ""  # of persistentVolumeClaim
    driver: str = ""  # of csi and flexVolume
    path: str = ""  # of hostPath
    volume_claim_template: ClaimTemplate = ClaimTemplate.model_construct()  # of ephemeral


class PodVolume(PartialObject):
    """A volume of a pod, with the sources that rules need."""

    name: str = ""
    persistent_volume_claim: VolumeSource = VolumeSource.model_construct()
    csi: VolumeSource = VolumeSource.model_construct()
    flex_volume: VolumeSource = VolumeSource.model_construct()
    host_path: VolumeSource = VolumeSource.model_construct()
    ephemeral: VolumeSource = VolumeSource.model_construct()


class Requirement(PartialObject):
    """A requirement on a label of the node."""

    key: str = ""
    operator: str = ""
    values: Many[str] = ()


class NodeTerm(PartialObject):
    """A term, all of whose requirements have to hold."""

    match_expressions: Many[Requirement] = ()


class NodeTerms(PartialObject):
    """Terms of which one has to hold."""

    node_selector_terms: Many[NodeTerm] = ()


class NodeAffinity(PartialObject):
    """The required part of a node affinity."""

    required: NodeTerms = Field(
        NodeTerms.model_construct(), alias="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(PartialObject):
    """The affinity of a pod."""

    node_affinity: NodeAffinity = NodeAffinity.model_construct()


class PodSpecFields(PartialObject):
    """The spec of a pod."""

    containers: Many[PodContainer] = ()
    init_containers: Many[PodContainer] = ()
    volumes: Many[PodVolume] = ()
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: Affinity = Affinity.model_construct()
    host_network: bool = False
    runtime_class_name: str = ""
    resource_claims: Many[dict[str, Any]] = ()
    host_ipc: bool = Field(default=False, alias="hostIPC")
    tolerations: Many[dict[str, Any]] = ()
    security_context: SecurityContext = SecurityContext.model_construct()


class PodMetadata(PartialObject):
    """Name, namespace and annotations; a template has no name."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    annotations: dict[str, str] = Field(default_factory=dict)


class PodObject(PartialObject):
    """A pod, or a template for pods."""

    metadata: PodMetadata = Field(
        PodMetadata.model_construct(annotations={}), examples=[{"name": "rdma-1"}]
    )
    spec: PodSpecFields = PodSpecFields.model_construct(node_selector={})


def load(document: Document, namespace: str = "", name: str = "") -> admission.PodTemplate:
    """Return the pod of a document; `namespace` wins over its own, `name` is used if it has none.

    Raise Refused with each field that does not have the form of a pod's.
    """
    pod = validate(PodObject, document)
    meta, spec = pod.metadata, pod.spec
    space = namespace or meta.namespace or DEFAULT_NAMESPACE
    faults: list[Finding] = []
    containers = tuple(_containers(spec))
    known = all(ask.known for one in containers for ask in one.asks)
    return admission.PodTemplate(
        namespace=space,
        name=meta.name or meta.generate_name or name,
        annotations=tuple(sorted(meta.annotations.items())),
        host_network=spec.host_network,
        containers=containers,
        volumes=tuple(_volume(volume, number) for number, volume in enumerate(spec.volumes)),
        selector=tuple(sorted(spec.node_selector.items())),
        alternatives=tuple(
            tuple(
                admission.NodeDemand(one.key, one.values)
                for one in term.match_expressions
                if one.operator == "In"
            )
            for term in spec.affinity.node_affinity.required.node_selector_terms
        ),
        networks=_networks(meta.annotations, space, faults),
        blocks=_blocks(meta.annotations, space, faults),
        faults=tuple(faults),
        whole=known and (not isinstance(document, PodSection) or document.whole),
        runtime_class=spec.runtime_class_name,
        claims=tuple(_claim(entry, number) for number, entry in enumerate(spec.resource_claims)),
        host_ipc=spec.host_ipc,
        kind=document.kind if isinstance(document, PodSection) else "Pod",
        copies=document.copies if isinstance(document, PodSection) else 1,
        tolerations=tuple(
            Toleration(*(str(one.get(field) or "") for field in _TOLERATION))
            for one in spec.tolerations
        ),
    )


def _claim(entry: Mapping[str, Any], number: int) -> admission.PodClaim:
    """Return an entry of resourceClaims; its names may stand below the old field `source`."""
    source = entry.get("source")
    named, below = (
        tuple(f"{key}: {fields[key]}" for key in _CLAIM_NAMES if fields.get(key))
        for fields in (entry, source if isinstance(source, dict) else {})
    )
    place, old = ("spec", "resourceClaims", number), "source" in entry and not named
    return admission.PodClaim(str(entry.get("name", "")), place, named or below, old)


def _containers(spec: PodSpecFields) -> Iterator[admission.ContainerTemplate]:
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for number, container in enumerate(containers):
            role = admission.ContainerRole.MAIN
            if field == "initContainers":
                sidecar = container.restart_policy == "Always"
                role = admission.ContainerRole.SIDECAR if sidecar else admission.ContainerRole.INIT
            yield _container(container, ("spec", field, number), role, spec.security_context)


def _container(
    container: PodContainer, path: FieldPath, role: admission.ContainerRole, pod: SecurityContext
) -> admission.ContainerTemplate:
    own = container.security_context
    user = pod.run_as_user if own.run_as_user is None else own.run_as_user
    non_root = pod.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
    return admission.ContainerTemplate(
        name=container.name,
        path=path,
        role=role,
        asks=tuple(_asks(container.resources, (*path, "resources"))),
        added=own.capabilities.add,
        dropped=own.capabilities.drop,
        own_user=bool(user) or bool(non_root),
        user=user,
        escalates=own.allow_privilege_escalation,
        privileged=own.privileged,
        claims=tuple(str(one.get("name", "")) for one in container.resources.claims),
        mounts=tuple((mount.name, mount.mount_path) for mount in container.volume_mounts),
        env=tuple(map(_variable, container.env if isinstance(container.env, list) else ())),
    )


def _variable(entry: object) -> tuple[str, str]:
    """Return name and literal value of a variable; empty texts for what is no text."""
    fields = entry if isinstance(entry, dict) else {}
    name, value = fields.get("name"), fields.get("value")
    return (name if isinstance(name, str) else "", value if isinstance(value, str) else "")


def _asks(resources: Resources, path: FieldPath) -> Iterator[admission.ResourceAsk]:
    """Yield the extended resources that a container asks for, by its limits, else its requests."""
    fields = dict.fromkeys(resources.requests, "requests")
    fields |= dict.fromkeys(resources.limits, "limits")
    for resource, field in fields.items():
        if "/" in resource:
            place = (*path, field, resource)
            known = not _is_open(amount := getattr(resources, field)[resource])
            written = resources.requests.get(resource)
            request = counted(written) if known and not _is_open(written) else None
            count = counted(amount) if known else 1
            yield admission.ResourceAsk(resource, count, place, request, field == "limits", known)


def _volume(volume: PodVolume, number: int) -> admission.VolumeTemplate:
    return admission.VolumeTemplate(
        name=volume.name,
        path=("spec", "volumes", number),
        claim=volume.persistent_volume_claim.claim_name,
        driver=volume.csi.driver or volume.flex_volume.driver,
        storage_class=volume.ephemeral.volume_claim_template.spec.storage_class_name,
        host_path=volume.host_path.path,
    )


def _networks(
    annotations: Mapping[str, str], namespace: str, faults: list[Finding]
) -> tuple[NetworkAsk, ...]:
    try:
        loaded = networks.load(annotations.get(networks.ANNOTATION, ""), namespace)
    except Refused as refused:
        faults += _faults(networks.ANNOTATION, refused)
        return ()
    path = ("metadata", "annotations", networks.ANNOTATION)
    faults += _no_json(annotations.get(networks.ANNOTATION, ""), path)
    faults += (
        Finding.of("annotation", path, warning, "", Severity.WARNING) for warning in loaded.warnings
    )
    return loaded.asks


def _no_json(text: str, path: FieldPath) -> Iterator[Finding]:
    """Yield a warning for a list of networks that kube-rdma reads and Multus does not.

    Multus takes every text with a bracket, a brace or a double quote for JSON: multus-cni@v4.2
    pkg/k8sclient, parsePodNetworkAnnotation.
    """
    if any(sign in text for sign in '[{"'):
        try:
            of_json(text.encode(), networks.ANNOTATION)
        except Refused as refused:
            remedy = "Write it as JSON, as Multus reads nothing else"
            yield Finding.of("annotation", path, refused.problem, remedy, Severity.WARNING)


def _blocks(
    annotations: Mapping[str, str], namespace: str, faults: list[Finding]
) -> tuple[NetworkAsk, ...] | None:
    """Return the blocks of the annotation pod-networks; None if it is missing or faulty.

    Return None too if another annotation defines the blocks' networks, which are not known here.
    """
    text = annotations.get(pod_networks.ANNOTATION)
    if text is None or annotations.get(pod_networks.DEFINITION, "").strip():
        return None
    try:
        return pod_networks.blocks(text, namespace)
    except Refused as refused:
        faults += _faults(pod_networks.ANNOTATION, refused)
        return None


def _faults(annotation: str, refused: Refused) -> Iterator[Finding]:
    path = ("metadata", "annotations", annotation)
    for fault in (refused, *refused.more):
        yield Finding.of("annotation", path, f"{fault.where}: {fault.problem}", fault.remedy)


# Settings of an administrator about admission, one assignment each: ``mgpuResources=a/b,c/d``.

FIELDS = {
    "shareResources": "shares",
    "mgpuResources": "mgpu",
    "gpuResources": "gpus",
    "vepfsDrivers": "vepfs_drivers",
    "vepfsStorageClasses": "vepfs_classes",
    "vepfsFolders": "vepfs_folders",
    "hostNetworkResources": "on_host",
    "networkResources": "network_resources",
    "namespaceIsolation": "global_namespaces",
    "shmSize": "shm_size",
}
SIZE = r"[1-9][0-9]{0,11}(?:[kMGTP]|[KMGTP]i)?"


def load_settings(assignments: Iterable[str], where: str) -> admission.AdmissionSettings:
    """Return the default settings, changed by these assignments; `where` names their option.

    Raise Refused for an unknown name, or a malformed size.
    """
    settings = admission.USUAL
    for text in assignments:
        name, equals, value = text.partition("=")
        if name not in FIELDS or not equals:
            meant = near(name, list(FIELDS))
            guess = f"Did you mean {meant}? " if meant else ""
            raise Refused(
                f"{shown(text)} sets nothing of admission",
                remedy=f"{guess}Write NAME=LIST with one of {', '.join(FIELDS)}",
                where=where,
            )
        change: dict[str, Any] = {FIELDS[name]: _value(name, value, where)}
        settings = replace(settings, **change)
    return settings


def _value(name: str, text: str, where: str) -> object:
    if name != "shmSize":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if not re.fullmatch(SIZE, text):
        raise Refused(
            f"{shown(text)} is not a size of memory",
            remedy="Write it like shmSize=8Gi",
            where=where,
        )
    return text
