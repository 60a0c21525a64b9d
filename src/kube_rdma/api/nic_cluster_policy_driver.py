"""The parts of a NicClusterPolicy that say which driver runs where, and how another one gets there.

api/nic_cluster_policy puts them together. A field here is honoured as NVIDIA's operator has it, and
has its default. What narrows what is done to nodes has to be among them, for others have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from kube_rdma.api.dialect import Many, Typed
from kube_rdma.api.document import Path, name, shown
from kube_rdma.api.faults import Slip, slips
from kube_rdma.model.cluster_policy import ComponentImage, PolicyDriver, PolicyNote
from kube_rdma.model.driver_upgrade import DrainPolicy, UpgradePolicy

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LATER_IMAGES = ("doca-driver", "mofed")  # of releases behind 0.1.0, which tag them otherwise
_COMMA = re.compile(r",(?![^(]*\))")  # not those inside of brackets
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_KEY = r"[\w./-]+"
_REQUIREMENT = re.compile(
    rf"\s*(!?{_KEY}|{_KEY}\s*(=|==|!=)\s*[\w.-]*|{_KEY}\s+(in|notin)\s+\([^()]*\))\s*"
)


def _matching(pattern: str, what: str) -> AfterValidator:
    """A text of these characters alone; the original's patterns also match a part of a text."""
    whole = re.compile(pattern)

    def check(text: str) -> str:
        if not whole.fullmatch(text):
            raise slips(Slip(f"{shown(text)} is no {what}", f"Allowed characters: {pattern}"))
        return text

    return AfterValidator(check)


def _version(text: str) -> str:
    """A tag, or a digest of the right length."""
    if ":" not in text:
        return text
    if not _DIGEST.fullmatch(text):
        remedy = "Write sha256: and the 64 hexadecimal digits, or a tag"
        raise slips(Slip(f"{shown(text)} is no digest of an image", remedy))
    return text


def _selector(text: str) -> str:
    """A label selector, as kubectl takes it."""
    if text.strip() and not all(_REQUIREMENT.fullmatch(term) for term in _COMMA.split(text)):
        remedy = "Write labels as for kubectl -l, such as app=training,tier!=free"
        raise slips(Slip(f"{shown(text)} is no label selector", remedy))
    return text.strip()


ImageName = Annotated[str, _matching(r"[a-zA-Z0-9\-_]+", "name of an image")]
Repository = Annotated[str, _matching(r"[a-zA-Z0-9._:\-/]+", "repository of images")]
Version = Annotated[
    str, _matching(r"[a-zA-Z0-9._:\-]+", "version of an image"), AfterValidator(_version)
]
Selector = Annotated[str, AfterValidator(_selector)]


class OpenSection(Typed):
    """An object whose fields beyond these are kept, to be named in the notes."""

    model_config = ConfigDict(extra="allow", defer_build=False)


class ImageSection(OpenSection):
    """Which image; repository and version may stand in `global` instead."""

    image: ImageName = Field(examples=["ofed-driver"])
    repository: Repository | None = Field(None, examples=["mellanox"])
    version: Version | None = Field(
        None, description="A tag, or a digest: sha256: and 64 digits.", examples=["5.0-2.1.8.0"]
    )
    image_pull_secrets: Many[str] = ()


class DrainSection(OpenSection):
    """Which pods are evicted before the driver of their node is exchanged.

    Those that hold RDMA shares of it; a pod that may not be evicted is waited for.
    """

    enable: bool = Field(
        True,
        description="Evict the pods that hold a node's RDMA shares, before its driver is "
        "exchanged. Without this section the end of such pods is waited for.",
    )
    force: bool = Field(False, description="Also pods that no controller makes anew.")
    pod_selector: Selector = Field(
        "", description="Only pods with these labels, such as app=training; empty: all."
    )
    timeout_seconds: int = Field(
        300,
        ge=0,
        description="No pod is evicted so many seconds after the node was closed, which stays "
        "closed then; 0: without end.",
    )
    delete_empty_dir: bool = Field(
        False, description="Also pods with emptyDir volumes, whose content is lost."
    )


class WaitSection(OpenSection):
    """Pods whose end is waited for besides, on each node."""

    pod_selector: Selector = Field("", description="Pods with these labels, such as app=training.")
    timeout_seconds: int = Field(0, ge=0, description="Has no effect: the wait has no end.")


