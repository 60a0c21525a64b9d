"""A NicClusterPolicy and its drivers: sections, images, nodes, acts of an upgrade, states.

    policy ─► contract_of ─► operator/rules/driver_sets
    nodes, pods ─► operator/rules/upgrade ─► acts

The contracts at the end are those of NVIDIA's operator at its tags: manifests/sta(g|t)e-ofed-driver
and state_ofed.go of Mellanox/network-operator. An image's name and version tell its contract, as
no field of a policy does.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from kube_base.frozen import Frozen, field
from kube_rdma.model.kubernetes import NamespacedName

# Changes of drivers: the facts of each node, and the acts.

DRIVER_FIELDS = "kube-rdma.io/driver-fields"  # annotation of drivers' pods: another is outdated


class DrainPolicy(Frozen):
    """The rule for which holders of RDMA shares may be evicted; the others are waited for."""

    selector: str = ""  # a label selector of pods, "" for all
    force: bool = False  # also pods that no controller would make anew
    delete_empty_dir: bool = False  # also pods whose emptyDir volumes would be lost
    seconds: int = 300  # until evictions end, 0 never


class UpgradePolicy(Frozen):
    """The way in which a policy wants drivers to be upgraded."""

    automatic: bool = False  # about other images alone: first loads and removals go on without it
    parallel: int = 1  # nodes at a time, 0 for all
    drain: DrainPolicy | None = None
    wait_for: str = ""  # a label selector of pods whose end is waited for besides

    @property
    def drains(self) -> DrainPolicy | None:
        """Return the policy's drain if upgrades are automatic, else None."""
        return self.drain if self.automatic else None


class DriverPod(Frozen):
    """A pod of a driver DaemonSet on a node."""

    name: str
    uid: str
    current: bool  # of the DaemonSet's present template
    ready: bool
    deleting: bool = False
    # Its end takes the cards' driver away; False: one on top, as of peer memory.
    unloads: bool = True


class DriverPlace(Frozen):
    """A node's label that decides whether a driver runs on the node; "" means no driver."""

    key: str
    has: str = ""
    wants: str = ""
    unloads: bool = True  # as of its pods


class ShareHolder(NamespacedName):
    """A pod that holds shares of RDMA cards on its node."""

    uid: str
    deleting: bool = False
    # Not to be evicted: it would be there again at once (of a DaemonSet, or of a file on the node),
    # or the policy's drain leaves it alone.
    stays: bool = False


class UpgradeNode(Frozen):
    """A node with its drivers' pods, and with what is in the way of changing its drivers."""

    name: str
    pods: tuple[DriverPod, ...] = ()
    missing: bool = False  # a driver's pod that should be there is not
    holders: tuple[ShareHolder, ...] = ()
    closed: bool = False  # it takes no pods, by whoever's will
    ours: bool = False  # the operator closed it
    changing: bool = False  # the operator closed it for a change of its own
    carries: tuple[str, ...] = ()  # what the node needs its cards for
    places: tuple[DriverPlace, ...] = ()  # the driver of the cards first
    away: bool = False  # it is not ready
    closed_seconds: float = 0.0  # since it was closed for a change
    reported: bool = True  # else nobody knows what it carries


class UpgradeStage(StrEnum):
    """The stage of a node in the change of its drivers."""

    CURRENT = "current"
    STARTING = "starting"  # its driver ends or begins
    CLOSED = "closed"  # its holders are being evicted
    WAITING_FOR_PODS = "waiting for pods"
    WAITING_FOR_OTHERS = "waiting for other nodes"
    REFUSED = "refused"
    AWAY = "away"  # the node is not ready
    MANUAL = "manual"  # the policy has people end the drivers


class NodeStage(Frozen):
    """The stage of a node's change of drivers, with a sentence if somebody may have to act."""

    node: str
    stage: UpgradeStage
    sentence: str = ""


class Close(Frozen):
    """Act: cordon a node, for a `change` of its drivers or while one of them starts."""

    node: str
    change: bool = True


class Open(Frozen):
    """Act: uncordon a node."""

    node: str


class Evict(Frozen):
    """Act: evict a pod that holds shares of RDMA cards, as kubectl drain does."""

    node: str
    pod: ShareHolder


class EndDrivers(Frozen):
    """Act: end drivers' pods of a node, from the top down; their DaemonSets make new ones."""

    node: str
    pods: tuple[DriverPod, ...]


class LabelDrivers(Frozen):
    """Act: change the node's labels by which drivers' DaemonSets choose it; None removes one."""

    node: str
    labels: tuple[tuple[str, str | None], ...]


UpgradeAct = Close | Open | Evict | EndDrivers | LabelDrivers


class UpgradePlan(Frozen):
    """The acts that are due for all nodes, in order, and the stage of each node."""

    acts: tuple[UpgradeAct, ...] = ()
    stages: tuple[NodeStage, ...] = ()


class UpgradeState(Frozen):
    """The state of the upgrade of drivers on all nodes."""

    current: bool
    reason: str  # a word for programs
    message: str = ""  # a sentence


