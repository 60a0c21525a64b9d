"""Models the sections of a NicClusterPolicy about drivers: image, nodes, how upgrades get there.

operator/documents/nic_cluster_policy puts them together. A field here means what it means to
NVIDIA's operator, unless its text says otherwise. Each field that limits what is done to nodes
needs a model here, for a field without one has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from kube_rdma.lib.label_selector import label_terms
from kube_rdma.lib.text.document import Path, name, shown
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.model import operator as model

# Notes about fields of a NicClusterPolicy that have no effect, and what to do instead.

_OTHERS = "Remove it, or deploy that component yourself"
_MULTUS = "Remove it: kube-rdma reads the annotations of pods itself, or install Multus yourself"
_REMEDIES: Mapping[Path, str] = {
    ("nvIpam",): "Write an IPPool, which gives addresses (docs/ip.md), or install nv-ipam yourself",
    ("secondaryNetwork", "multus"): _MULTUS,
    ("secondaryNetwork", "ipoib"): (
        "Write networks of type ipoib (docs/networks.md), which need no further plugin"
    ),
    ("secondaryNetwork", "ipamPlugin"): "Write an IPPool, which gives addresses (docs/ip.md)",
    ("ibKubernetes",): "Write P_Keys into networks, GUIDs into pods (docs/networks.md)",
    ("nicFeatureDiscovery",): "Remove it: agents write labels of their nodes (docs/config.md)",
    ("docaTelemetryService",): "Remove it: agents serve metrics of the cards (docs/metrics.md)",
    ("nicConfigurationOperator",): _OTHERS,
    ("spectrumXOperator",): _OTHERS,
    ("deploymentNodeAffinity",): "Remove it: no Deployment of NVIDIA's is deployed",
    ("deploymentTolerations",): "Remove it: no Deployment of NVIDIA's is deployed",
    ("psp",): "Remove it: Kubernetes has no PodSecurityPolicies since 1.25",
    ("ofedDriver", "certConfig"): "Take an image that trusts your registry of packages",
    ("ofedDriver", "repoConfig"): "Set forcePrecompiled, whose images fetch no packages",
    **{
        (section, "useCdi"): "Remove it: kube-rdma's own image needs no such switch"
        for section in ("devicePlugin", "rdmaSharedDevicePlugin", "sriovDevicePlugin")
    },
}


def note(path: Path, sentence: str, remedy: str = "") -> model.PolicyNote:
    """Return a note about the field at `path` below spec."""
    return model.PolicyNote(path, f"{name(('spec', *path))} {sentence}", remedy)


def without_effect(spec: Typed) -> Iterator[model.PolicyNote]:
    """Yield a note for each field that no model has."""
    for path in _unknown(spec, ()):
        yield note(path, "has no effect", _REMEDIES.get(path, "Remove it"))


def _unknown(part: Typed, path: Path) -> Iterator[Path]:
    """Yield the paths of fields that a section's model does not have, in its objects, too."""
    for field in part.model_extra or {}:
        yield (*path, field)
    for attribute, info in type(part).model_fields.items():
        value = getattr(part, attribute)
        if isinstance(value, Typed):
            yield from _unknown(value, (*path, info.alias or attribute))


# Fields of a NicClusterPolicy that are fields of pods: probes of a driver, and resources.

# As apimachinery reads a quantity: a number with a suffix, or with an exponent.
_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][-+]?\d+|[numkMGTPE]|[KMGTPE]i)?")


def _quantities(amounts: dict[str, Any]) -> dict[str, Any]:
    """Return the amounts of resources; raise an error with Slips for one that is no quantity."""
    remedy = 'Write a number and its suffix, such as "500m" or "2Gi"'
    wrong = [
        Slip(f"{shown(amount)} is not a quantity", remedy, (resource,))
        for resource, amount in amounts.items()
        if isinstance(amount, bool) or not _QUANTITY.fullmatch(str(amount))
    ]
    if wrong:
        raise slips(*wrong)
    return amounts


Quantities = Annotated[dict[str, Any], AfterValidator(_quantities)]


class ProbeSection(Typed):
    """The times of a probe."""

    initial_delay_seconds: int | None = Field(None, ge=0)
    """initialDelaySeconds is how many seconds after the start of the container the probe begins.
    Left out: 10 for startupProbe, 0 for the others.
    """
    period_seconds: int | None = Field(None, ge=1)
    """periodSeconds is the time between two probes, in seconds. Left out: 10 for startupProbe, 30
    for the others.
    """
    failure_threshold: int | None = Field(None, ge=1)
    """failureThreshold is how many probes in a row have to fail before this has an effect. Left
    out: 120 for startupProbe, 3 for the others.
    """
    timeout_seconds: int | None = Field(None, ge=1)
    """timeoutSeconds is how many seconds a probe may take. Left out: 30."""


