"""What `kube-rdma migrate` sees of a cluster or of a node, and the way that it prints.

migrate/node reads a MigrationView, migrate/rules turns it into a TakeoverPlan,
migrate/views shows one. Nothing here writes to a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from kube_base.frozen import Frozen

Document: TypeAlias = Mapping[str, Any]


class StartingPoint(StrEnum):
    """Where a migration begins: which plugin serves the nodes, and who owns its DaemonSet."""

    SHARED = "shared-plugin"  # k8s-rdma-shared-dev-plugin, as its own manifests install it
    SCC = "scc"  # the plugin of Alibaba's SCC document: k8s-rdma-sriov-dev-plugin in mode hca
    ACK = "ack"  # ACK's component
    VKE = "vke"  # VKE's component
    NVIDIA_2020 = "nvidia-operator-0.1"  # a NicClusterPolicy of a namespace
    NVIDIA = "nvidia-operator"  # a NicClusterPolicy of the cluster, or a NicNodePolicy


class PluginDaemonSet(Frozen):
    """A DaemonSet that looks like a device plugin."""

    namespace: str
    name: str
    spec: Document  # as it was read
    owner: tuple[str, str] | tuple[()] = ()  # kind and name of its controller, empty without one
    is_ours: bool = False  # it is an agent of kube-rdma
    ready: int = 0  # pods; whoever may create a DaemonSet writes all else of it

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def pod(self) -> Document:
        """The spec of its pods."""
        template: Document = self.spec.get("template") or {}
        return template.get("spec") or {}

    @property
    def image(self) -> str:
        """The image of its first container."""
        return next((str(one.get("image", "")) for one in self.pod.get("containers") or ()), "")

    @property
    def labels(self) -> str:
        """Which pods are its own, as `kubectl -l` takes it."""
        chosen = (self.spec.get("selector") or {}).get("matchLabels") or {}
        return ",".join(f"{key}={value}" for key, value in sorted(chosen.items()))


class VendorPolicy(Frozen):
    """A policy of NVIDIA's network operator; `section` is what it says of the shared plugin.

    `namespace` is empty for a policy of the whole cluster; `section` is None without one.
    """

    kind: str
    namespace: str
    name: str
    field: str = ""  # of spec: devicePlugin, or rdmaSharedDevicePlugin
    section: Document | None = None


class MigratingNode(Frozen):
    """A node: `offered` is by resource what its allocatable shows, as it is written there (1k)."""

    name: str
    offered: Mapping[str, str] = {}
    mark: str = ""  # its label kube-rdma.io/agent
    unschedulable: bool = False


class HolderPod(Frozen):
    """A pod that asks for `resources` and runs on a node, or is about to."""

    namespace: str
    name: str
    node: str
    resources: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class PluginConfig(Frozen):
    """The text that a plugin reads, and by resource how many shares kube-rdma makes of it.

    A number is None where it depends on the node's cards.
    """

    text: str
    shares: Mapping[str, int | None]
    warnings: tuple[str, ...] = ()


class MigrationView(Frozen):
    """All that is read. `operators` are Deployments of NVIDIA's operator that have a ready pod.

    `configs` are the ConfigMaps of plugins by namespace and name; `unread` are sentences about what
    could not be read and is not needed.
    """

    plugins: tuple[PluginDaemonSet, ...] = ()
    policies: tuple[VendorPolicy, ...] = ()
    nodes: tuple[MigratingNode, ...] = ()
    holders: tuple[HolderPod, ...] = ()
    operators: tuple[str, ...] = ()
    configs: Mapping[str, PluginConfig] = {}
    unread: tuple[str, ...] = ()


class MigrationSource(Frozen):
    """The plugin that nodes go away from."""

    start: StartingPoint
    plugin: PluginDaemonSet
    policy: VendorPolicy | None = None
    config: PluginConfig | None = None


class MigrationOptions(Frozen):
    """What the asker wants: one of several plugins, an image, more values of an installation."""

    daemonset: str = ""  # NAMESPACE/NAME
    image: str = ""  # REPOSITORY[:TAG]
    values: str = ""  # a file


class PlanStep(Frozen):
    """Commands to run one after the other, and why; `node` where they are about one node."""

    title: str
    why: str
    commands: tuple[str, ...]
    node: str = ""


class TakeoverPlan(Frozen):
    """The way there and the way back; without a `source` nothing is to do, and `notes` say why."""

    source: MigrationSource | None
    resources: tuple[str, ...] = ()
    nodes: tuple[MigratingNode, ...] = ()
    holders: tuple[HolderPod, ...] = ()
    steps: tuple[PlanStep, ...] = ()
    back: tuple[PlanStep, ...] = ()
    notes: tuple[str, ...] = ()


class SharingPod(Frozen):
    """A pod of a node that asks for resources: the most that a container asks of each, by name.

    `by_claim` are those that it got by claims; the others it has of the device plugin.
    """

    namespace: str
    name: str
    asked: Mapping[str, int]
    by_claim: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class ServingView(Frozen):
    """What `kube-rdma migrate node` reads of a node, to go from shares to claims and back.

    `resources` are those of the node's pools, `whole` those of which a share stands for the pool.
    `classes` are DeviceClasses by the resource name that they have. `serves_claims`: an agent of
    this cluster has the option.
    """

    node: MigratingNode
    kubelet_version: str
    resources: tuple[str, ...]
    whole: frozenset[str]
    classes: Mapping[str, str]
    serves_claims: bool
    pods: tuple[SharingPod, ...] = ()


class ServingPlan(Frozen):
    """The way of a node from the device plugin to claims, and back."""

    view: ServingView
    steps: tuple[PlanStep, ...]
    back: tuple[PlanStep, ...]
    notes: tuple[str, ...] = ()
