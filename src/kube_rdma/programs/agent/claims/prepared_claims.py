"""Claims that are prepared on this node: what the kubelet asks for, booked so that it lasts.

    NodePrepareResources ─ rules/claims/prepare ─► journal ─► CDI file ─► answer
    NodeUnprepareResources ─────────────────────► CDI file gone ─► journal
    CNI ADD ─ what the network made ────────────► journal ─► CDI file

The order survives a crash: the record stands before the file, and the answer after it. So an answer
is true when it is given: the folder of CDI files is empty after a reboot (/run is a tmpfs), and a
record alone says nothing of it. What is booked is what the scheduler allocated, so nothing here
chooses, and preparing twice is the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.prepared import (
    AllocatedClaim,
    ClaimName,
    ClaimShare,
    PreparedClaim,
    PreparedDevice,
)
from kube_rdma.model.claims.users import PodClaims
from kube_rdma.model.late_binding.binding import Edits, HeldShare, PodName, lift_memlock
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Bind, Pool
from kube_rdma.programs.records import Records, in_the_log
from kube_rdma.rules.claims.holders import claims_of, holdings, node_holdings
from kube_rdma.rules.claims.prepare import (
    BookingNode,
    answer,
    book,
    devices_of,
    rebooked,
    refuse_vanished,
    stands,
)
from kube_rdma.rules.late_binding.binding import SETTLED
from kube_rdma.rules.pools.modes import terms

log = structlog.get_logger()


class ClaimDependencies(Frozen):
    """Whom the bookings need.

    `read` has what bears the name of a claim now, `pod` the claims of a pod; both raise KubeError.
    `node` is this node's name, which its pool of devices has too; `boot` tells one boot of it from
    another. `shim` is a path of the host. `tell` takes a sentence for each record that cannot be
    read.
    """

    journal: Journal[PreparedClaim]
    cdi: CdiFolder
    read: Callable[[ClaimName], Awaitable[AllocatedClaim | None]]
    pod: Callable[[PodName], Awaitable[PodClaims | None]]
    node: str
    boot: str
    shim: Callable[[], str | None] = lambda: None
    tell: Callable[[str], None] = in_the_log
    settled: float = SETTLED


class PreparedClaims:
    """One per agent; one call at a time changes anything."""

    def __init__(self, to: ClaimDependencies) -> None:
        """Read the journal; records that cannot be read are reported, and block nothing else."""
        self._to = to
        self._records = Records(to.journal, to.tell)
        self._turn = asyncio.Lock()
        self._pools: Mapping[str, Pool] | None = None
        self._pods: dict[str, PodClaims] = {}  # those that had a network, by uid

    @property
    def booked(self) -> tuple[PreparedClaim, ...]:
        """Every claim that is prepared."""
        return self._records.values

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what is offered now, by resource."""
        self._pools = pools

    async def prepare(self, claim: ClaimName) -> Sequence[PreparedDevice]:
        """What the kubelet is answered; raise KubeError with the sentence that it shows."""
        await self._records.refuse_foreign(claim.uid)
        self._node()  # nothing is asked before there is something to give
        # Outside of the turn: what is prepared, attached or given back waits for no API server.
        allocated = None if self._records.get(claim.uid) else await self._to.read(claim)
        async with self._turn:
            node = self._node()
            before = self._records.get(claim.uid)
            if before and stands(before, node):
                prepared = before
            elif before:
                refuse_vanished(before, node)
                prepared = rebooked(before, node)
            else:
                prepared = book(claim, allocated, node, time.time())
            await self._keep(prepared)
        if before is None:
            cards = dict.fromkeys(card for share in prepared.shares for card in share.cards)
            log.info("claim prepared", claim=str(claim), cards=",".join(cards))
        return answer(prepared)

    async def unprepare(self, claim: ClaimName) -> None:
        """Forget a claim; nothing there is not an error. Raise KubeError."""
        async with self._turn:
            await self._end(claim)

    async def restore(self) -> None:
        """After a start, and before the kubelet hears of the driver: every file is there again.

        A claim that is gone, while neither kubelet nor agent ran, is forgotten.
        """
        async with self._turn:
            for prepared in self.booked:
                if await self._is_over(prepared):
                    log.info("claim ended without a word", claim=str(prepared.claim))
                    await self._end(prepared.claim)
                    continue
                node = self._node()
                now = prepared if stands(prepared, node) else rebooked(prepared, node)
                await self._keep(now)
            kept = {prepared.claim.uid for prepared in self.booked} | self._records.foreign_names
            for uid in await asyncio.to_thread(self._to.cdi.claims):
                if uid not in kept:
                    await asyncio.to_thread(self._to.cdi.remove_claim, uid)

    async def holdings_of(self, pod: PodName) -> tuple[Holding, ...]:
        """What the containers of a pod hold by claims; raise KubeError when nobody tells.

        Nothing is asked where no claim of its namespace is prepared.
        """
        if not any(one.claim.namespace == pod.namespace for one in self.booked):
            return ()
        claims = await self._to.pod(pod)
        if claims is None:
            return ()
        if claims_of(claims, self.booked):
            self._pods[claims.uid] = claims
        return holdings(claims, self.booked)

    def holdings(self) -> tuple[Holding, ...]:
        """What is held by claims on this node."""
        return node_holdings(self.booked, self._pods)

    def cards(self) -> frozenset[CardId] | None:
        """The cards of prepared claims; None where a record is not understood.

        A share of a whole pool stands for all of its cards, so nobody has one by it.
        """
        if self._records.foreign_names:
            return None
        pools = self._pools or {}
        whole = {name for name, pool in pools.items() if terms(pool.spec).bind is Bind.POOL}
        shares = (share for one in self.booked for share in one.shares)
        return frozenset(c for share in shares if share.resource not in whole for c in share.cards)

    async def attach(self, edits: Mapping[HeldShare, Edits]) -> None:
        """CNI ADD: what claims stand for is from now on what was made for the pod.

        The kernel gives a device that moves into a pod new nodes. When a file changed, the runtime
        has time to see it before the pod's containers are made. Raise KubeError.
        """
        async with self._turn:
            changed = False
            for prepared in self.booked:
                shares = tuple(_made(share, edits) for share in prepared.shares)
                if shares != prepared.shares:
                    changed |= await self._keep(replace(prepared, shares=shares))
        if changed:
            await asyncio.sleep(self._to.settled)

    async def _keep(self, prepared: PreparedClaim) -> bool:
        """The record first, then the file; True when the file changed."""
        uid = prepared.claim.uid
        hooks = (lift_memlock(shim),) if (shim := self._to.shim()) else ()
        devices = [
            (share.cdi, Edits(share.char_paths, hooks=hooks))
            for share in prepared.shares
            if share.cdi and share.char_paths
        ]
        write = partial(self._to.cdi.write_claim, uid, devices)
        if self._records.get(uid) == prepared:
            return await asyncio.to_thread(write)
        return await self._records.put_before(uid, prepared, write)

    async def _end(self, claim: ClaimName) -> None:
        """The file goes first: without it no container starts any more."""
        await self._records.refuse_foreign(claim.uid)
        await asyncio.to_thread(self._to.cdi.remove_claim, claim.uid)
        if ended := self._records.get(claim.uid):
            await self._records.forget(claim.uid)
            self._pods = {
                uid: pod for uid, pod in self._pods.items() if not claims_of(pod, [ended])
            }
            log.info("claim given back", claim=str(claim))

    async def _is_over(self, prepared: PreparedClaim) -> bool:
        """Whether the claim is surely gone; while nobody can say, it is not."""
        try:
            claim = await self._to.read(prepared.claim)
        except KubeError as error:
            log.warning("claim not read", claim=str(prepared.claim), why=str(error))
            return False
        return claim is None or claim.claim.uid != prepared.claim.uid

    def _node(self) -> BookingNode:
        if self._pools is None:
            raise Unavailable(
                "The cards of this node are not known yet: the agent has just started."
            )
        devices = devices_of(self._pools.values())
        return BookingNode(self._to.node, self._to.boot, devices, self.booked)


def _made(share: ClaimShare, edits: Mapping[HeldShare, Edits]) -> ClaimShare:
    """The share with what its networks made; one that has no name cannot be told."""
    made = edits.get((share.resource, share.share))
    return replace(share, char_paths=made.char_paths) if made and share.cdi else share