class ResourcesSection(Typed):
    """The resources of one container of a part."""

    name: str = Field(min_length=1, examples=["mofed-container"])
    """name is the name of the container, as NVIDIA's operator calls it: mofed-container,
    rdma-shared-dp or kube-sriovdp. Example: mofed-container.
    """
    requests: Quantities = Field(default_factory=dict)
    """requests has what the container needs at least, by resource. Left out: what limits has.
    Example: {cpu: 100m}.
    """
    limits: Quantities = Field(default_factory=dict)
    """limits has what the container may use at most, by resource. Left out: without limit. Example:
    {memory: 1Gi}.
    """


Resources = Many[ResourcesSection]


def requirements(
    sections: Sequence[ResourcesSection], containers: Sequence[str]
) -> dict[str, Any] | None:
    """Return requests and limits from the first section about one of these containers.

    Return None without such a section.
    """
    mine = next((section for section in sections if section.name in containers), None)
    if mine is None:
        return None
    return {part: getattr(mine, part) for part in ("requests", "limits") if getattr(mine, part)}


def resource_notes(
    path: Path, sections: Sequence[ResourcesSection], containers: Sequence[str]
) -> Iterator[model.PolicyNote]:
    """Yield a note for each section about an unknown container, and each one after the first."""
    named: list[ResourcesSection] = []
    for index, section in enumerate(sections):
        where = (*path, "containerResources", index)
        if section.name not in containers:
            yield note(where, "has no effect: no such container", f"Name {containers[-1]}")
        elif named:
            yield note(
                where, "has no effect: an entry before it is about the container", "Remove it"
            )
        else:
            named.append(section)


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PROBES = {"startup_probe", "liveness_probe", "readiness_probe"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _matching(pattern: str, what: str) -> AfterValidator:
    """Return a validator of texts that match a pattern as a whole.

    The patterns of NVIDIA's operator also match a part of a text.
    """
    whole = re.compile(pattern)

    def check(text: str) -> str:
        if not whole.fullmatch(text):
            raise slips(Slip(f"{shown(text)} is not a {what}", f"Allowed characters: {pattern}"))
        return text

    return AfterValidator(check)


def _version(text: str) -> str:
    """Return a tag or digest; raise ValueError for an invalid digest."""
    if ":" not in text:
        return text
    if not _DIGEST.fullmatch(text):
        remedy = "Write sha256: and the 64 hexadecimal digits, or a tag"
        raise slips(Slip(f"{shown(text)} is not the digest of an image", remedy))
    return text


def _selector(text: str) -> str:
    """Return a label selector as kubectl takes it; raise ValueError for another text."""
    if text.strip() and not label_terms(text):
        remedy = "Write labels as for kubectl -l, such as app=training,tier!=free"
        raise slips(Slip(f"{shown(text)} is not a label selector", remedy))
    return text.strip()


ImageName = Annotated[str, _matching(r"[a-zA-Z0-9\-_]+", "name of an image")]
Repository = Annotated[str, _matching(r"[a-zA-Z0-9._:\-/]+", "repository of images")]
Version = Annotated[
    str, _matching(r"[a-zA-Z0-9._:\-]+", "version of an image"), AfterValidator(_version)
]
Selector = Annotated[str, AfterValidator(_selector)]


class OpenSection(Typed):
    """An object whose unknown fields are kept, to be named in the notes."""

    model_config = ConfigDict(extra="allow", defer_build=False)


class ImageSection(OpenSection):
    """An image; repository and version may stand in `global` instead."""

    image: ImageName = Field(examples=["ofed-driver"])
    """image is the name of the image, without repository and version. Example: ofed-driver."""
    repository: Repository | None = Field(None, examples=["mellanox"])
    """repository is the registry and path of the image. Left out: the repository of global.
    Example: mellanox.
    """
    version: Version | None = Field(None, examples=["5.0-2.1.8.0"])
    """version is the version of the image: its tag, and for drivers a part of the name or of the
    tag (docs/drivers.md). A digest (sha256: and 64 hexadecimal digits) names one image for all
    nodes. Left out: the version of global. Example: 5.0-2.1.8.0.
    """
    image_pull_secrets: Many[str] = ()
    """imagePullSecrets is a list of Secrets in the operator's namespace that give access to the
    registry. All pods of the policy use the Secrets of global and of every section that has an
    effect. Left out: none.
    """


class DrainSection(OpenSection):
    """The rules for evicting holders of RDMA shares before the driver of their node is changed."""

    enable: bool = True
    """enable is true when the operator evicts pods that hold RDMA shares of a node, before it
    changes the driver there. With false the operator waits until these pods end. Left out: true.
    """
    force: bool = False
    """force is true when the operator also evicts pods without a controller, which nothing creates
    again. Left out: false, and the operator waits until these pods end.
    """
    pod_selector: Selector = ""
    """podSelector limits evictions to pods with these labels, written as for kubectl -l. The
    operator waits until other pods end. Left out: no limit. Example: app=training,tier!=free.
    """
    timeout_seconds: int = Field(300, ge=0)
    """timeoutSeconds is for how many seconds after closing a node the operator evicts pods there.
    Then it stops, and the node stays closed until these pods end. 0: without limit. Left out: 300.
    """
    delete_empty_dir: bool = False
    """deleteEmptyDir is true when the operator also evicts pods with emptyDir volumes, whose
    content is lost. Left out: false, and the operator waits until these pods end.
    """


class WaitSection(OpenSection):
    """Pods whose end is waited for besides, on each node."""

    pod_selector: Selector = ""
    """podSelector chooses pods of all namespaces by their labels, written as for kubectl -l. The
    operator waits until those on a node end, and evicts none of them. Left out: no further pods.
    Example: app=training.
    """
    timeout_seconds: int = Field(0, ge=0)
    """timeoutSeconds has no effect: the operator waits without limit. Left out: 0."""


class UpgradeSection(OpenSection):
    """The way in which a driver of another image comes to the nodes."""

    auto_upgrade: bool = False
    """autoUpgrade is true when the operator replaces drivers after their image or env changed. Left
    out: false, and a driver is replaced when its pod is deleted by hand. First loads, removals and
    drivers for another kernel go on in any case.
    """
    max_parallel_upgrades: int = Field(1, ge=0, le=10_000)
    """maxParallelUpgrades is how many nodes may be closed for a change of drivers at a time, also
    for first loads and removals. 0: all nodes. Left out: 1.
    """
    safe_load: bool = False
    """safeLoad has no effect: the operator loads the cards' driver only on a closed node where no
    pod holds RDMA shares. Left out: false.
    """
    wait_for_completion: WaitSection | None = None
    """waitForCompletion names further pods. The operator waits until those on a node end, before it
    changes the driver there. Left out: only pods that hold RDMA shares count.
    """
    drain: DrainSection | None = None
    """drain says which pods with RDMA shares the operator evicts from a node before it changes the
    driver there. It has an effect only with autoUpgrade. Left out: the operator evicts none and
    waits until these pods end.
    """


class EnvEntry(Typed):
    """A variable of the driver's container, as in a pod."""

    name: str = Field(min_length=1, examples=["UNLOAD_STORAGE_MODULES"])
    """name is the name of the variable. Example: UNLOAD_STORAGE_MODULES."""
    value: str | None = None
    """value is the value of the variable. Left out: that of valueFrom, else empty. Example: "true".
    """
    value_from: dict[str, Any] | None = None
    """valueFrom is where the value comes from, such as a key of a ConfigMap, written as in a pod.
    Left out: value counts.
    """


class DriverSection(ImageSection):
    """The driver of the cards."""

    env: Many[EnvEntry] = ()
    """env is a list of variables of the driver's container, written as in a pod. A changed list
    needs a new driver pod, as a changed image does. Left out: no further variables.
    """
    termination_grace_period_seconds: int = Field(300, ge=0)
    """terminationGracePeriodSeconds is how many seconds the driver has to end before it is killed.
    Left out: 300.
    """
    startup_probe: ProbeSection | None = None
    """startupProbe says how long the driver may take until its modules are loaded. Left out: 20
    minutes.
    """
    liveness_probe: ProbeSection | None = None
    """livenessProbe says when a driver whose module is gone is ended. Left out: after three failed
    probes, 30 seconds apart.
    """
    readiness_probe: ProbeSection | None = None
    """readinessProbe says when a driver counts as ready. Left out: a probe every 30 seconds; after
    three failed probes the driver is not ready.
    """
    container_resources: Resources = ()
    """containerResources is a list of requests and limits, by the name of the container. Left out:
    none.
    """
    force_precompiled: bool = False
    """forcePrecompiled is true when each kernel has an image of its own, whose tag has the kernel's
    release in it. With false, images from 0.2 on compile the driver on each node. Images of 0.1.0
    have the kernel in their tag anyway. Left out: false.
    """
    upgrade_policy: UpgradeSection | None = None
    """upgradePolicy says when and on how many nodes at a time the operator changes both drivers.
    Left out: one node at a time without evictions, and another image only by hand.
    """


class PolicyRequirement(Typed):
    """A requirement on a label of a node."""

    key: str = Field(examples=["kubernetes.io/os"])
    """key is the name of the label; in matchFields it is metadata.name. Example: kubernetes.io/os.
    """
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """operator is how the node is compared. In and NotIn: with each of values. Exists and
    DoesNotExist: whether it has the label. Gt and Lt: as whole numbers, greater or less than the
    one of values.
    """
    values: Many[str] = ()
    """values is a list of texts to compare with: one or more for In and NotIn, one whole number for
    Gt and Lt. Left out: empty, as Exists and DoesNotExist need it.
    """


class PolicyTerm(Typed):
    """Requirements that all have to hold."""

    match_expressions: Many[PolicyRequirement] = ()
    """matchExpressions is a list of requirements on labels of the node, which must all hold. Left
    out: none. A term without any requirement chooses no node.
    """
    match_fields: Many[PolicyRequirement] = ()
    """matchFields is a list of requirements on the node's field metadata.name, which must all hold.
    Left out: none.
    """


def _terms(terms: tuple[PolicyTerm, ...]) -> tuple[PolicyTerm, ...]:
    """Return the terms; raise an error with Slips if there are none, as the API server does."""
    if not terms:
        raise slips(Slip("the list is empty", "Add a term, or leave out nodeAffinity"))
    return terms


class PolicyTerms(Typed):
    """Terms of which one has to hold."""

    node_selector_terms: Annotated[Many[PolicyTerm], AfterValidator(_terms)]
    """nodeSelectorTerms is a list of one or more terms. A node is chosen when one of them holds."""


class PolicyAffinity(OpenSection):
    """The nodes of a policy, as in a pod; what is only preferred has no effect."""

    required: PolicyTerms | None = Field(
        None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )
    """requiredDuringSchedulingIgnoredDuringExecution is what nodes must have. The operator removes
    its drivers from a node that no longer has it, when no pod there holds RDMA shares. Left out:
    all nodes with NVIDIA cards.
    """


def driver(section: DriverSection, image: model.ComponentImage) -> model.PolicyDriver:
    """Return the driver that the section of a policy describes, with its image."""
    entries = (each.model_dump(by_alias=True, exclude_none=True) for each in section.env)
    written = section.model_dump(include=_PROBES, by_alias=True, exclude_none=True)
    return model.PolicyDriver(
        image,
        tuple(entries),
        section.termination_grace_period_seconds,
        section.force_precompiled,
        written,
        requirements(section.container_resources, model.CONTAINERS),
    )


def upgrades(section: UpgradeSection | None) -> model.UpgradePolicy:
    """Return the UpgradePolicy of a policy's section, or of the defaults without one."""
    section = section or UpgradeSection.model_validate({})
    wait, drain = section.wait_for_completion, section.drain
    drains, awaited = None, wait.pod_selector if wait else ""
    if drain and drain.enable and section.auto_upgrade:
        drains = model.DrainPolicy(
            drain.pod_selector, drain.force, drain.delete_empty_dir, drain.timeout_seconds
        )
    return model.UpgradePolicy(section.auto_upgrade, section.max_parallel_upgrades, drains, awaited)


def affinity(section: PolicyAffinity | None) -> dict[str, Any] | None:
    """Return the required node affinity of a policy, in the form of a pod's; None without one."""
    if section is None or section.required is None:
        return None
    required = section.required.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {_REQUIRED: required}


def driver_notes(section: DriverSection, image: model.ComponentImage) -> Iterator[model.PolicyNote]:
    """Yield notes about fields of the driver section that have no effect."""
    if section.force_precompiled and (image.digest or not model.contract_of(image).kernel_form):
        why, remedy = f"only images of {model.CONTRACTS[-1].releases} have such tags", "Remove it"
        if image.digest:
            why, remedy = "a digest is one image for all kernels", "Write a tag, or remove it"
        yield note(("ofedDriver", "forcePrecompiled"), f"has no effect: {why}", remedy)
    yield from resource_notes(("ofedDriver",), section.container_resources, model.CONTAINERS)
    policy = section.upgrade_policy or UpgradeSection.model_validate({})
    base: Path = ("ofedDriver", "upgradePolicy")
    if policy.drain and policy.drain.enable and not policy.auto_upgrade:
        remedy = "Set autoUpgrade: true, or remove drain"
        yield note((*base, "drain"), "has no effect while autoUpgrade is false", remedy)
    if policy.wait_for_completion and policy.wait_for_completion.timeout_seconds:
        where = (*base, "waitForCompletion", "timeoutSeconds")
        yield note(where, "has no effect: the wait has no end", "Remove it")
