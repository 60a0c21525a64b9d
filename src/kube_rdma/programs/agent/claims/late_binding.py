"""Late binding of an agent that serves claims too: one act at CNI ADD, whoever handed a card out.

What Allocate promised is bound by programs/agent/late_binding/binder; what was prepared for claims
gets its nodes here, from the same plan of the same network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.late_binding.binding import ContainerId, Edits, HeldShare
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Grant, Pool, PoolSpec, ShareId
from kube_rdma.programs.agent.claims.prepared_claims import PreparedClaims
from kube_rdma.programs.agent.claims.settings import ClaimingSandbox
from kube_rdma.programs.agent.late_binding.interface import LateBinding
from kube_rdma.rules.health.evaluate import LinksInside


class WithClaims:
    """`shares` does what it does for shares of the device plugin; `claims` comes besides."""

    def __init__(self, shares: LateBinding, claims: PreparedClaims) -> None:
        self._shares = shares
        self._claims = claims

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """The wishes, with `attach` as this node can do it."""
        return self._shares.possible(specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what is offered now, by resource."""
        self._shares.offered(pools)

    async def promise(self, pool: Pool, grant: Grant) -> Grant:
        """The grant as Allocate answers it."""
        return await self._shares.promise(pool, grant)

    async def start(self, pool: Pool, shares: Sequence[ShareId]) -> None:
        """Return when the container that holds these shares may start; raise Refused before."""
        await self._shares.start(pool, shares)

    async def links_inside(self, node: Sequence[Card]) -> LinksInside:
        """The pod and its links for each card of the node that sits inside one."""
        return await self._shares.links_inside(node)

    def cards(self) -> frozenset[CardId] | None:
        """The cards that are promised to pods, bound or prepared for claims."""
        shares, claims = self._shares.cards(), self._claims.cards()
        return None if shares is None or claims is None else shares | claims

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `possible` may answer otherwise; return when it never will."""
        await self._shares.follow(changed)

    async def sweep(self) -> None:
        """Forget what nobody needs any more, until cancelled."""
        await self._shares.sweep()

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[HeldShare, Edits],
        annotations: Mapping[str, str],
        holdings: Sequence[Holding] | None = None,
    ) -> object:
        """Bind every promise of a pod, and what its claims stand for."""
        bound = await self._shares.attach(sandbox, edits, annotations, holdings)
        await self._claims.attach(edits)
        if holdings is not None:
            await self._claims.settle(ClaimingSandbox(sandbox, holdings, annotations, edits))
        return bound

    async def detach(self, container: ContainerId) -> None:
        """End what is bound in a sandbox; a claim is prepared until the kubelet gives it back."""
        await self._shares.detach(container)
        await self._claims.detach(container)
