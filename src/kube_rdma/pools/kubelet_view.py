"""Asks the kubelet about this node: who holds which shares, near to which GPUs, and what it lacks.

A card in a pod is not gone, and a change of mode has to wait for pods. So the agent's loop asks who
holds what. If the kubelet loses an offer, its node shows no cards. So a list that differs is sent
again, then the resource is registered again. The kubelet's answer may lack pods when it has just
started, so its own record completes its answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import structlog

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.lib.debounce import Debounce
from kube_rdma.model import holdings as model
from kube_rdma.model.attach.attachment import AttachedInterface
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.claim import ClaimDevice, PreparedClaim
from kube_rdma.model.claims.devices import ClaimedDevice, DeviceSlice
from kube_rdma.model.device import Gpu
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, HeldShare, PodName
from kube_rdma.model.pools import Grant, ShareId
from kube_rdma.pools.rules import nearness
from kube_rdma.pools.rules.claimed_cards import ClaimedCard, claimed_cards
from kube_rdma.pools.rules.holdings import card_of, completed, differs, running, unreported
from kube_rdma.pools.rules.pools import offer
from kube_rdma.pools.servers import ResourceServers

COMPARE_SECONDS = 300.0  # only a fault of the kubelet makes lists differ
DOUBT_SECONDS = 5.0  # while something differs
ADMISSION_SECONDS = 1.0  # after an Allocate, until the pod is among the kubelet's active ones
LATER_SECONDS = (2.0, 5.0, 15.0, 60.0)  # further waits, for claims that are not prepared yet

Container = tuple[str, str, str]  # namespace, pod, container

log = structlog.get_logger()


class KubeletRecord:
    """The kubelet's checkpoint on the disk, which has pods that the kubelet's answers may lack.

    `read` returns the record; it blocks, and raises Unavailable if that fails. `pods` returns
    this node's pods, or raises KubeError.
    """

    def __init__(
        self,
        read: Callable[[], tuple[model.RecordedGrant, ...]],
        pods: Callable[[], Awaitable[Sequence[PodState]]],
    ) -> None:
        self._read = read
        self._pods = pods
        self._named: dict[str, PodName] = {}  # of pods that ran, by uid
        self._ended: frozenset[str] = frozenset()  # by uid: no pod comes back
        self._notices = Notices()

    async def read(self) -> tuple[model.RecordedGrant, ...] | None:
        """Return the grants in the record, also of ended pods; None if it cannot be read."""
        try:
            recorded = await asyncio.to_thread(self._read)
        except Unavailable as error:
            self._notices.warn(log, "kubelet's record not read", "record", str(error))
            return None
        self._notices.over("record")
        uids = {grant.uid for grant in recorded}
        self._named = {uid: name for uid, name in self._named.items() if uid in uids}
        self._ended &= uids
        return recorded

    async def complete(
        self, recorded: Sequence[model.RecordedGrant], answer: model.NodeHoldings
    ) -> tuple[model.Holding, ...]:
        """Return the kubelet's shares, with recorded ones of running pods that its answer lacks.

        The record has to be older than the answer. Raise KubeError if the running pods cannot be
        read.
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
        self._named |= named
        self._ended |= uids - named.keys()
        whole = completed(answer, lacking, named)
        pods = sorted({f"{one.namespace}/{one.pod}" for one in whole[len(answer.shares) :]})
        for pod in self._notices.news("untold", *pods):
            log.info("pod not told by the kubelet", pod=pod)
        return whole


class NodeClaims:
    """The prepared claims of kube-rdma's own driver; this base class has none."""

    @property
    def booked(self) -> tuple[PreparedClaim, ...]:
        """Return every prepared claim of kube-rdma's driver on this node."""
        return ()

    def holdings(self) -> tuple[model.Holding, ...]:
        """Return the shares that containers of this node hold by claims."""
        return ()

    async def holdings_of(self, pod: PodName) -> tuple[model.Holding, ...]:
        """Return the shares that a pod's containers hold by claims; raise KubeError if unknown."""
        return ()

    async def interfaces_of(self, pod: PodName) -> tuple[ClaimDevice, ...]:
        """Return the devices of a pod's claims that become interfaces.

        Raise KubeError if the claims cannot be read.
        """
        return ()

    async def settle(self, pod: model.ClaimingSandbox) -> None:
        """Record at CNI ADD which claims a pod has, and which devices its containers hold."""

    async def detach(self, sandbox: ContainerId) -> None:
        """Forget at CNI DEL the devices of the sandbox's containers; its claims stay prepared."""

    async def attached(self, pod: PodName, interfaces: Sequence[AttachedInterface]) -> None:
        """Record the interfaces that networks made for a pod, for the status of its claims."""


