"""Addresses in memory: all of its pools' addresses are its own, so nobody has to be asked.

The same rules grant and refuse as on a node; only claims, the journal and rests are missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kube_base.errors import Broken, KubeError, Refused
from kube_rdma.model.ipam import Ask, Bits, Cell, ContainerId, InterfaceName, IPPool, NodeName
from kube_rdma.rules.ipam.cells import cell_at, mask, zones
from kube_rdma.rules.ipam.grant import Granted, ask
from kube_rdma.rules.ipam.node_state import (
    Hold,
    NodeAddressState,
    abandoned,
    release,
    removed,
    renewed,
    retire,
    stored,
)
from kube_rdma.rules.ipam.pools import refuse_namespace

_CELLS = 64  # of a large pool; as many addresses as any test asks for


class FakeAddresses:
    """An AddressProvider. `failing` is raised by every call, while it is set."""

    def __init__(self, pools: Iterable[IPPool], node: str = "node") -> None:
        self.failing: KubeError | None = None
        self._pools = {pool.name: pool for pool in pools}
        self._catalog = {pool.name: zones(pool) for pool in self._pools.values()}
        self._time = 0.0
        holds: dict[Cell, Hold] = {}
        for zone in (zone for pool in self._catalog.values() for zone in pool):
            for number in range(min(zone.cells, _CELLS)):
                cell = cell_at(zone, number)
                mine = holds.get(cell, Hold()).mine | mask(zone, cell)
                holds[cell] = Hold(mine=Bits(mine))
        state = replace(NodeAddressState(NodeName(node)), holds=holds)
        self._state = renewed(state, 0.0, float("inf"))

    async def add(self, request: Ask) -> Granted:
        """Grant, and know it from now on."""
        self._working()
        refuse_namespace(request, self._pools)
        state, answer = ask(self._state, request, self._catalog, self.now())
        if not isinstance(answer, Granted):
            pool = answer.lacks[0].zone.pool
            raise Refused("the pool is full", remedy="Add a range", where=f"IPPool {pool}")
        self._state = stored(state, answer.booking, self.now())
        return answer

    async def delete(self, container: ContainerId, interface: InterfaceName | None = None) -> None:
        """Free them at once."""
        self._working()
        booking = release(self._state, container, interface)
        if booking is None:
            return
        self._state = stored(self._state, booking, self.now())
        left = retire(self._state, container)
        if left.leases:
            self._state = stored(self._state, left, self.now())
        else:
            self._state = removed(self._state, container)

    def now(self) -> float:
        """Each look is a second later than the one before."""
        self._time += 1
        return self._time

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Free what no container has."""
        for container in abandoned(self._state, living, since):
            await self.delete(container)

    async def check(self) -> tuple[Broken, ...]:
        """Nobody can take an address away."""
        self._working()
        return ()

    def _working(self) -> None:
        if self.failing:
            raise self.failing
