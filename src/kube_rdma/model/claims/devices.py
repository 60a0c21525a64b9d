"""Devices of dynamic resource allocation: as drivers publish them, and as containers hold them.

adapters/cluster/kinds reads slices and claims, adapters/kubelet what containers hold; claims/rules
joins them with the survey. The three names of a device are what KEP-4381 makes it unique by.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction

from kube_base.frozen import Frozen

DRIVER = "rdma.kube-rdma.io"
"""The name of kube-rdma's own driver, in slices, claims and their configuration."""


class SliceDevice(Frozen):
    """A device of a ResourceSlice: its driver, its pool, and its name in the pool."""

    driver: str  # gpu.nvidia.com
    pool: str  # often the node's name
    name: str  # gpu-0


class PublishedCard(Frozen):
    """What a driver's attributes say of a network card; "" is not said.

    `name` is the device's in its pool, `pci` its function in the form of sysfs, `rdma` its RDMA
    device and `interface` its interface as the driver saw them before a pod had the card. `capable`
    says whether it has RDMA, None where the driver does not.
    """

    name: str
    pci: str = ""
    rdma: str = ""  # mlx5_0
    interface: str = ""  # ens1f0np0
    capable: bool | None = None


class DeviceSlice(Frozen):
    """A ResourceSlice of a node, as far as it says where devices sit.

    `addresses` has for each device the PCI addresses among its attributes, lower case, in the form
    of sysfs (``0000:81:00.0``). A slice counts only while no other of its pool has a higher
    `generation`. `cards` are those of its devices that may be network cards.
    """

    driver: str
    pool: str
    generation: int
    addresses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cards: tuple[PublishedCard, ...] = ()


class ClaimedDevice(Frozen):
    """A device that a container holds by a ResourceClaim, as the kubelet knows it."""

    namespace: str
    pod: str
    container: str
    device: SliceDevice


class ClaimedPod(Frozen):
    """A pod that names ResourceClaims: the claims by name, and the extended resources it asks for.

    A claim that is not made yet has no name and is left out.
    """

    namespace: str
    name: str
    claims: tuple[str, ...]
    resources: tuple[str, ...] = ()


# What ResourceSlices of any driver list, with all that the scheduler looks at.


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


# What this node offers to claims: OfferedCard as a pool has it, OfferedDevice as a slice says it.

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


# How a device of the driver is: what the kubelet writes into the status of pods that hold it.


class DeviceHealth(Frozen):
    """One device of a pool; `healthy` None: it cannot be told. `message`: why it is not well."""

    pool: str
    device: str
    healthy: bool | None
    message: str = ""