class UpgradeSection(OpenSection):
    """How a driver of another image comes to the nodes."""

    auto_upgrade: bool = Field(
        False,
        description="Exchange drivers of another image. False, as left out: a driver is exchanged "
        "when somebody deletes its pod. First loads and removals go on in any case.",
    )
    max_parallel_upgrades: int = Field(
        1, ge=0, le=10_000, description="How many nodes at a time; 0: all of them."
    )
    safe_load: bool = Field(
        False, description="A driver is loaded on a closed and unused node, whatever this says."
    )
    wait_for_completion: WaitSection | None = None
    drain: DrainSection | None = None


class EnvEntry(Typed):
    """A variable of the driver's container, as in a pod."""

    name: str = Field(min_length=1, examples=["UNLOAD_STORAGE_MODULES"])
    value: str | None = None
    value_from: dict[str, Any] | None = None


class DriverSection(ImageSection):
    """The driver of the cards."""

    env: Many[EnvEntry] = Field((), description="Variables of its container.")
    termination_grace_period_seconds: int = Field(
        300, ge=0, description="Seconds from the end of its pod until it is killed."
    )
    upgrade_policy: UpgradeSection | None = None


class PolicyRequirement(Typed):
    """What a label of a node has to be."""

    key: str = Field(examples=["kubernetes.io/os"])
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Many[str] = ()


class PolicyTerm(Typed):
    """Requirements that all have to hold."""

    match_expressions: Many[PolicyRequirement] = ()
    match_fields: Many[PolicyRequirement] = ()


def _terms(terms: tuple[PolicyTerm, ...]) -> tuple[PolicyTerm, ...]:
    """At least one, as the API server has it for pods."""
    if not terms:
        raise slips(Slip("the list is empty", "Add a term, or leave out nodeAffinity"))
    return terms


class PolicyTerms(Typed):
    """Terms of which one has to hold."""

    node_selector_terms: Annotated[Many[PolicyTerm], AfterValidator(_terms)]


class PolicyAffinity(OpenSection):
    """On which nodes anything runs, as in a pod. What is only preferred has no effect."""

    required: PolicyTerms | None = Field(
        None, alias="requiredDuringSchedulingIgnoredDuringExecution"
    )


def image_of(
    section: ImageSection, repository: str | None = None, version: str | None = None
) -> ComponentImage:
    """The image of a section; the other two stand for what it leaves out."""
    return ComponentImage(
        section.repository or repository or "", section.image, section.version or version or ""
    )


def driver(section: DriverSection, image: ComponentImage) -> PolicyDriver:
    """What the section of the driver means, with its image."""
    entries = (each.model_dump(by_alias=True, exclude_none=True) for each in section.env)
    return PolicyDriver(image, tuple(entries), section.termination_grace_period_seconds)


def upgrades(section: UpgradeSection | None) -> UpgradePolicy:
    """What a section means; left out it is what its defaults say."""
    section = section or UpgradeSection.model_validate({})
    wait, drain = section.wait_for_completion, section.drain
    return UpgradePolicy(
        section.auto_upgrade,
        section.max_parallel_upgrades,
        DrainPolicy(drain.pod_selector, drain.force, drain.delete_empty_dir, drain.timeout_seconds)
        if drain and drain.enable
        else None,
        wait.pod_selector if wait else "",
    )


def affinity(section: PolicyAffinity | None) -> dict[str, Any] | None:
    """The part of it that has to hold, as in a pod; None without one."""
    if section is None or section.required is None:
        return None
    required = section.required.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {_REQUIRED: required}


def driver_notes(section: DriverSection, image: ComponentImage) -> Iterator[PolicyNote]:
    """What is worth a word at the section's own fields."""
    if image.image in _LATER_IMAGES and not image.digest:
        yield PolicyNote(
            ("ofedDriver", "image"),
            f"spec.ofedDriver.image {image.image} has other tags than 0.1.0, whose are asked for: "
            f"{image.repository}/{image.image}-{image.version}:ARCHITECTURE-SYSTEM-kverKERNEL",
        )
    policy = section.upgrade_policy or UpgradeSection.model_validate({})
    base: Path = ("ofedDriver", "upgradePolicy")
    if policy.drain and policy.drain.enable and not policy.auto_upgrade:
        yield note((*base, "drain"), "has no effect while autoUpgrade is false")
    if policy.wait_for_completion and policy.wait_for_completion.timeout_seconds:
        where = (*base, "waitForCompletion", "timeoutSeconds")
        yield note(where, "has no effect: the wait has no end")


def note(path: Path, sentence: str) -> PolicyNote:
    """A note about the field at `path` below spec."""
    return PolicyNote(path, f"{name(('spec', *path))} {sentence}")
