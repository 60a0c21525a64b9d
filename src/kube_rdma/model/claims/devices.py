"""Devices of dynamic resource allocation: as drivers publish them, and as containers hold them.

adapters/cluster/kinds/resource_api decodes slices into these values, adapters/kubelet reads what
containers hold; claims/rules and pools/rules join them with the survey. Fields of slices are those
of resource.k8s.io/v1 (k8s.io/api v0.36.3, resource/v1/types.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any

from kube_base.frozen import Frozen, field

DRIVER = "rdma.kube-rdma.io"
"""The name of kube-rdma's own driver, in slices, claims and their configuration."""


class SliceDevice(Frozen):
    """The name of a device: its driver, its pool, and its name in the pool (unique by KEP-4381)."""

    driver: str  # gpu.nvidia.com
    pool: str  # often the node's name
    name: str  # gpu-0


class ClaimedDevice(Frozen):
    """A device that a container holds by a ResourceClaim, as the kubelet lists it."""

    namespace: str
    pod: str
    container: str
    device: SliceDevice


class PublishedCard(Frozen):
    """A network card as the attributes of its device describe it; "" means not published."""

    name: str  # the device's name in its pool
    pci: str = ""  # its function, in the form of sysfs
    rdma: str = ""  # mlx5_0, as the driver saw it before a pod had the card
    interface: str = ""  # ens1f0np0, seen at the same time
    capable: bool | None = None  # of RDMA; None: the driver does not say


class DeviceSlice(Frozen):
    """The part of a node's ResourceSlice that says where devices sit; bundles of doctor have it."""

    driver: str
    pool: str
    generation: int  # a slice counts only while no other of its pool has a higher one
    # For each device the PCI addresses among its attributes, in the form of sysfs.
    addresses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cards: tuple[PublishedCard, ...] = ()  # devices that may be network cards


# ResourceSlices of any driver, with all that the scheduler looks at.


class DeviceAttribute(Frozen, omit_defaults=True):
    """The value of a device's attribute; the field of its type is set.

    No field is set for a value of another type, such as a list.
    """

    string: str | None = None
    number: int | None = field(default=None, name="int")
    truth: bool | None = field(default=None, name="bool")
    version: str | None = None

    @classmethod
    def of(cls, value: str | int) -> DeviceAttribute:
        """Return the attribute of a text, a number or a truth value."""
        if isinstance(value, bool):  # before int, which it is too
            return cls(truth=value)
        return cls(number=value) if isinstance(value, int) else cls(value)

    @property
    def value(self) -> str | int | None:
        """Return the attribute's value without its type; None if no known type is set."""
        values = (self.version, self.number, self.truth, self.string)
        return next((value for value in values if value is not None), None)


Attributes = Mapping[str, DeviceAttribute]
"""Attributes of a device by name; a name without a domain is of the driver's own."""


class TaintEffect(StrEnum):
    """The effect of a device's taint on claims."""

    NONE = "None"  # it only informs
    NO_SCHEDULE = "NoSchedule"  # no new claim gets the device
    NO_EXECUTE = "NoExecute"  # and pods that have it end


class DeviceTaint(Frozen, rename="camel", omit_defaults=True):
    """A taint of a device."""

    key: str
    effect: str  # a TaintEffect, or another text
    value: str = ""
    time_added: str = ""  # RFC 3339; empty until the API server has set it


