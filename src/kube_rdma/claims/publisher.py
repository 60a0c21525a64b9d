"""Keeps the ResourceSlices of this node in step with its cards: ``agent --claims``.

    Pool ─ claims/rules/shape ─► ClaimOffer ─ shape ─► devices of slices ─┐
    ResourceSlices ─ watch ─► ResourceSlice ──────────────────────────────┴ publication ─► writes

It is a NodeKeeper. The kubelet deletes the slices of all drivers when it starts, and those of a
driver 30 s after it disconnected (pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go). The watch shows
that, and they are written again. A server whose feature gates are off drops fields in silence. So
what comes back of a write is compared with it, and then the slices are written without these
features. Beside it stand the GPUs that other drivers publish in slices of the node: the same watch
shows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
from msgspec import to_builtins

from kube_base.errors import KubeError
from kube_base.notices import Notices
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Cut, Deleted, Muddled, Synced
from kube_rdma.adapters.bulkhead import object_failed, start
from kube_rdma.adapters.cluster.kinds.resource_api import (
    RESOURCE_SLICE,
    StoredSlice,
    changed_slice,
    device_slice,
    resource_slice,
    wanted_slice,
)
from kube_rdma.claims.cluster import devices_of, pending_pods
from kube_rdma.claims.rules import shape
from kube_rdma.claims.rules.prepare import MetadataAttributes
from kube_rdma.claims.rules.publication import (
    PoolSite,
    Publication,
    dropped,
    publication,
    published_devices,
)
from kube_rdma.claims.rules.serving import PluginShares, for_claims, ready
from kube_rdma.lib.mirror import Mirror
from kube_rdma.model.claims.devices import (
    DRIVER,
    ClaimedDevice,
    ClaimFeature,
    DeviceSlice,
    ListedDevice,
    ResourceSlice,
)
from kube_rdma.model.device import Gpu
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.pools.kubelet_view import NodeSlices
from kube_rdma.pools.rules.nearness import ClaimGpus, gpus_of, starting_pods
from kube_rdma.reports.node_keeper import REFUSED_SECONDS, NodeKeeper, WritePace, spread
from kube_rdma.reports.rules.node_report import AgentLook

# A kubelet that starts deletes slice by slice; a link that drops shows in slices within 0.3 s.
SLICE_PACE = WritePace(quiet=0.05, longest=0.2, spacing=0.1)

_SENTENCES = {
    ClaimFeature.CONSUMABLE_CAPACITY: "each share of a shared card is a device of its own",
    ClaimFeature.DEVICE_TAINTS: "cards that cannot be used are left out",
}

log = structlog.get_logger()


class SlicePublisher(NodeKeeper[shape.ClaimOffer]):
    """A writer of kube-rdma's ResourceSlices of one agent's node."""

    part = "slices"
    failure = "resource slices not written"

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        rail: shape.RailOf,
        pace: WritePace = SLICE_PACE,
        *,
        dranet: bool = False,  # devices have DRANET's names of attributes too
        heard: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """Take the node to write for; `heard` gets each event of all drivers' slices of it."""
        super().__init__(pace)
        self._cluster, self._name = cluster, node
        self._rail = rail
        self._dranet = dranet
        self._heard = heard
        self._stored: dict[str, StoredSlice] = {}
        self._shown: dict[str, ListedDevice] = {}  # as last published, by name
        self._without: frozenset[ClaimFeature] = frozenset()
        self._held: PluginShares | None = None  # by pods, as the kubelet said last
        self._synced = False  # so `_stored` is what the API server has

    def attributes(self) -> MetadataAttributes:
        """Return devices' attributes as last published, without DRANET's, in KEP-5304's form."""
        return {name: to_builtins(device.attributes) for name, device in self._shown.items()}

    def offered(self) -> frozenset[str] | None:
        """Return the resources whose devices are in this node's slices; None while unknown."""
        if not self._synced:
            return frozenset() if self._absent else None
        devices = (one for stored in self._stored.values() for one in stored.spec.devices)
        resources = (device.attributes.get("resource") for device in devices)
        return frozenset(one.string for one in resources if one and one.string)

    def _wanted(self, look: AgentLook) -> shape.ClaimOffer:
        if look.plugin_shares is not None:
            self._held = look.plugin_shares
        pools = look.verdict.pools if self._held is not None else ()
        offer = for_claims(pools, self._held or {}, self._rail)
        for sentence in self._notices.news("offer", *offer.refusals):
            log.warning("card not in slices", what=sentence)
        return offer

    def _agrees(self, node: NodeState, wanted: shape.ClaimOffer) -> bool:
        return not self._synced or not self._publication(node, wanted)

    async def _write(self, node: NodeState, wanted: shape.ClaimOffer) -> NodeState:
        for _ in range(1 + len(ClaimFeature)):  # each may turn out to be off
            missing = await self._publish(self._publication(node, wanted))
            if not missing:
                break
            self._do_without(missing, wanted)
        return node

    async def _publish(self, writes: Publication) -> frozenset[ClaimFeature]:
        """Write the planned changes of slices; return the features that the server dropped."""
        missing: frozenset[ClaimFeature] = frozenset()
        for part in writes.removed:
            if stored := self._stored.get(part.name):
                await self._cluster.delete(RESOURCE_SLICE, stored, unchanged=False)
                self._stored.pop(part.name, None)
        for part in writes.changed:
            if stored := self._stored.get(part.name):  # else it was deleted since
                changed = changed_slice(stored, part)
                missing |= self._written(part, await self._cluster.replace(RESOURCE_SLICE, changed))
        for part in writes.created:
            made = await self._cluster.create(RESOURCE_SLICE, wanted_slice(part))
            missing |= self._written(part, made)
        if writes:
            log.info("resource slices written", node=self._name, writes=len(writes))
        return missing

    def _written(self, part: ResourceSlice, stored: StoredSlice) -> frozenset[ClaimFeature]:
        self._take(stored)
        return dropped(part.spec.devices, stored.spec.devices)

    def _do_without(self, missing: frozenset[ClaimFeature], wanted: shape.ClaimOffer) -> None:
        """Stop using features that the server lacks; log each once, with its consequence."""
        self._without |= missing
        for feature in sorted(missing):
            for so in self._notices.news(feature, _SENTENCES[feature]):
                log.warning("feature gate off", gate=feature, so=so)
        apart = ClaimFeature.CONSUMABLE_CAPACITY in self._without
        short = shape.fewer(wanted.cards) if apart else None
        for why in self._notices.news("shares", *filter(None, [short])):
            log.warning("shares not in slices", why=why)

    def _publication(self, node: NodeState, wanted: shape.ClaimOffer) -> Publication:
        """Return the changes of slices that have to be written now."""
        devices = shape.slices(ready(wanted, node), self._shown, self._without)
        if self._dranet:
            devices = shape.with_dranet_names(devices)
        stored = map(resource_slice, self._stored.values())
        return publication(PoolSite(node.name, node.uid), stored, devices, self._without)

    async def run(self) -> None:
        """Watch the node's slices, and write them where they are wrong, until cancelled."""
        watch = partial(self._cluster.watch, RESOURCE_SLICE, _of_node(self._name))
        read = partial(self._follow, self._name, watch, self._hear)
        async with asyncio.TaskGroup() as tasks:
            start(tasks, {"slices read": read, "slices written": super().run})

    def _hear(self, event: object) -> None:
        self._heard(event)
        match event:
            case Changed(stored) if stored.spec.driver != DRIVER:
                return
            case Changed(stored):
                try:
                    self._take(stored)
                except Exception as error:  # noqa: BLE001  of one slice
                    object_failed("ResourceSlice", stored.name, error)
                    self._stored.pop(stored.name, None)
            case Deleted(name=name) | Muddled(name=name):
                self._stored.pop(name, None)
                if not self._stored:  # another server may be there by now: all is tried again
                    self._without = frozenset()
            case Synced():
                self._synced = True
                for stored in self._stored.values():
                    self._without |= resource_slice(stored).without
            case Cut():
                return  # what is known may be old; a write of what is right changes nothing
        self._changes.touch()

    def _take(self, stored: StoredSlice) -> None:
        self._stored[stored.name] = stored
        self._shown.update(shape.without_dranet_names(published_devices([resource_slice(stored)])))


