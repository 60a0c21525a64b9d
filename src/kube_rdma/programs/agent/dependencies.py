"""The neighbours of role `plugin`, in one value: what the command opens and tests replace.

Only the kernel and the kubelet's folder have to be there. Without the pod resources API a change of
mode waits for a person, without the API server there is no node label and no event, without late
binding every pool gives plain device nodes, without the record of what is met (`applied`) a new
process knows nothing of the earlier modes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.kubelet.resource_server import Served
from kube_rdma.adapters.kubelet.service import Answers
from kube_rdma.model.pod import PodState
from kube_rdma.model.pool import Offer, Pool
from kube_rdma.programs.agent.device_plugin.kubelet_view import KubeletView
from kube_rdma.programs.agent.device_plugin.mode_changes import OpenJournal
from kube_rdma.programs.agent.late_binding.late import Late, Never
from kube_rdma.programs.agent.node.interface import Alone, NodeSide
from kube_rdma.programs.agent.node.kernel_events import KernelSources
from kube_rdma.programs.agent.virtual_functions import Sources

Serve = Callable[[Offer, Answers], Served]


class PodNetworkService(Protocol):
    """Pod networks beside the plugin; programs/agent/pod_networks/service."""

    def offered(self, pools: Mapping[str, Pool], withdrawn: Sequence[str] = ()) -> None:
        """Take note of what the kubelet is offered now, and of what pods hold nevertheless."""

    async def concerned(self, pod: PodState) -> bool:
        """Whether one of the networks that a pod asks for is for kube-rdma to make."""

    async def run(self) -> None:
        """Serve until cancelled."""


@dataclass(frozen=True)
class AgentDependencies:
    """Where each neighbour is reached."""

    config: Path | None
    kernel: KernelSources
    serve: Serve
    kubelet: KubeletView = field(default_factory=lambda: KubeletView(None))
    node: NodeSide = field(default_factory=Alone)
    late: Late = field(default_factory=lambda: Never("the agent runs without role node"))
    device_infos: DeviceInfoFolder | None = None
    networks: PodNetworkService | None = None
    functions: Sources | None = None  # None: virtual functions are nobody's wish here
    applied: OpenJournal | None = None
