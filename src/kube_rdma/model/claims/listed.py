"""What ResourceSlices of any driver list, with all that the scheduler looks at.

adapters/cluster/kinds/claim_objects reads it, claims/rules judges it. Fields are those of
resource.k8s.io/v1 (k8s.io/api v0.36.3, resource/v1/types.go); quantities are exact numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from kube_base.frozen import Frozen


class Version(Frozen):
    """An attribute that is a version, as the driver wrote it."""

    text: str


AttributeValue = str | int | bool | Version | None
"""None: a value of a kind that Kubernetes 1.36 does not read by default, such as a list."""


class ListedTaint(Frozen):
    """What keeps claims away from a device: of effect NoSchedule and NoExecute, not None."""

    key: str
    effect: str
    value: str = ""


class CapacityPolicy(Frozen):
    """How much of a capacity a request takes; `default` without a word of the request."""

    default: Fraction | None = None
    values: tuple[Fraction, ...] = ()
    least: Fraction | None = None
    most: Fraction | None = None
    step: Fraction | None = None
    has_range: bool = False


class ListedCapacity(Frozen):
    """How much a device has of something."""

    value: Fraction
    policy: CapacityPolicy | None = None


class CounterUse(Frozen):
    """What a device takes of a counter set of its pool."""

    counter_set: str
    counters: Mapping[str, Fraction]


class NodeChoice(Frozen):
    """For which nodes a slice or a device is; `selector` is a NodeSelector as it was written."""

    node: str = ""
    every: bool = False
    selector: Mapping[str, object] | None = None

    @property
    def is_set(self) -> bool:
        """Whether it names any node."""
        return bool(self.node) or self.every or self.selector is not None


class ListedDevice(Frozen):
    """A device. Names of attributes and capacities without a domain are its driver's own."""

    name: str
    attributes: Mapping[str, AttributeValue] = {}
    capacity: Mapping[str, ListedCapacity] = {}
    taints: tuple[ListedTaint, ...] = ()
    uses: tuple[CounterUse, ...] = ()
    shared: bool = False  # allowMultipleAllocations
    nodes: NodeChoice = NodeChoice()
    has_bindings: bool = False  # bindingConditions


class ListedSlice(Frozen):
    """A ResourceSlice; `slices` is how many its pool has."""

    name: str
    driver: str
    pool: str
    generation: int
    slices: int
    nodes: NodeChoice
    per_device: bool = False  # perDeviceNodeSelection
    devices: tuple[ListedDevice, ...] = ()
    counter_sets: tuple[tuple[str, Mapping[str, Fraction]], ...] = ()
