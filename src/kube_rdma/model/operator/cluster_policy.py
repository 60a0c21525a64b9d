"""What a NicClusterPolicy wants on the nodes of a cluster, and how far that has come.

operator/documents/nic_cluster_policy reads one, operator/rules makes DaemonSets of it and judges
them, operator writes what came of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from kube_base.frozen import Frozen, field
from kube_rdma.model.operator.driver_upgrade import UpgradePolicy


class ComponentName(StrEnum):
    """The parts of a policy, by the names that its status has for them; in the order of v0.1.0.

    Later releases put the SR-IOV plugin behind the shared one.
    """

    DRIVER = "state-OFED"
    DEVICE_PLUGIN = "state-RDMA-device-plugin"
    SRIOV_PLUGIN = "state-SRIOV-device-plugin"
    PEER_DRIVER = "state-NV-Peer"


PLUGINS = (ComponentName.DEVICE_PLUGIN, ComponentName.SRIOV_PLUGIN)


class AppliedState(StrEnum):
    """How far a part is, as the status spells it; a part that nobody asks for is ignored."""

    READY = "ready"
    NOT_READY = "notReady"
    IGNORE = "ignore"
    ERROR = "error"


class ComponentImage(Frozen):
    """An image as a policy names it: the three parts of which each component makes its tag.

    A version may be a digest, ``sha256:`` with 64 digits: it names one image, whatever its tag.
    """

    repository: str
    image: str
    version: str

    @property
    def digest(self) -> str:
        """The version, where it is one."""
        return self.version if ":" in self.version else ""


class PolicyDriver(Frozen):
    """The driver of the cards; `env` are entries of its container, as in a pod.

    `probes` has fields of the container's probes that are not to have their usual values, by the
    name of the probe, and `resources` its requests and limits.
    """

    image: ComponentImage
    env: tuple[dict[str, object], ...] = ()
    grace_seconds: int = 300  # until a driver that ends is killed
    precompiled: bool = False  # an image for each kernel, of those that have both
    probes: dict[str, dict[str, int]] = field(default_factory=dict)
    resources: dict[str, Any] | None = None


class DevicePluginSection(Frozen):
    """A device plugin; `config` is the text of its configuration, checked already.

    None: its ConfigMap is the administrator's. With `networks` the image is kube-rdma's and puts
    networks into pods besides.
    """

    image: ComponentImage
    config: str | None
    networks: bool = False
    resources: tuple[str, ...] = ()  # that the configuration offers
    requirements: dict[str, Any] | None = None  # of its container, as in a pod


class PeerDriverSection(Frozen):
    """The peer-memory driver; `gpu_driver_path` is where the GPU driver's files are on a node."""

    image: ComponentImage
    gpu_driver_path: str = ""


class PolicyNote(Frozen):
    """A sentence about a field that has no effect, or another than people may think.

    The sentence names the field.
    """

    path: tuple[str | int, ...]  # below spec
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        """As people read it."""
        return self.sentence


class ClusterPolicy(Frozen):
    """One policy. A section that is None is not wanted; `notes` name fields without effect."""

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
    notes: tuple[PolicyNote, ...] = ()

    @property
    def plugins(self) -> tuple[DevicePluginSection, ...]:
        """The device plugins that it wants."""
        return tuple(filter(None, (self.device_plugin, self.sriov_plugin)))

    @property
    def is_empty(self) -> bool:
        """Whether it wants nothing that kube-rdma deploys."""
        return not (self.driver or self.peer_driver or self.plugins)


class PolicyNode(Frozen):
    """A node as its labels tell it: a driver's image is chosen by them; "" where one is missing."""

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
    """How far one part of a policy is; `reason` is a word for programs, `message` a sentence."""

    component: ComponentName
    state: AppliedState
    reason: str
    message: str = ""


class DaemonSetProgress(Frozen):
    """What the API server counts of a DaemonSet's pods; `current`: its status is of this spec.

    `unpulled` says which image the kubelet of some node cannot pull, "" where there is none.
    """

    desired: int = 0
    available: int = 0
    current: bool = True
    unpulled: str = ""
