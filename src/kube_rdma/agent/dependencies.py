"""The neighbours of role `plugin`, in one value: what the command opens and tests replace.

Only the kernel and the kubelet's folder have to be there. Without the pod resources API a change of
mode waits for a person, without the API server there is no node label and no event, without late
binding every pool gives plain device nodes, without the record of what is met (`applied`) a new
process knows nothing of the earlier modes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kube_base.frozen import Frozen, field
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.kubelet.device_plugin import PluginHandlers, PluginServer
from kube_rdma.agent.mode_changes import OpenJournal
from kube_rdma.agent.node.node_events import NodeEvents, NullNodeEvents
from kube_rdma.agent.virtual_functions import Sources
from kube_rdma.attach.late_binding import LateBinding, NoLateBinding
from kube_rdma.hardware.kernel_events import KernelSources
from kube_rdma.hardware.survey import OwnAddresses
from kube_rdma.model.pools import Offer
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails

if TYPE_CHECKING:
    from kube_rdma.agent.node.ready_file import ReadyFile
    from kube_rdma.agent.node.report import NodePolicies
    from kube_rdma.attach.node_networks import NodeNetworks
    from kube_rdma.claims.driver import ClaimDriver
    from kube_rdma.metrics.exporter import Exporter
    from kube_rdma.reports.node_keeper import NodeKeeper

Serve = Callable[[Offer, PluginHandlers], PluginServer]


class AgentDependencies(Frozen):
    """Where each neighbour is reached."""

    config: Path | None
    kernel: KernelSources
    serve: Serve
    kubelet: KubeletView = field(default_factory=lambda: KubeletView(None))
    node: NodeEvents = field(default_factory=NullNodeEvents)
    late: LateBinding = field(
        default_factory=lambda: NoLateBinding("the agent runs without role node")
    )
    device_infos: DeviceInfoFolder | None = None
    networks: NodeNetworks | None = None  # pod networks beside the plugin
    functions: Sources | None = None  # None: virtual functions are nobody's wish here
    applied: OpenJournal | None = None
    rails: NodeRails = field(default_factory=NodeRails)
    keepers: tuple[NodeKeeper[Any], ...] = ()  # of what the cluster knows of this node
    policies: NodePolicies | None = None  # None: those of the cluster are not followed
    metrics: Exporter | None = None  # None: nobody asks for them
    claims: ClaimDriver | None = None  # None: cards are given as shares alone
    ready: ReadyFile | None = None  # None: nobody waits for this node
    own: OwnAddresses = field(default_factory=OwnAddresses)
