"""Late binding: what Allocate promised is bound when the pod's network is attached, or at start.

    Allocate ─ promise ─► journal    CNI ADD ─ bind ─► journal, CDI file    PreStart ─ gate ─► ok

attach/rules/late_binding/binding decides, adapters/journal and adapters/runtime keep and write
(docs/decisions/0009). `NoLateBinding` is what an agent has whose runtime is not known to read CDI
files: its pools give plain device nodes in the Allocate reply, and settings as mounts beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_rdma.attach.late_binding.early_settings import EarlySettings
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.late_binding.binding import ContainerId, Edits, HeldShare
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Attach, Grant, Pool, PoolSpec, ShareId
from kube_rdma.pools.rules.health.evaluate import LinksInside
from kube_rdma.pools.rules.modes import terms

log = structlog.get_logger()


class LateBinding:
    """What role `plugin` asks; without more, nothing is bound late."""

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """The wishes, with `attach` as this node can do it."""
        return tuple(specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what is offered now, by resource."""

    async def promise(self, pool: Pool, grant: Grant) -> Grant:
        """The grant as Allocate answers it: with a name for what will be bound later."""
        return grant

    async def start(self, pool: Pool, shares: Sequence[ShareId]) -> None:
        """Return when the container that holds these shares may start; raise Refused before."""

    async def links_inside(self, node: Sequence[Card]) -> LinksInside:
        """The pod and its links for each card of the node that sits inside one."""
        return {}

    def cards(self) -> frozenset[CardId] | None:
        """The cards that are promised to pods or bound; None where a record is not understood."""
        return frozenset()

    async def held(self) -> tuple[Holding, ...]:
        """What is bound for pods that run, whatever the kubelet knows; raise Unavailable."""
        return ()

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever `possible` may answer otherwise; return when it never will."""

    async def sweep(self) -> None:
        """Forget what nobody needs any more, until cancelled."""

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[HeldShare, Edits],
        annotations: Mapping[str, str],
        holdings: Sequence[Holding] | None = None,
    ) -> object:
        """Bind every promise of a pod: to `edits` of its shares, else to the cards' own nodes.

        `annotations` are the pod's. `holdings` are all of it; None: the kubelet is asked.
        """

    async def detach(self, container: ContainerId) -> None:
        """End what is bound in a sandbox."""


class NoLateBinding(LateBinding):
    """No late binding on this node; `why` is said once for each resource that wishes for it."""

    def __init__(self, why: str, early: EarlySettings | None = None) -> None:
        self._why = why
        self._early = early or EarlySettings()
        self._notices = Notices()  # by resource

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """Every wish without late binding."""
        for spec in specs:
            if terms(spec).attach is Attach.NONE:
                continue
            event = "devices are given at Allocate, not bound to the pod's network"
            self._notices.warn(log, event, spec.resource, self._why, resource=spec.resource)
        return tuple(replace(spec, attach=Attach.NONE) for spec in specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what is offered now, by resource."""
        self._early.offered(pools)

    async def promise(self, pool: Pool, grant: Grant) -> Grant:
        """The grant itself, with settings."""
        return await self._early.give(pool, grant)
