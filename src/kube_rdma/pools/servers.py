"""Runs the device plugin servers of this node, one per resource, each with a task of its own.

agent/loop computes the pools and calls publish; adapters/kubelet/device_plugin serves each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import structlog
from msgspec import Struct

from kube_base.errors import KubeError
from kube_rdma.adapters.bulkhead import kept
from kube_rdma.adapters.kubelet.device_plugin import PluginServer
from kube_rdma.model.card import CardId
from kube_rdma.model.pools import Offer, Pool
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.absence import HealthChange
from kube_rdma.pools.rules.pools import offer

log = structlog.get_logger()

# Log lines: what changed when a new state of the node replaces the old one.


def log_card(change: HealthChange, name: str, *, seen_before: bool, present: bool) -> None:
    """Log a change of a card's health; `present` says whether the card is on the node."""
    if change.healthy:
        log.info("card healthy again" if seen_before else "card appeared", card=name)
    else:
        event = "card unhealthy" if present else "card vanished"
        log.warning(event, card=name, why="; ".join(change.reasons))


def log_cards(
    before: Mapping[CardId, str], after: Mapping[CardId, str], reported: Collection[CardId]
) -> None:
    """Log cards that are now in a pool and were in none, or the reverse, unless `reported`."""
    for card in sorted(after.keys() - before.keys() - set(reported)):
        log.info("card appeared", card=after[card])
    for card in sorted(before.keys() - after.keys() - set(reported)):
        log.warning("card vanished", card=before[card])


def log_faults(before: Survey | None, after: Survey) -> None:
    """Log each path that this survey could not read, unless the one before had the same fault."""
    for fault in after.faults:
        if before is None or fault not in before.faults:
            log.warning("node state not readable", what=fault.path, why=fault.reason)


def _offer(pool: Pool) -> dict[str, object]:
    return {
        "resource": pool.spec.resource,
        "shares": len(pool.shares),
        "healthy": sum(share.healthy for share in pool.shares),
        "cards": ",".join(card.name for card in pool.cards),
    }


Serve = Callable[[Offer, Callable[[], Pool]], PluginServer]
"""Makes the server of a new resource; the second argument returns the pool as it is by then."""


class _Server(Struct):
    plugin: PluginServer
    pool: Pool
    task: asyncio.Task[None]


class ResourceServers:
    """The servers of the device plugin, one for each resource that the node offers."""

    def __init__(self, tasks: asyncio.TaskGroup, serve: Serve) -> None:
        self._tasks = tasks  # in which the servers run
        self._serve = serve
        self._servers: dict[str, _Server] = {}

    @property
    def pools(self) -> Mapping[str, Pool]:
        """Return by resource the pool that was last published."""
        pools = {resource: server.pool for resource, server in self._servers.items()}
        return MappingProxyType(pools)

    def _pool(self, resource: str) -> Pool:
        return self._servers[resource].pool

    def publish(self, pools: Iterable[Pool]) -> None:
        """Replace the node's pools: start, update and stop their servers."""
        wanted = {pool.spec.resource: pool for pool in pools}
        for resource in self._servers.keys() - wanted.keys():
            server = self._servers.pop(resource)
            server.task.cancel()
            log.info("resource withdrawn", resource=resource)
        for resource, pool in wanted.items():
            present = self._servers.get(resource)
            if present is None or _offer(present.pool) != _offer(pool):
                (log.info if pool.cards else log.warning)("pool", **_offer(pool))
            if present:
                present.pool = pool
                present.plugin.publish(offer(pool))
            else:
                plugin = self._serve(offer(pool), partial(self._pool, resource))
                server_of = f"server of {resource}"
                # Without the kubelet's folder the container has to be made anew.
                run = kept(server_of, plugin.run, ends=KubeError)
                self._servers[resource] = _Server(plugin, pool, self._tasks.create_task(run))

    def unregistered(self) -> Iterator[str]:
        """Yield a sentence for each offered resource that is not registered with the kubelet."""
        for resource, server in sorted(self._servers.items()):
            if not server.plugin.is_registered:
                yield f"{resource} is not registered with the kubelet."

    def tell_again(self, resource: str) -> None:
        """Send a resource's device list again, because the kubelet has another one."""
        server = self._servers[resource]
        server.plugin.publish(server.plugin.offer, again=True)

    def register_again(self, resource: str) -> None:
        """Register a resource with the kubelet again, where sending its list did not help."""
        self._servers[resource].plugin.register_again()
