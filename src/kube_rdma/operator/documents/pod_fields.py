"""Fields of a NicClusterPolicy that are fields of pods: probes of a driver, and resources.

operator/documents/driver and nic_cluster_policy have them in their sections. What is left out of a
probe keeps kube-rdma's own value, which is more patient than NVIDIA's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kube_rdma.lib.text.document import Path, shown
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.model.operator.cluster_policy import PolicyNote
from kube_rdma.operator.documents.policy_notes import note

# As apimachinery reads a quantity: a number with a suffix, or with an exponent.
_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][-+]?\d+|[numkMGTPE]|[KMGTPE]i)?")


def _quantities(amounts: dict[str, Any]) -> dict[str, Any]:
    """Amounts that a pod may have, texts or numbers."""
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
    """When and how often a probe looks."""

    initial_delay_seconds: int | None = Field(None, ge=0)
    """initialDelaySeconds is how many seconds after the start of the container the probe begins.
    Left out: 10 for startupProbe, 0 for the others.
    """
    period_seconds: int | None = Field(None, ge=1)
    """periodSeconds is the time between two looks, in seconds. Left out: 10 for startupProbe, 30
    for the others.
    """
    failure_threshold: int | None = Field(None, ge=1)
    """failureThreshold is how many looks in a row may fail before the container is ended. Left out:
    120 for startupProbe, 3 for the others.
    """
    timeout_seconds: int | None = Field(None, ge=1)
    """timeoutSeconds is how many seconds a look may take. Left out: 30."""


class ResourcesSection(Typed):
    """What one container of a part may use."""

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


def probes(sections: Mapping[str, ProbeSection | None]) -> dict[str, dict[str, int]]:
    """What is written of probes, by their names."""
    return {
        name: section.model_dump(by_alias=True, exclude_none=True)
        for name, section in sections.items()
        if section
    }


def requirements(
    sections: Sequence[ResourcesSection], containers: Sequence[str]
) -> dict[str, Any] | None:
    """The resources of the first section about one of these containers, as in a pod."""
    mine = next((section for section in sections if section.name in containers), None)
    if mine is None:
        return None
    return {part: getattr(mine, part) for part in ("requests", "limits") if getattr(mine, part)}


def resource_notes(
    path: Path, sections: Sequence[ResourcesSection], containers: Sequence[str]
) -> Iterator[PolicyNote]:
    """A note for each entry about a container that the part does not have, or has named before."""
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