class DeviceSelector(Frozen):
    """The devices that a DeviceTaintRule is for: all fields that are set have to agree."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Frozen, rename="camel"):
    """The spec of a DeviceTaintRule: a taint that an administrator adds to devices (KEP-5055)."""

    taint: DeviceTaint
    device_selector: DeviceSelector | None = None  # None: of no device


class TaintRules(Frozen):
    """The DeviceTaintRules of a cluster that are looked at."""

    rules: Mapping[str, TaintRuleSpec] = {}  # by name
    remark: str = ""  # a sentence on rules that were not read, or may not count


class RuleTaint(DeviceTaint):
    """A taint that a device has by a DeviceTaintRule of this name; slices do not have it."""

    rule: str = ""


class CapacityRange(Frozen, omit_defaults=True):
    """The range of amounts of a capacity that a request may take."""

    min: Fraction | None = None
    max: Fraction | None = None
    step: Fraction | None = None  # None: any amount between the ends


class CapacityPolicy(Frozen, rename="camel", omit_defaults=True):
    """The amounts of a capacity that requests take."""

    default: Fraction | None = None  # where the request names none; None: all of it
    valid_values: tuple[Fraction, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Frozen, rename="camel", omit_defaults=True):
    """The amount of something that a device has."""

    value: Fraction
    request_policy: CapacityPolicy | None = None


class Counter(Frozen):
    """The value of a device counter, or the part of it that a device takes."""

    value: Fraction


class CounterSet(Frozen):
    """Counters that devices of a pool share."""

    name: str
    counters: Mapping[str, Counter] = {}


class CounterUse(Frozen, rename="camel"):
    """The part of a counter set of its pool that a device takes."""

    counter_set: str
    counters: Mapping[str, Counter] = {}


class NodeChoice(Frozen, rename="camel", omit_defaults=True, kw_only=True):
    """The nodes on which a slice or a device can be used."""

    node_name: str | None = None
    all_nodes: bool | None = None
    node_selector: Mapping[str, Any] | None = None  # a NodeSelector as it was written

    @property
    def is_set(self) -> bool:
        """Return whether the choice names any node."""
        return bool(self.node_name or self.all_nodes) or self.node_selector is not None


class ListedDevice(NodeChoice):
    """A device as a ResourceSlice lists it.

    Its choice of nodes only counts in a slice with `per_device`.
    """

    name: str = ""
    attributes: Attributes = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = {}  # names as of attributes
    shared: bool | None = field(default=None, name="allowMultipleAllocations")
    taints: tuple[DeviceTaint, ...] = ()
    uses: tuple[CounterUse, ...] = field(default=(), name="consumesCounters")
    binding_conditions: tuple[str, ...] | None = None


class SlicePool(Frozen, rename="camel"):
    """The pool that a slice is a part of."""

    name: str = ""
    generation: int = 0  # a slice counts only while no other of its pool has a higher one
    slices: int = field(default=1, name="resourceSliceCount")  # that the pool has at its generation


class SliceSpec(NodeChoice):
    """The spec of a ResourceSlice."""

    driver: str = ""
    pool: SlicePool = SlicePool()
    devices: tuple[ListedDevice, ...] = ()
    per_device: bool | None = field(default=None, name="perDeviceNodeSelection")
    counter_sets: tuple[CounterSet, ...] = field(default=(), name="sharedCounters")


class ClaimFeature(StrEnum):
    """A part of slices that an API server drops while its feature gate is off.

    The values are the names of the gates (pkg/features/kube_features.go of Kubernetes).
    """

    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DEVICE_TAINTS = "DRADeviceTaints"


class ResourceSlice(Frozen):
    """A ResourceSlice, as the API server has it or as it is to be written."""

    name: str
    spec: SliceSpec
    owner: str = ""  # the uid of the Node object that it is removed with
    without: frozenset[ClaimFeature] = frozenset()  # that kube-rdma wrote it without


# The cards of this node that claims can get, before they are laid into devices of slices.


class OfferedCard(Frozen):
    """A device that kube-rdma publishes: a card of a pool, or the whole pool."""

    name: str
    group: str  # the physical card: what changes together
    attributes: Attributes
    slots: int = 1  # pods that a shared one is for at a time
    shared: bool = False
    taints: tuple[DeviceTaint, ...] = ()


class DeviceHealth(Frozen):
    """The health of a device, as the agent reports it to the kubelet."""

    pool: str
    device: str
    healthy: bool | None  # None: it is not known
    message: str = ""  # why it is not healthy
