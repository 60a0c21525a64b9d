"""Opens the doors of claims, for an agent that is started with ``--claims``.

with_claims ─┬► PreparedClaims ─► the kubelet's view, ClaimDriver
             └► SlicePublisher, among the keepers of what the cluster knows of the node
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.cni.state import ClaimedNamespaces
from kube_rdma.adapters.journal.codec import CLAIMS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import ClaimFiles, PodSettings
from kube_rdma.agent.dependencies import AgentDependencies
from kube_rdma.agent.node.node_events import NodeEvent
from kube_rdma.attach.claim_settings import ClaimSettings
from kube_rdma.attach.rules.late_binding import holders
from kube_rdma.claims.cluster import OfferedSlices, allocated, claims_of_pod, write_statuses
from kube_rdma.claims.driver import ClaimDriver
from kube_rdma.claims.prepared_claims import (
    ClaimDependencies,
    ClaimMetadata,
    ClaimStatuses,
    PreparedClaims,
)
from kube_rdma.claims.publisher import SlicePublisher
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.claims.claim import ClaimName, DeviceStatus
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.late_binding import HeldShare, PodSandbox

if TYPE_CHECKING:
    from kube_client.objects import Cluster


class ClaimSite(Frozen):
    """Where claims are served: node and boot, and places of the host as this process sees them.

    `works` answers whether the runtime gives containers the CDI devices that claims name, and why;
    `sandboxes` are the runtime's.
    `dranet`: devices have DRANET's names of attributes too.
    """

    node: str
    boot: str
    state: Path
    cdi: Path
    settings: Path
    plugins_registry: Path | None  # None: it is not there
    works: Callable[[], Awaitable[tuple[bool, str]]]
    sandboxes: Callable[[], Awaitable[Sequence[PodSandbox]]]
    dranet: bool = False


def with_claims(
    doors: AgentDependencies, site: ClaimSite, cluster: Cluster, stack: AsyncExitStack
) -> AgentDependencies:
    """The doors with slices, and the driver, which keeps what it prepares on the host's disk."""
    if site.plugins_registry is None:
        raise Refused(
            "the kubelet's plugins_registry is not there, in which it finds drivers of claims",
            remedy="Mount the host's folder of that name (hostPath), or leave --claims out",
            where="--claims",
        )
    journal = stack.enter_context(Journal(Folder(site.state / "claims"), CLAIMS))

    async def write(claim: ClaimName, devices: Sequence[DeviceStatus]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await write_statuses(cluster, claim, devices, now)

    door = OfferedSlices(cluster, DRIVER, site.node)
    slices = SlicePublisher(door, doors.rails.number, dranet=site.dranet)
    statuses = ClaimStatuses(write)
    to = ClaimDependencies(
        journal=journal,
        cdi=CdiFolder(site.cdi),
        read=partial(allocated, cluster),
        pod=partial(claims_of_pod, cluster),
        node=site.node,
        boot=site.boot,
        shim=doors.networks.shim_of_host if doors.networks else lambda: None,
        claimed=ClaimedNamespaces(site.state / "claimed"),
        statuses=statuses,
        metadata=ClaimMetadata(ClaimFiles(site.settings / "metadata"), slices.attributes),
        settings=ClaimSettings(PodSettings(site.settings / "claims")),
        wiring=doors.networks.wiring if doors.networks else lambda: Wiring.NONE,
        holders=partial(_holders, doors),
        sandboxes=site.sandboxes,
        hold=doors.networks.limits.prepared if doors.networks else None,
        tell=partial(doors.node.tell, NodeEvent.JOURNAL_TROUBLE),
    )
    doors.kubelet.claims = claims = PreparedClaims(to)
    driver = ClaimDriver(
        claims, site.plugins_registry, site.node, site.works, statuses.run, slices.offered
    )
    return replace(
        doors,
        keepers=(*doors.keepers, slices),
        claims=driver,
    )


async def _holders(doors: AgentDependencies, resources: Collection[str]) -> Mapping[HeldShare, str]:
    """Who holds shares by the device plugin, also those that the kubelet has forgotten."""
    bound = holders(await doors.late.held())
    named = {share: f"pod {pod}" for share, pod in bound.items()}
    return named | await doors.kubelet.plugin_holders(resources)
