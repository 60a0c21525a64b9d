"""The evidence of `kube-rdma migrate`, a cluster or a node, and the plans made of it.

migrate/node reads a MigrationView, migrate/rules turns it into a TakeoverPlan,
migrate/views shows one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from kube_base.frozen import Frozen
from kube_rdma.model.kubernetes import NamespacedName

Document: TypeAlias = Mapping[str, Any]


class StartingPoint(StrEnum):
    """The device plugin that serves the nodes before a migration, and how it was installed."""

    SHARED = "shared-plugin"  # k8s-rdma-shared-dev-plugin, as its own manifests install it
    SCC = "scc"  # the plugin of Alibaba's SCC document: k8s-rdma-sriov-dev-plugin in mode hca
    ACK = "ack"  # ACK's component
    VKE = "vke"  # VKE's component
    NVIDIA_2020 = "nvidia-operator-0.1"  # a NicClusterPolicy of a namespace
    NVIDIA = "nvidia-operator"  # a NicClusterPolicy of the cluster, or a NicNodePolicy


class PluginDaemonSet(NamespacedName):
    """A DaemonSet, with what tells whether it is a device plugin."""

    spec: Document  # as it was read
    owner: tuple[str, str] | tuple[()] = ()  # kind and name of its controller, empty without one
    is_ours: bool = False  # it is an agent of kube-rdma
    ready: int = 0  # pods; whoever may create a DaemonSet writes all else of it

    @property
    def pod(self) -> Document:
        """Return the spec of the DaemonSet's pods."""
        template: Document = self.spec.get("template") or {}
        return template.get("spec") or {}

    @property
    def image(self) -> str:
        """Return the image of the first container of the DaemonSet's pods."""
        return next((str(one.get("image", "")) for one in self.pod.get("containers") or ()), "")

    @property
    def labels(self) -> str:
        """Return the matchLabels of the DaemonSet's selector, as `kubectl -l` takes them."""
        chosen = (self.spec.get("selector") or {}).get("matchLabels") or {}
        return ",".join(f"{key}={value}" for key, value in sorted(chosen.items()))


class VendorPolicy(Frozen):
    """A policy of NVIDIA's network operator."""

    kind: str
    namespace: str  # "" for a policy of the whole cluster
    name: str
    field: str = ""  # of spec: devicePlugin, or rdmaSharedDevicePlugin
    section: Document | None = None  # the value of this field, None without one


class MigratingNode(Frozen):
    """A node of a cluster, before or during its migration from another plugin."""

    name: str
    offered: Mapping[str, str] = {}  # its allocatable by resource, as it is written there (1k)
    mark: str = ""  # its label kube-rdma.io/agent
    unschedulable: bool = False


class HolderPod(NamespacedName):
    """A pod that asks for `resources` and is on a node."""

    node: str
    resources: tuple[str, ...] = ()


class PluginConfig(Frozen):
    """The configuration of a device plugin, with the shares that kube-rdma would make of it."""

    text: str
    # By resource the shares that kube-rdma makes of it; None where the node's cards decide.
    shares: Mapping[str, int | None]
    warnings: tuple[str, ...] = ()


class MigrationView(Frozen):
    """A cluster as it was read for `kube-rdma migrate plan`."""

    plugins: tuple[PluginDaemonSet, ...] = ()
    policies: tuple[VendorPolicy, ...] = ()
    nodes: tuple[MigratingNode, ...] = ()
    holders: tuple[HolderPod, ...] = ()
    operators: tuple[str, ...] = ()  # Deployments of NVIDIA's operator that have a ready pod
    configs: Mapping[str, PluginConfig] = {}  # of plugins, by namespace/name of the ConfigMap
    unread: tuple[str, ...] = ()  # sentences about unread parts that no plan needs


class MigrationSource(Frozen):
    """The plugin that a migration moves nodes away from."""

    start: StartingPoint
    plugin: PluginDaemonSet
    policy: VendorPolicy | None = None
    config: PluginConfig | None = None


class MigrationOptions(Frozen):
    """The options of `kube-rdma migrate plan`."""

    daemonset: str = ""  # NAMESPACE/NAME
    image: str = ""  # REPOSITORY[:TAG]
    values: str = ""  # a file


class PlanStep(Frozen):
    """A step of a plan: commands to run one after the other, and why."""

    title: str
    why: str
    commands: tuple[str, ...]
    node: str = ""  # "" where they are about several nodes


class TakeoverPlan(Frozen):
    """The plan to move a cluster from another plugin to kube-rdma, and back."""

    source: MigrationSource | None  # None: nothing is to do, and `notes` say why
    resources: tuple[str, ...] = ()
    nodes: tuple[MigratingNode, ...] = ()
    holders: tuple[HolderPod, ...] = ()
    steps: tuple[PlanStep, ...] = ()
    back: tuple[PlanStep, ...] = ()
    notes: tuple[str, ...] = ()


class SharingPod(NamespacedName):
    """A pod that has extended resources of a node, by claims or by the device plugin."""

    asked: Mapping[str, int]  # by resource the most that one container asks for
    by_claim: frozenset[str] = frozenset()  # had by claims; the others by the device plugin


class ServingView(Frozen):
    """A node that `kube-rdma migrate node` is to move from shares to claims, as it was read."""

    node: MigratingNode
    kubelet_version: str
    resources: tuple[str, ...]  # of the node's pools
    whole: frozenset[str]  # resources of which a share stands for the whole pool
    classes: Mapping[str, str]  # DeviceClasses by the resource name that they have
    serves_claims: bool  # an agent of this cluster has the option --claims
    pods: tuple[SharingPod, ...] = ()


class ServingPlan(Frozen):
    """The plan to move a node from the device plugin to claims, and back."""

    view: ServingView
    steps: tuple[PlanStep, ...]
    back: tuple[PlanStep, ...]
    notes: tuple[str, ...] = ()
