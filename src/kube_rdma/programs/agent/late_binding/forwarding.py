"""Late binding that does as another one does: what stands in front of it changes only its own part.

asked_again.py puts another one in its place, programs/agent/claims/late_binding.py adds claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.late_binding.binding import ContainerId, Edits, HeldShare
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Grant, Pool, PoolSpec, ShareId
from kube_rdma.programs.agent.late_binding.interface import LateBinding
from kube_rdma.rules.health.evaluate import LinksInside


class ForwardingBinding(LateBinding):
    """A LateBinding; `to` does all of it."""

    def __init__(self, to: LateBinding) -> None:
        self._to = to

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """The wishes, with `attach` as this node can do it."""
        return self._to.possible(specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what is offered now, by resource."""
        self._to.offered(pools)

    async def promise(self, pool: Pool, grant: Grant) -> Grant:
        """The grant as Allocate answers it."""
        return await self._to.promise(pool, grant)

    async def start(self, pool: Pool, shares: Sequence[ShareId]) -> None:
        """Return when the container that holds these shares may start; raise Refused before."""
        await self._to.start(pool, shares)

    async def links_inside(self, node: Sequence[Card]) -> LinksInside:
        """The pod and its links for each card of the node that sits inside one."""
        return await self._to.links_inside(node)

    def cards(self) -> frozenset[CardId] | None:
        """The cards that are promised to pods or bound; None where a record is not understood."""
        return self._to.cards()

    async def held(self) -> Mapping[HeldShare, str]:
        """The pod, in words, of each share that is bound for one that runs."""
        return await self._to.held()

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `possible` may answer otherwise; return when it never will."""
        await self._to.follow(changed)

    async def sweep(self) -> None:
        """Forget what nobody needs any more, until cancelled."""
        await self._to.sweep()

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[HeldShare, Edits],
        annotations: Mapping[str, str],
        holdings: Sequence[Holding] | None = None,
    ) -> object:
        """Bind every promise of a pod."""
        return await self._to.attach(sandbox, edits, annotations, holdings)

    async def detach(self, container: ContainerId) -> None:
        """End what is bound in a sandbox."""
        await self._to.detach(container)
