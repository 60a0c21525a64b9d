"""Late binding of an agent that serves claims too: one act at CNI ADD, whoever handed a card out.

What Allocate promised is bound by programs/agent/late_binding/binder; what was prepared for claims
gets its nodes here, from the same plan of the same network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.card import CardId
from kube_rdma.model.late_binding.binding import ContainerId, Edits, HeldShare
from kube_rdma.model.pools.holding import Holding
from kube_rdma.programs.agent.claims.prepared_claims import PreparedClaims
from kube_rdma.programs.agent.claims.settings import ClaimingSandbox
from kube_rdma.programs.agent.late_binding.forwarding import ForwardingBinding
from kube_rdma.programs.agent.late_binding.interface import LateBinding


class WithClaims(ForwardingBinding):
    """`shares` does what it does for shares of the device plugin; `claims` comes besides."""

    def __init__(self, shares: LateBinding, claims: PreparedClaims) -> None:
        super().__init__(shares)
        self._claims = claims

    def cards(self) -> frozenset[CardId] | None:
        """The cards that are promised to pods, bound or prepared for claims."""
        shares, claims = super().cards(), self._claims.cards()
        return None if shares is None or claims is None else shares | claims

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[HeldShare, Edits],
        annotations: Mapping[str, str],
        holdings: Sequence[Holding] | None = None,
    ) -> object:
        """Bind every promise of a pod, and what its claims stand for."""
        bound = await super().attach(sandbox, edits, annotations, holdings)
        await self._claims.attach(edits)
        if holdings is not None:
            await self._claims.settle(ClaimingSandbox(sandbox, holdings, annotations, edits))
        return bound

    async def detach(self, container: ContainerId) -> None:
        """End what is bound in a sandbox; a claim is prepared until the kubelet gives it back."""
        await super().detach(container)
        await self._claims.detach(container)