class NodeSlices:
    """The ResourceSlices of a node; this base class has none."""

    async def follow(self) -> None:
        """Watch the ResourceSlices of this node, until cancelled."""

    def slices(self) -> tuple[DeviceSlice, ...]:
        """Return the slices of this node, of all drivers."""
        return ()

    async def expected(
        self, resource: str, held: Sequence[ClaimedDevice], gpus: nearness.ClaimGpus
    ) -> tuple[Gpu, ...]:
        """Return the GPUs claimed by starting pods that want `resource`; none if unknown."""
        return ()


class KubeletView:
    """A client of the kubelet's pod resources API; without `pod_resources` nothing is known."""

    def __init__(self, pod_resources: PodResources | None) -> None:
        self._pod_resources = pod_resources
        self._notices = Notices()
        self._doubts: dict[str, int] = {}  # by resource how many looks in a row found a difference
        self._grants = Debounce(ADMISSION_SECONDS, ADMISSION_SECONDS)
        self._given: dict[HeldShare, tuple[str, ...]] = {}
        self._reported: dict[Container, frozenset[HeldShare]] = {}
        self._without_gpu = False  # a container may get GPUs by a claim yet
        self.gpus: tuple[Gpu, ...] = ()  # of the last survey
        self.slices = NodeSlices()
        self.claims = NodeClaims()
        self.record: KubeletRecord | None = None  # None: the kubelet is taken at its word

    async def holdings(self) -> tuple[model.Holding, ...] | None:
        """Return the shares held on this node, through device plugins or kube-rdma's own claims.

        Return None when they are not known now, as `all_held` does.
        """
        held = await self.all_held()
        return held.shares if held else None

    async def all_held(self) -> model.NodeHoldings | None:
        """Return all shares held on this node, and devices held by claims of any driver.

        Return None when the kubelet cannot be asked now, or the pods that its answer lacks cannot
        be read.
        """
        held = await self._complete(await self.record.read() if self.record else None)
        return replace(held, shares=(*held.shares, *self.claims.holdings())) if held else None

    async def plugin_holders(self, resources: Collection[str]) -> dict[HeldShare, str]:
        """Return the holder, in words, of each plugin share of these resources that is held.

        If the holders are not known now, all pods in the kubelet's record count as holders. If the
        record has no grant of these resources, return none without asking the kubelet, which may
        wait for the caller. Raise Unavailable if the record is not readable either.
        """
        recorded = await self.record.read() if self.record else None
        mine = [grant for grant in recorded or () if grant.resource in resources]
        if recorded is not None and not mine:
            return {}
        held = await self._complete(recorded)
        if held is None and recorded is None:
            raise Unavailable(
                f"Which pods hold {', '.join(sorted(resources))} is not known: neither the kubelet "
                "nor its record answers."
            )
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

    async def _complete(
        self, recorded: Sequence[model.RecordedGrant] | None
    ) -> model.NodeHoldings | None:
        """Return the kubelet's answer, completed by an older record; None if unknown."""
        answer = await self._ask()
        if answer is None or self.record is None:
            return answer[0] if answer else None
        try:
            shares = await self.record.complete(recorded or (), answer[0])
        except KubeError as error:
            self._notices.warn(log, "share holders unknown", "untold", str(error))
            return None
        self._notices.over("untold")
        return replace(answer[0], shares=shares)

    def claimed_cards(self, held: model.NodeHoldings) -> tuple[ClaimedCard, ...]:
        """Return the devices held by claims that known slices publish as possible network cards."""
        return claimed_cards(held.devices, self.slices.slices())

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Keep one connection to the kubelet for all questions in the `with` block."""
        with self._pod_resources.connected() if self._pod_resources else nullcontext():
            yield

    async def holdings_of(self, pod: PodName) -> tuple[model.Holding, ...]:
        """Return what one pod's containers hold, by shares and by claims.

        Raise KubeError if the kubelet does not answer, or the API server for a pod with claims.
        """
        if self._pod_resources is None:
            raise Unavailable("The kubelet's pod-resources socket is not mounted.")
        held = await self._pod_resources.holdings_of(pod.namespace, pod.name)
        return (*held, *await self.claims.holdings_of(pod))

    async def free_gpus(self, resource: str) -> tuple[model.FreeGpu, ...]:
        """Return the free GPUs to which shares of a resource should now be near.

        These are the GPUs claimed by starting pods that want the resource, else all GPUs that no
        container holds. Return none when the kubelet cannot be asked now.
        """
        answer = await self._ask(allocatable=True)
        if answer is None:
            return ()
        held, allocatable = answer
        free = nearness.free_gpus(allocatable, held.shares, self.gpus)
        gpus = nearness.claim_gpus(self.slices.slices(), self.gpus)
        if gpus and (expected := await self.slices.expected(resource, held.devices, gpus)):
            return nearness.as_free(expected)
        return (*free, *nearness.as_free(nearness.free_claim_gpus(gpus, held.devices)))

    def granted(self, grant: Grant) -> None:
        """Record an Allocate, after which `report` logs the distances of its cards from GPUs."""
        given = {(grant.resource, share): grant.char_paths for share in grant.shares}
        self._given |= given
        # Another pod has these shares now, perhaps of the same name.
        old = (key for key, shares in self._reported.items() if shares & given.keys())
        for key in tuple(old):
            del self._reported[key]
        self._grants.touch()

    def given(self, resource: str, share: ShareId) -> tuple[str, ...]:
        """Return device paths of a share's last Allocate; none if an earlier agent answered it."""
        return self._given.get((resource, share), ())

    async def report(self, offers: ResourceServers) -> None:
        """Log after each Allocate how near a container's cards are to its GPUs, until cancelled.

        Where claims can have GPUs, look again later, for claims are prepared after Allocate.
        """
        later: tuple[float, ...] = ()
        while self._pod_resources:
            granted = await self._grants.wait(later[0] if later else None)
            for container, distance in await self.distances(offers):
                log.info(
                    "GPU distance measured",
                    container="/".join(container),
                    card=distance.card,
                    what=str(distance),
                )
            later = (LATER_SECONDS if granted else later[1:]) if self._without_gpu else ()

    async def distances(
        self, offers: ResourceServers
    ) -> tuple[tuple[Container, nearness.Distance], ...]:
        """Return card-to-GPU distances of containers not reported before; now they are."""
        answer = await self._ask(allocatable=True)
        if answer is None:
            return ()
        containers: dict[Container, list[model.Holding]] = {}
        now: dict[Container, frozenset[HeldShare]] = {}
        for one in answer[0].shares:
            key = (one.namespace, one.pod, one.container)
            containers.setdefault(key, []).append(one)
            now[key] = now.get(key, frozenset()).union((one.resource, s) for s in one.shares)
        claims = nearness.claim_gpus(self.slices.slices(), self.gpus)
        distances: list[tuple[Container, nearness.Distance]] = []
        without: set[Container] = set()
        for key, held in containers.items():
            if self._reported.get(key) == now[key]:  # another pod of the name may have others
                continue
            gpus = nearness.held_gpus(held, answer[1], self.gpus)
            gpus = (*gpus, *nearness.claimed_gpus(key, answer[0].devices, claims))
            distances += ((key, distance) for distance in _distances(offers, held, gpus))
            if claims and not gpus:
                without.add(key)
        self._without_gpu = bool(without)
        self._reported = {key: shares for key, shares in now.items() if key not in without}
        return tuple(distances)

    async def compare(self, offers: ResourceServers) -> None:
        """Compare and repair the kubelet's device lists (`check`) repeatedly, until cancelled."""
        while self._pod_resources:
            await asyncio.sleep(DOUBT_SECONDS if self._doubts else COMPARE_SECONDS)
            await self.check(offers)

    async def check(self, offers: ResourceServers) -> None:
        """Compare the kubelet's device lists with the offered ones once, and repair differences.

        A first difference may be an offer under way, so it only raises a doubt. After the second
        one in a row send the list again, after each further one register the resource again.
        """
        answer = await self._ask(allocatable=True)
        listed: dict[str, set[ShareId]] = {}
        for entry in answer[1] if answer else ():
            listed.setdefault(entry.resource, set()).add(entry.share)
        doubts: dict[str, int] = {}
        for resource, pool in offers.pools.items() if answer else ():
            difference = differs(offer(pool), listed.get(resource, set()))
            if not difference:
                continue
            times = doubts[resource] = self._doubts.get(resource, 0) + 1
            if times == 1:
                continue
            log.warning("device list differs", resource=resource, difference=difference)
            if times == 2:
                offers.tell_again(resource)
            else:
                offers.register_again(resource)
        self._doubts = doubts

    async def _ask(
        self, *, allocatable: bool = False
    ) -> tuple[model.NodeHoldings, tuple[model.Allocatable, ...]] | None:
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


def _distances(
    offers: ResourceServers, held: Sequence[model.Holding], gpus: Sequence[model.HeldGpu]
) -> tuple[nearness.Distance, ...]:
    names: set[CardId | None] = set()
    cards: dict[CardId, Card] = {}
    for holding in held:
        if pool := offers.pools.get(holding.resource):
            names |= {card_of(pool.spec, share) for share in holding.shares}
            cards |= {card.id: card for card in pool.cards}
    return nearness.gpu_distances([cards[name] for name in cards if name in names], gpus)