# GPUs that drivers hand out by ResourceClaims: those of the node, and those of a starting pod.

ANSWER_SECONDS = 1.0  # the kubelet waits meanwhile, with every pod behind this one


def _of_node(node: str) -> Where:
    """Return the selection of all drivers' ResourceSlices of a node."""
    return Where(fields=f"spec.nodeName={node}")


def _later(_failures: int) -> float:
    """Return 300 to 600 seconds, at random, so that not all nodes try again at once."""
    return spread(REFUSED_SECONDS)


class ClaimedGpus(NodeSlices):
    """A watch of one node's ResourceSlices, for the GPUs that other drivers give by claims."""

    def __init__(
        self, cluster: Cluster, node: str, *, wait: Callable[[int], float] = _later
    ) -> None:
        """Take the node whose slices to watch; `wait` returns the seconds until the next try."""
        self._cluster, self._node = cluster, node
        self._pause = wait
        self._slices = Mirror(RESOURCE_SLICE, device_slice, where=_of_node(node), optional=True)
        self.hear = self._slices.take  # for events of the slices that somebody else watches
        self._notices = Notices()

    async def follow(self) -> None:
        """Watch all drivers' ResourceSlices of this node, until cancelled."""
        await self._slices.follow(self._cluster, self._pause)

    def slices(self) -> tuple[DeviceSlice, ...]:
        """Return all drivers' ResourceSlices of this node, as last seen."""
        return tuple(self._slices.values.values())

    async def expected(
        self, resource: str, held: Sequence[ClaimedDevice], gpus: ClaimGpus
    ) -> tuple[Gpu, ...]:
        """Return the claimed GPUs of pods that may be about to get `resource`; none if unknown.

        The GPUs of all such pods are returned: the kubelet does not say which pod asks.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                pods = starting_pods(await pending_pods(self._cluster, self._node), resource, held)
                devices = [one for pod in pods for one in await devices_of(self._cluster, pod)]
        except (KubeError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            self._notices.warn(log, "claims of starting pods unknown", "claims", why)
            return ()
        self._notices.over("claims")
        return gpus_of(devices, gpus)
