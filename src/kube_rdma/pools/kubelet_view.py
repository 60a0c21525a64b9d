"""What the kubelet believes about this node, beside what it was offered.

Three questions of role `plugin`: who holds which shares (a card in a pod is not gone, a change of
mode has to wait), how near to its GPUs a container's cards turned out to be, and whether the
kubelet has what it was offered. It loses offers, as its issues tell, and then a node shows no cards
until somebody restarts the plugin; so what differs is sent again, then registered again. And it
tells of no pods when it has just started, so its own record completes what it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.claim import ClaimDevice, PreparedClaim
from kube_rdma.model.device import Gpu
from kube_rdma.model.holdings import (
    Allocatable,
    FreeGpu,
    HeldGpu,
    Holding,
    NodeHoldings,
    RecordedGrant,
)
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, HeldShare, PodName
from kube_rdma.model.pools import Grant, ShareId
from kube_rdma.pools.rules.claimed_cards import ClaimedCard, claimed_cards
from kube_rdma.pools.rules.holdings import card_of, completed, differs, running, unreported
from kube_rdma.pools.rules.pools import offer
from kube_rdma.pools.rules.topology import (
    Distance,
    as_free,
    claimed_gpus,
    free_claim_gpus,
    free_gpus,
    gpu_distances,
    held_gpus,
)
from kube_rdma.pools.servers import ResourceServers

if TYPE_CHECKING:
    from kube_rdma.attach.claim_settings import ClaimingSandbox
    from kube_rdma.claims.prepared_claims import PreparedClaims
    from kube_rdma.claims.publisher import ClaimedGpus
    from kube_rdma.model.attach.attachment import Attached

# Completes what the kubelet tells, after its start, by what it wrote down before.

log = structlog.get_logger()


class KubeletRecord:
    """`read` reads the record, blocks and raises Unavailable; `pods` are those of this node."""

    def __init__(
        self,
        read: Callable[[], tuple[RecordedGrant, ...]],
        pods: Callable[[], Awaitable[Sequence[PodState]]],
    ) -> None:
        self._read = read
        self._pods = pods
        self._named: dict[str, PodName] = {}  # of the pods in the record, by uid
        self._ended: frozenset[str] = frozenset()  # by uid: no pod comes back
        self._notices = Notices()

    async def read(self) -> tuple[RecordedGrant, ...]:
        """What was given, to pods that have ended too; nothing while the record cannot be read."""
        try:
            recorded = await asyncio.to_thread(self._read)
        except Unavailable as error:
            self._notices.warn(log, "kubelet's record not read", "record", str(error))
            return ()
        self._notices.over("record")
        uids = {grant.uid for grant in recorded}
        self._named = {uid: name for uid, name in self._named.items() if uid in uids}
        self._ended &= uids
        return recorded

    async def complete(
        self, recorded: Sequence[RecordedGrant], answer: NodeHoldings
    ) -> tuple[Holding, ...]:
        """What the kubelet tells, and what it told before its start of pods that still run.

        The record has to be older than the answer. Raise KubeError when nobody tells who runs.
        """
        if not answer.pods:  # it has just started: the mirror of a static pod may have come late
            self._ended = frozenset()
        lasting = [grant for grant in recorded if grant.uid not in self._ended]
        lacking = unreported(lasting, answer, self._named)
        if not lacking:
            self._notices.over("untold")
            return answer.shares
        named = running(await self._pods())
        uids = {grant.uid for grant in lacking}
        self._named |= {uid: name for uid, name in named.items() if uid in uids}
        self._ended |= uids - named.keys()
        whole = completed(answer, lacking, named)
        pods = sorted({f"{one.namespace}/{one.pod}" for one in whole[len(answer.shares) :]})
        for pod in self._notices.news("untold", *pods):
            log.info("pod not told by the kubelet", pod=pod)
        return whole


COMPARE_SECONDS = 60.0
DOUBT_SECONDS = 5.0  # while something differs
ADMISSION_SECONDS = 1.0  # after an Allocate, until the pod is among the kubelet's active ones
LATER_SECONDS = (2.0, 5.0, 15.0, 60.0)  # until its claims are prepared, while others have to be


Container = tuple[str, str, str]  # namespace, pod, container


class KubeletView:
    """Asks the pod resources API; without it (None) everything is answered by not knowing."""

    def __init__(self, pod_resources: PodResources | None) -> None:
        self._pod_resources = pod_resources
        self._notices = Notices()
        self._doubts: dict[str, int] = {}  # by resource how many looks in a row found a difference
        self._grants = Debounce(ADMISSION_SECONDS, ADMISSION_SECONDS)
        self._given: dict[HeldShare, tuple[str, ...]] = {}
        self._reported: dict[Container, frozenset[HeldShare]] = {}
        self._without_gpu = False  # a container may get GPUs by a claim yet
        self.gpus: tuple[Gpu, ...] = ()  # of the last survey
        self.claimed: ClaimedGpus | None = None  # None: no API server tells of slices
        self.prepared: PreparedClaims | None = None  # None: no claim is served here
        self.record: KubeletRecord | None = None  # None: the kubelet is taken at its word

    async def holdings(self) -> tuple[Holding, ...] | None:
        """Who holds what on this node, by shares and by kube-rdma's own claims.

        None when the kubelet cannot be asked now.
        """
        held = await self.all_held()
        return held.shares if held else None

    async def all_held(self) -> NodeHoldings | None:
        """The same, and besides it what containers hold by claims of any driver."""
        held = await self._complete(await self.record.read() if self.record else ())
        if held is None or self.prepared is None:
            return held
        return replace(held, shares=(*held.shares, *self.prepared.holdings()))

    async def plugin_holders(self, resources: Collection[str]) -> dict[HeldShare, str]:
        """Who holds shares of these by the device plugin, in words.

        While nobody tells who still runs, whoever the kubelet wrote down. Where it wrote nothing of
        these resources it is not asked: the kubelet waits for the answer that this is for.
        """
        recorded = await self.record.read() if self.record else ()
        mine = [grant for grant in recorded if grant.resource in resources]
        if self.record and not mine:
            return {}
        held = await self._complete(recorded)
        if held is None:
            return {
                (grant.resource, share): f"the pod with the uid {grant.uid}"
                for grant in mine
                for share in grant.shares
            }
        return {
            (one.resource, share): f"pod {one.namespace}/{one.pod}"
            for one in held.shares
            for share in one.shares
            if one.resource in resources
        }

    async def _complete(self, recorded: Sequence[RecordedGrant]) -> NodeHoldings | None:
        """What the kubelet tells, and of shares what it wrote down and does not tell of now.

        The record is read before the kubelet is asked.
        """
        answer = await self._ask()
        if answer is None or self.record is None:
            return answer[0] if answer else None
        try:
            shares = await self.record.complete(recorded, answer[0])
        except KubeError as error:
            self._notices.warn(log, "share holders unknown", "untold", str(error))
            return None
        self._notices.over("untold")
        return replace(answer[0], shares=shares)

    def claimed_cards(self, held: NodeHoldings) -> tuple[ClaimedCard, ...]:
        """What of it may be network cards; nothing where no API server tells of slices."""
        return claimed_cards(held.devices, self.claimed.slices()) if self.claimed else ()

    def booked(self) -> tuple[PreparedClaim, ...]:
        """The claims of kube-rdma's own driver that are prepared on this node."""
        return self.prepared.booked if self.prepared else ()

    async def claimed_interfaces(self, pod: PodName) -> tuple[ClaimDevice, ...]:
        """What the parameters of a pod's claims ask for; raise KubeError when nobody tells."""
        return await self.prepared.interfaces_of(pod) if self.prepared else ()

    async def settle(self, pod: ClaimingSandbox) -> None:
        """What a pod has by claims is what was made for it, and its containers are told of it."""
        if self.prepared:
            await self.prepared.attach(pod.edits)
            await self.prepared.settle(pod)

    async def detach(self, sandbox: ContainerId) -> None:
        """Nothing is told any more; a claim is prepared until the kubelet gives it back."""
        if self.prepared:
            await self.prepared.detach(sandbox)

    async def attached(self, pod: PodName, interfaces: Sequence[Attached]) -> None:
        """Networks were made for a pod, which its claims tell."""
        if self.prepared:
            await self.prepared.attached(pod, interfaces)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Keep one connection to the kubelet for all questions in the block."""
        with self._pod_resources.connected() if self._pod_resources else nullcontext():
            yield

    async def holdings_of(self, pod: PodName) -> tuple[Holding, ...]:
        """What the containers of one pod hold, by shares and by claims.

        Raise Unavailable when the kubelet does not tell, or the API server of a pod with claims.
        """
        if self._pod_resources is None:
            raise Unavailable("The kubelet's pod-resources socket is not mounted.")
        held = await self._pod_resources.holdings_of(pod.namespace, pod.name)
        return (*held, *await self.prepared.holdings_of(pod)) if self.prepared else held

    async def free_gpus(self, resource: str) -> tuple[FreeGpu, ...]:
        """The GPUs beside which shares of a resource are wanted now.

        Those of the claims of starting pods that ask for it, else all that no container holds; none
        when the kubelet cannot be asked now.
        """
        answer = await self._ask(allocatable=True)
        if answer is None:
            return ()
        held, allocatable = answer
        plugins = free_gpus(allocatable, held.shares, self.gpus)
        gpus = self.claimed.here(self.gpus) if self.claimed else {}
        if not self.claimed or not gpus:
            return plugins
        if expected := await self.claimed.expected(resource, held.devices, gpus):
            return as_free(expected)
        return (*plugins, *as_free(free_claim_gpus(gpus, held.devices)))

    def granted(self, grant: Grant) -> None:
        """Take note of an Allocate: `report` will say how near the GPUs are."""
        given = {(grant.resource, share): grant.char_paths for share in grant.shares}
        self._given |= given
        # A pod that comes after one of its name has them now.
        old = (key for key, shares in self._reported.items() if shares & given.keys())
        for key in tuple(old):
            del self._reported[key]
        self._grants.touch()

    def given(self, resource: str, share: ShareId) -> tuple[str, ...]:
        """The device nodes that Allocate gave last for a share; none for an earlier agent's."""
        return self._given.get((resource, share), ())

    async def report(self, offers: ResourceServers) -> None:
        """After each Allocate log how near a container's cards are to its GPUs, until cancelled.

        Claims are prepared later than that, so where they have GPUs there are further looks.
        """
        later: tuple[float, ...] = ()
        while self._pod_resources:
            granted = await self._grants.wait(later[0] if later else None)
            for (namespace, pod, container), distance in await self.distances(offers):
                where = f"{namespace}/{pod}/{container}"
                log.info(
                    "GPU distance measured", container=where, card=distance.card, what=str(distance)
                )
            later = (LATER_SECONDS if granted else later[1:]) if self._without_gpu else ()

    async def distances(self, offers: ResourceServers) -> tuple[tuple[Container, Distance], ...]:
        """The distances of containers that had none before."""
        answer = await self._ask(allocatable=True)
        if answer is None:
            return ()
        containers: dict[Container, list[Holding]] = {}
        for share in answer[0].shares:
            key = (share.namespace, share.pod, share.container)
            containers.setdefault(key, []).append(share)
        claims = self.claimed.here(self.gpus) if self.claimed else {}
        distances: list[tuple[Container, Distance]] = []
        without: set[Container] = set()
        now = {key: _shares(held) for key, held in containers.items()}
        for key, held in containers.items():
            if self._reported.get(key) == now[key]:
                continue
            gpus = held_gpus(held, answer[1], self.gpus)
            gpus = (*gpus, *claimed_gpus(key, answer[0].devices, claims))
            distances += ((key, distance) for distance in self._distances(offers, held, gpus))
            if claims and not gpus:
                without.add(key)
        self._without_gpu = bool(without)
        self._reported = {key: shares for key, shares in now.items() if key not in without}
        return tuple(distances)

    async def compare(self, offers: ResourceServers) -> None:
        """Repair what the kubelet lost, until cancelled."""
        while self._pod_resources:
            await asyncio.sleep(DOUBT_SECONDS if self._doubts else COMPARE_SECONDS)
            await self.check(offers)

    async def check(self, offers: ResourceServers) -> None:
        """Compare once. A first difference may be an offer under way, so it only raises a doubt.

        The second look sends the list again, every further one registers again.
        """
        answer = await self._ask(allocatable=True)
        differences = self._differences(offers, answer[1]) if answer else {}
        self._doubts = {name: self._doubts.get(name, 0) + 1 for name in differences}
        for resource, times in self._doubts.items():
            if times == 1:
                continue
            log.warning(
                "device list differs",
                resource=resource,
                difference=differences[resource],
            )
            if times == 2:
                offers.tell_again(resource)
            else:
                offers.register_again(resource)

    def _differences(
        self, offers: ResourceServers, allocatable: Sequence[Allocatable]
    ) -> dict[str, str]:
        shares: dict[str, set[ShareId]] = {}
        for entry in allocatable:
            shares.setdefault(entry.resource, set()).add(entry.share)
        differences = {
            resource: differs(offer(pool), shares.get(resource, set()))
            for resource, pool in offers.pools.items()
        }
        return {resource: text for resource, text in differences.items() if text}

    def _distances(
        self, offers: ResourceServers, held: Sequence[Holding], gpus: Sequence[HeldGpu]
    ) -> tuple[Distance, ...]:
        names: set[CardId | None] = set()
        cards: dict[CardId, Card] = {}
        for holding in held:
            if pool := offers.pools.get(holding.resource):
                names |= {card_of(pool.spec, share) for share in holding.shares}
                cards |= {card.id: card for card in pool.cards}
        mine = [card for name, card in cards.items() if name in names]
        return gpu_distances(mine, gpus)

    async def _ask(
        self, *, allocatable: bool = False
    ) -> tuple[NodeHoldings, tuple[Allocatable, ...]] | None:
        if self._pod_resources is None:
            return None
        try:
            allocatable_shares = await self._pod_resources.allocatable() if allocatable else ()
            holdings = await self._pod_resources.all_held()
        except Unavailable as error:
            self._notices.warn(log, "share holders unknown", "holdings", str(error))
            return None
        self._notices.over("holdings")
        return holdings, allocatable_shares


def _shares(holdings: Sequence[Holding]) -> frozenset[HeldShare]:
    """A pod that comes after one of its name may have others."""
    return frozenset((held.resource, share) for held in holdings for share in held.shares)
