"""What this node offers to claims: OfferedCard as a pool has it, OfferedDevice as a slice says it.

claims/rules/cards makes OfferedCards out of Pools, claims/rules/shape gives them the form that the
API server takes, claims/rules/publication compares it with the PublishedSlices.
"""

from __future__ import annotations

from enum import StrEnum

from kube_base.frozen import Frozen

Attributes = tuple[tuple[str, str | int], ...]
"""Attributes of a device by name, sorted; a name without a domain is of the driver's own."""


class ClaimFeature(StrEnum):
    """A part of slices that an API server drops while its feature gate is off.

    The values are the names of the gates (pkg/features/kube_features.go of Kubernetes).
    """

    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DEVICE_TAINTS = "DRADeviceTaints"


class TaintEffect(StrEnum):
    """What a taint of a device does. NONE: it only tells. NO_SCHEDULE: no new claim gets it."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"


class DeviceTaint(Frozen):
    """A taint of a device; `added` (RFC 3339) is empty until the API server has set it."""

    key: str
    effect: TaintEffect
    added: str = ""


class RequestPolicy(Frozen):
    """How much of a capacity a request may take, and what is taken if it names none.

    `step` is None where any amount between the ends may be asked for.
    """

    default: int
    least: int
    most: int
    step: int | None = None


class DeviceCapacity(Frozen):
    """How much a device has of something; without a policy it is a fact to select by."""

    value: int
    policy: RequestPolicy | None = None


class OfferedCard(Frozen):
    """A card of a pool, or a whole pool whose shares stand for it.

    `group` is the physical card: what changes together. A `shared` one is for `slots` pods at a
    time.
    """

    name: str
    group: str
    attributes: Attributes
    slots: int = 1
    shared: bool = False
    taints: tuple[DeviceTaint, ...] = ()


class OfferedDevice(Frozen):
    """A device of a ResourceSlice, as it is written."""

    name: str
    attributes: Attributes
    capacities: tuple[tuple[str, DeviceCapacity], ...] = ()  # sorted by name
    shared: bool = False  # allowMultipleAllocations
    taints: tuple[DeviceTaint, ...] = ()


class PublishedSlice(Frozen):
    """A ResourceSlice of this driver and node, as the API server has it.

    `count` is how many slices its pool has at its `generation`. `owner` is the uid of the Node
    object that it goes with. `without` are the features that it was written without.
    """

    name: str
    generation: int
    count: int
    devices: tuple[OfferedDevice, ...]
    owner: str = ""
    without: frozenset[ClaimFeature] = frozenset()
