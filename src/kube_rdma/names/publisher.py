"""Publishes the RDMA addresses of pods under the names of Services that ask for it.

    watches: Services, pods, reports, blocks, claims ─► a look at all of them ─► names/rules ─►
      EndpointSlices where they differ ─► DNS

The leading copy of the controller runs it. Level-triggered: a look at an unchanged cluster writes
nothing. While a watch is interrupted nothing is written either, unless it is the watch of claims or
of network definitions. A Service that cannot be handled stops no other (adapters/bulkhead).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused
from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_client.errors import Conflict, Lost
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Deleted
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, pool_of, stored_block
from kube_rdma.lib.debounce import Debounce
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.model import names as model
from kube_rdma.model.ipam import Address
from kube_rdma.model.names import AddressedPod as Pod
from kube_rdma.names import cluster as objects
from kube_rdma.names.rules import NamedAddresses, keys_of, named_addresses, names_request, sliced

MOST_DOUBTS = 16  # pods of a Service that get an Event about an address without a name

log = structlog.get_logger()


class NamesPublisher:
    """Writes the EndpointSlices of Services that ask for names; the caller runs `events`."""

    def __init__(self, cluster: Cluster, events: Events, changes: Debounce | None = None) -> None:
        self._cluster, self._events = cluster, events
        self._changes = changes or Debounce()
        own, changed = Where(labels=objects.OWN_SLICES), self._changes.compare
        heard = self._changes.touch
        self._services = Mirror(objects.SERVICE, objects.naming_service, changed, heard=heard)
        self._slices = Mirror(objects.ENDPOINT_SLICE, objects.with_lists, changed, own, heard=heard)
        self._pods = Mirror(
            objects.ADDRESSED_POD, objects.addressed_pod, self._pod_changed, heard=heard
        )
        self._cards = Mirror(NODE_REPORT, objects.node_cards, changed, heard=heard)
        self._nodes = Mirror(NODE, objects.node_addresses, changed, heard=heard)
        self._pools = Mirror(IP_POOL, pool_of, changed, heard=heard)
        self._blocks = Mirror(IP_BLOCK, stored_block, changed, heard=heard)
        self._claims = Mirror(
            objects.ADDRESSED_CLAIM, objects.claim_addresses, changed, optional=True
        )
        self._networks = Mirror(DEFINITION, lambda stored: stored.name, optional=True)
        on_nodes = (self._pods, self._cards, self._nodes)
        self._facts: tuple[Mirror[Any], ...] = (*on_nodes, self._pools, self._blocks)
        self._reports: Mapping[str, model.NodeCards] = {}  # the last of each node that is there
        self._walls, self._notices = ObjectWalls("Service"), Notices()
        self._holders: Mapping[Address, Collection[str]] = {}  # as in NamesWorld, at the last look
        self._taken: set[str] = set()  # names of slices that are not ours

    async def run(self) -> None:
        """Write EndpointSlices at every change until cancelled; wait for an absent API server."""
        asks, failures, follows = (self._services, self._slices), 0, False
        others = (*self._facts, self._claims, self._networks)
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, full_jitter, *asks)
            while True:
                if self._services.values and not follows:  # without such Services, no other watch
                    await follow_all(tasks, self._cluster, full_jitter, *others)
                    follows = True
                failures = 0 if await self.round() else failures + 1
                await self._changes.wait(full_jitter(failures) if failures else None)

    async def round(self) -> bool:
        """Write each EndpointSlice that is not as it should be; return False to be called again."""
        needed: tuple[Mirror[Any], ...] = (self._services, self._slices, *self._facts)
        if any(mirror.trouble for mirror in needed):
            return False
        world, services, is_done = self._look(), dict(self._services.values), True
        slices = defaultdict[str, dict[str, objects.StoredSlice]](dict)
        for one in self._slices.values.values():
            slices[objects.service_of(one)][one.name] = one
        for name in sorted({*services, *slices}):
            await asyncio.sleep(0)  # a look at 10,000 pods takes a while, and others run between
            service = services.get(name)
            publish = partial(self._publish, service, slices[name], world)
            try:
                is_done &= await self._walls.run((name, service), publish)
                self._notices.over(name)
            except KubeError as error:
                self._notices.warn(log, "names not published", name, str(error), service=name)
                is_done = False
        return is_done

    async def _publish(
        self,
        service: model.NamingService | None,
        stored: Mapping[str, objects.StoredSlice],
        world: model.NamesWorld,
        why: str,
    ) -> bool:
        """Write a Service's slices and Events; only an Event if an earlier try failed for `why`."""
        if service is None:
            return await self._write(None, stored, {})
        about = About("Service", service.name, service.namespace, service.uid)
        if why:
            return self._events.failed(about, why)
        own = {
            each.name: each.spec
            for each in stored.values()
            if service.uid in (owner.uid for owner in each.owners)
        }
        listed = {key for spec in own.values() for key in keys_of(spec)}
        try:
            request = names_request(service)
        except Refused as error:
            self._tell(service, {("NamesRefused", about): str(error)})
            return await self._write(service, stored, {})
        named = named_addresses(service, request, world, listed)
        self._tell(service, dict(self._complaints(service, about, request.network, named)))
        slices = sliced(service, named.endpoints, own, self._taken)
        return await self._write(service, stored, slices)

    async def _write(
        self,
        service: model.NamingService | None,
        stored: Mapping[str, objects.StoredSlice],
        slices: Mapping[str, model.EndpointSliceSpec],
    ) -> bool:
        """Create, replace and delete slices of a Service; raise KubeError.

        The mirror of slices takes each write at once, before its watch shows it.
        """
        kind = objects.ENDPOINT_SLICE
        for name, spec in slices.items():
            if before := stored.get(name):
                if spec != before.spec:
                    changed = await self._cluster.replace(kind, replace(before, spec=spec))
                    self._slices.take(Changed(changed))
            elif service:
                wanted = objects.wanted_slice(service, name, spec)
                try:
                    self._slices.take(Changed(await self._cluster.create(kind, wanted)))
                except Conflict as error:
                    if error.lost is Lost.EXISTS:
                        self._taken.add(name)
                    raise
        for name, before in stored.items():
            if name not in slices:
                await self._cluster.delete(kind, before, unchanged=False)
                self._slices.take(Deleted(name, before.namespace, before.uid))
        return True

    def _complaints(
        self, service: model.NamingService, about: About, network: str, named: NamedAddresses
    ) -> Iterator[tuple[tuple[str, About], str]]:
        """Yield Events for problems with a Service's names: reason, object and sentence."""
        known = self._networks
        if network and not named.is_found and not known.trouble and network not in known.values:
            which = "one of kubectl get network-attachment-definitions"
            sentence = f"There is no network {network}: name {which} in {model.NETWORK}."
            yield ("NetworkUnknown", about), sentence
        if named.left_out:
            sentence = f"{named.left_out} addresses of pods have no name, for a Service has at most"
            ways = f"choose fewer by {model.NETWORK}, {model.RAIL} or {model.PODS}"
            yield ("TooManyAddresses", about), f"{sentence} {len(named.endpoints)}: {ways}."
        for title, doubt in sorted(named.doubts.items())[:MOST_DOUBTS]:
            pod = self._pods.values[title]
            of_pod = About("Pod", pod.name, pod.namespace, pod.uid)
            sentence = f"Service {service} does not name an address of pod {title}: {doubt}."
            yield ("AddressNotNamed", of_pod), sentence

    def _tell(
        self, service: model.NamingService, complaints: Mapping[tuple[str, About], str]
    ) -> None:
        """Record an Event for each complaint that the last look at the Service did not have."""
        news = self._notices.news(("complaints", service.uid), *complaints.values())
        for (reason, about), sentence in complaints.items():
            if sentence in news:
                self._events.tell(about, reason, sentence, warning=True)

    def _look(self) -> model.NamesWorld:
        """Return the facts that the mirrors have now, and the last report of each node."""
        pods = dict(self._pods.values)
        holders, pod_ips = defaultdict[Address, set[str]](set), defaultdict[Address, set[str]](set)
        claimed, groups = defaultdict[Address, set[str]](set), defaultdict[str, list[Pod]](list)
        for title, pod in pods.items():
            for address in (each for one in pod.interfaces for each in one.addresses):
                holders[address].add(title)
            for address in pod.ips:
                pod_ips[address].add(title)
            if pod.interfaces:
                groups[pod.namespace].append(pod)
        for addresses, users in self._claims.values.values():
            for address in addresses:
                claimed[address] |= users
        last = ((name, one) for name, one in self._reports.items() if name in self._nodes.values)
        self._reports = {**dict(last), **self._cards.values}
        on_cards = (cards.addresses for cards in self._reports.values())
        nodes = frozenset[Address]().union(*self._nodes.values.values(), *on_cards)
        blocks = {block.key: block for block in self._blocks.values.values()}
        pools, unread = tuple(self._pools.values.values()), bool(self._blocks.faults)
        self._holders = holders
        return model.NamesWorld(
            pods, groups, holders, pod_ips, self._reports, nodes, pools, blocks, claimed, unread
        )

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Ask for a look if a pod has RDMA interfaces, or an IP that some RDMA interface shows."""
        pods = [pod for pod in (old, new) if pod]
        ips = {each for pod in pods for each in pod.ips}
        if any(pod.interfaces for pod in pods) or not ips.isdisjoint(self._holders):
            self._changes.compare(old, new)