# A NicClusterPolicy, and how far it has come on the nodes of a cluster.


class ComponentName(StrEnum):
    """The parts of a NicClusterPolicy that kube-rdma deploys, by their names in its status."""

    DRIVER = "state-OFED"
    DEVICE_PLUGIN = "state-RDMA-device-plugin"
    SRIOV_PLUGIN = "state-SRIOV-device-plugin"
    PEER_DRIVER = "state-NV-Peer"


PLUGINS = (ComponentName.DEVICE_PLUGIN, ComponentName.SRIOV_PLUGIN)


class AppliedState(StrEnum):
    """The state of a part of a policy, as the status spells it; an unwanted part is ignored."""

    READY = "ready"
    NOT_READY = "notReady"
    IGNORE = "ignore"
    ERROR = "error"


class ComponentImage(Frozen):
    """The image of a component in a policy: repository, name and version."""

    repository: str
    image: str
    version: str  # or sha256: with 64 digits, which names one image, whatever its tag

    @property
    def digest(self) -> str:
        """Return the image's version if it is a digest, else ""."""
        return self.version if ":" in self.version else ""


class PolicyDriver(Frozen):
    """The driver for the cards that a policy wants on its nodes."""

    image: ComponentImage
    env: tuple[dict[str, object], ...] = ()  # of its container, as in a pod
    grace_seconds: int = 300  # until a driver that ends is killed
    precompiled: bool = False  # an image for each kernel, of those that have both
    # Fields of probes that are not to have their usual values, by the name of the probe.
    probes: dict[str, dict[str, int]] = field(default_factory=dict)
    resources: dict[str, Any] | None = None  # requests and limits of its container


class DevicePluginSection(Frozen):
    """A device plugin that a policy wants."""

    image: ComponentImage
    config: str | None  # checked already; None: its ConfigMap is the administrator's
    networks: bool = False  # the image is kube-rdma's and puts networks into pods besides
    resources: tuple[str, ...] = ()  # that the configuration offers
    requirements: dict[str, Any] | None = None  # of its container, as in a pod


class PeerDriverSection(Frozen):
    """The peer-memory driver that a policy wants."""

    image: ComponentImage
    gpu_driver_path: str = ""  # of the GPU driver's files on a node


class PolicyNote(Frozen):
    """A remark that a field of a policy has no effect, or one that people may not expect."""

    path: tuple[str | int, ...]  # below spec
    sentence: str  # it names the field
    remedy: str = ""

    def __str__(self) -> str:
        return self.sentence


class ClusterPolicy(Frozen):
    """A NicClusterPolicy. A section that is None is not wanted."""

    name: str
    namespace: str
    uid: str
    created: str = ""  # RFC 3339
    driver: PolicyDriver | None = None
    device_plugin: DevicePluginSection | None = None
    sriov_plugin: DevicePluginSection | None = None
    peer_driver: PeerDriverSection | None = None
    upgrades: UpgradePolicy = UpgradePolicy()
    pull_secrets: tuple[str, ...] = ()
    tolerations: tuple[dict[str, object], ...] = ()
    affinity: dict[str, Any] | None = None  # to nodes, as in a pod; only what is required counts
    notes: tuple[PolicyNote, ...] = ()  # about fields without effect

    @property
    def plugins(self) -> tuple[DevicePluginSection, ...]:
        """Return the device plugins that the policy wants."""
        return tuple(filter(None, (self.device_plugin, self.sriov_plugin)))

    @property
    def is_empty(self) -> bool:
        """Return whether the policy wants nothing that kube-rdma deploys."""
        return not (self.driver or self.peer_driver or self.plugins)


class PolicyNode(Frozen):
    """A node with the labels by which a driver's image is chosen; "" stands for a missing one."""

    name: str
    architecture: str = ""  # amd64
    distribution: str = ""  # ubuntu
    release: str = ""  # 18.04
    kernel: str = ""  # 4.15.0-109-generic
    has_cards: bool = False
    has_gpus: bool = False
    closed: bool = False  # it takes no pods
    ours: bool = False  # the operator closed it
    changing: bool = False  # for a change of its drivers
    closed_since: str = ""  # RFC 3339, of a change
    away: bool = False  # it is not ready
    labels: tuple[tuple[str, str], ...] = ()
    addresses: tuple[str, ...] = ()  # those by which the API server knows it


class ComponentStatus(Frozen):
    """The state of one part of a policy."""

    component: ComponentName
    state: AppliedState
    reason: str  # a word for programs
    message: str = ""  # a sentence


class DaemonSetProgress(Frozen):
    """The numbers of pods of a DaemonSet that are wanted and available, by its status."""

    desired: int = 0
    available: int = 0
    current: bool = True  # its status is of this spec
    unpulled: str = ""  # the image that the kubelet of some node cannot pull


# Driver images: their names, and what they need of their pod, by release.

