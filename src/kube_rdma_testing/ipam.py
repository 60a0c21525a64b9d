"""Gives addresses in memory: as a node that holds blocks of its pools, so it asks no other node.

The same rules grant and refuse as on a node, without API server, claims, journal or cool-downs.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_base.errors import Broken, KubeError, Refused
from kube_base.frozen import replace
from kube_rdma.ipam.rules.grant import GrantedAddresses, grant
from kube_rdma.ipam.rules.node_state import (
    LocalHolding,
    NodeAddressState,
    abandoned,
    end_cooldown,
    extend_right,
    release,
    with_record,
    without_record,
)
from kube_rdma.ipam.rules.pools import refuse_namespace
from kube_rdma.ipam.rules.subpools import key_at, mask, subpools
from kube_rdma.model.ipam import (
    AddressRequest,
    Bits,
    BlockKey,
    ContainerId,
    InterfaceName,
    IPPool,
    NodeName,
)

_BLOCKS = 64  # of a large pool; more addresses than any test asks for


class FakeAddresses:
    """A fake NodeAddresses in memory; `add`, `delete` and `check` raise `failing` if it is set."""

    def __init__(self, pools: Iterable[IPPool], node: str = "node") -> None:
        self.failing: KubeError | None = None
        self._pools = {pool.name: pool for pool in pools}
        self._catalog = {pool.name: subpools(pool) for pool in self._pools.values()}
        self._time = 0.0
        holdings: dict[BlockKey, LocalHolding] = {}
        for subpool in (subpool for pool in self._catalog.values() for subpool in pool):
            for number in range(min(subpool.block_count, _BLOCKS)):
                key = key_at(subpool, number)
                bits = holdings.get(key, LocalHolding()).confirmed | mask(subpool, key)
                holdings[key] = LocalHolding(confirmed=Bits(bits))
        state = replace(NodeAddressState(NodeName(node)), holdings=holdings)
        self._state = extend_right(state, 0.0, float("inf"))

    async def add(self, request: AddressRequest) -> GrantedAddresses:
        """Grant addresses and keep their record; raise Refused for a full or forbidden pool."""
        self._refuse_failing()
        refuse_namespace(request, self._pools)
        state, answer = grant(self._state, request, self._catalog, self.now())
        if not isinstance(answer, GrantedAddresses):
            pool = answer.shortages[0].subpool.pool
            raise Refused("the pool is full", remedy="Add a range", where=f"IPPool {pool}")
        self._state = with_record(state, answer.record, self.now())
        return answer

    async def delete(self, container: ContainerId, interface: InterfaceName | None = None) -> None:
        """Free the addresses of a container, or of its `interface`, at once."""
        self._refuse_failing()
        record = release(self._state, container, interface)
        if record is None:
            return
        self._state = with_record(self._state, record, self.now())
        left = end_cooldown(self._state, container)
        if left.allocations:
            self._state = with_record(self._state, left, self.now())
        else:
            self._state = without_record(self._state, container)

    def now(self) -> float:
        """Return the time of a clock that is a second later at each call."""
        self._time += 1
        return self._time

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Free the addresses of containers that are not in `living` and older than `since`."""
        for container in abandoned(self._state, living, since):
            await self.delete(container)

    async def check(self) -> tuple[Broken, ...]:
        """Return no errors, for no other node can take an address away."""
        self._refuse_failing()
        return ()

    def _refuse_failing(self) -> None:
        if self.failing:
            raise self.failing