VENDOR_LABEL = "nvidia.com/ofed-driver"  # by it the vendor's own drivers keep off a node
_FIRST_NAME = "ofed-driver"
_LATER_NAMES = ("mofed", "doca-driver")
_NUMBERS = re.compile(r"(\d{1,4})\.(\d{1,4})(?:[.-]|$)")


class HostFolder(Frozen):
    """A folder or file of the node, and its path in the container."""

    name: str
    host: str
    mount: str
    propagation: str = ""
    read_only: bool = False
    kind: str = "DirectoryOrCreate"  # as of a hostPath


class DriverContract(Frozen):
    """The needs of a driver image of certain releases: the form of its name, and its pod."""

    releases: str
    form: str
    container: str
    ready: str  # the file that an image makes when its modules are loaded
    folders: tuple[HostFolder, ...]
    kernel_form: str = ""  # of images built for one kernel; "": `form` has it, or there are none
    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


DRIVER_FILES = "/run/mellanox/drivers"  # headers and modules, for the peer-memory driver
_SHARED = HostFolder("run-mofed", DRIVER_FILES, DRIVER_FILES, "Bidirectional")
_NETWORK = HostFolder("etc-network", "/etc/network", "/etc/network")
_OF_1 = (
    _SHARED,
    _NETWORK,
    HostFolder("host-etc", "/etc", "/host/etc", kind=""),
    HostFolder("host-usr", "/usr", "/host/usr", kind=""),
    HostFolder("host-udev", "/lib/udev", "/host/lib/udev", kind=""),
)
_OF_23 = (
    *_OF_1,
    HostFolder("host-run-udev", "/run/udev", "/run/udev", read_only=True, kind=""),
    HostFolder("host-lib-modules", "/lib/modules", "/host/lib/modules", kind=""),
)
_INVENTORY = "/mnt/drivers-inventory"
_IB_CORE = "/etc/modprobe.d/ib_core.conf"
_OF_26 = (
    *_OF_23,
    HostFolder("drivers-inventory", "/var/opt/mofed-container/inventory", _INVENTORY),
    HostFolder("host-ib-core", _IB_CORE, _IB_CORE, kind="FileOrCreate"),
    HostFolder("dev-infiniband", "/dev/infiniband", "/dev/infiniband"),
)
_BY_VERSION = "{repository}/{image}-{version}"
_BY_TAG = "{repository}/{image}:{version}"
_LABELS = ((VENDOR_LABEL, ""),)

OF_0_1 = DriverContract(
    "0.1.0",
    f"{_BY_VERSION}:{{architecture}}-{{system}}-kver{{kernel}}",
    "ofed-driver-container",
    "/.driver-ready",
    (_SHARED, _NETWORK),
)
OF_1 = DriverContract(
    "0.2 to 1.2",
    f"{_BY_VERSION}:{{system}}-{{architecture}}",
    "mofed-container",
    "/.driver-ready",
    _OF_1,
    labels=_LABELS,
)
OF_23 = DriverContract(
    "1.3 to 24.1",
    f"{_BY_TAG}-{{system}}-{{architecture}}",
    "mofed-container",
    "/.driver-ready",
    _OF_23,
    env=(("CREATE_IFNAMES_UDEV", "true"),),
    labels=_LABELS,
)
OF_26 = DriverContract(
    "24.4 to 26.7",
    f"{_BY_TAG}-{{system}}-{{architecture}}",
    "mofed-container",
    f"{DRIVER_FILES}/.driver-ready",
    _OF_26,
    kernel_form=f"{_BY_TAG}-{{kernel}}-{{system}}-{{architecture}}",
    env=(
        ("CREATE_IFNAMES_UDEV", "true"),
        ("NVIDIA_NIC_DRIVERS_INVENTORY_PATH", _INVENTORY),
    ),
    labels=_LABELS,
)
CONTRACTS = (OF_0_1, OF_1, OF_23, OF_26)
CONTAINERS = tuple(dict.fromkeys(row.container for row in CONTRACTS))

# From which version of an image a row counts: 24.04-0.4.0.0-0 moved the file (a92dae57 of
# Mellanox/network-operator), 5.7-0.1.2.0 the version (newMofedImageFormatVersion of its v1.3.0).
_SINCE = (((24, 4), OF_26), ((5, 7), OF_23))


def contract_of(image: ComponentImage) -> DriverContract:
    """Return the DriverContract of an image, by its name, else by its version.

    A digest says no version: then doca-driver has the last contract, and mofed the one before. An
    image of another name, as people build them, has the first unless its version is 5.7 or later.
    """
    if image.image == _FIRST_NAME:
        return OF_0_1
    if image.digest:
        return {"doca-driver": OF_26, "mofed": OF_23}.get(image.image, OF_0_1)
    if image.version.startswith("doca"):  # doca3.5.0-26.07-0.7.0.0-0, since 25.7
        return OF_26
    numbers = _NUMBERS.match(image.version)
    version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    for first, row in _SINCE:
        if version >= first:
            return row
    return OF_1 if image.image in _LATER_NAMES else OF_0_1
