"""Claims that are prepared on this node: what the kubelet asks for, booked so that it lasts.

    NodePrepareResources ─ claims/rules/prepare ─► journal ─► CDI file ─► answer
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
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.cni.state import ClaimedNamespaces
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import ClaimFiles
from kube_rdma.attach.claim_settings import ClaimSettings
from kube_rdma.attach.rules.claim_networks import (
    claims_of,
    holdings,
    interfaces,
    node_holdings,
    refuse_uncalled,
)
from kube_rdma.attach.rules.late_binding import SETTLED
from kube_rdma.claims.parameters import parameters_by_request
from kube_rdma.claims.rules.prepare import (
    Attributes,
    BookingNode,
    Taken,
    answer,
    book,
    device_statuses_of,
    devices_of,
    files,
    own_pod,
    rebooked,
    refuse_vanished,
    request_of,
    stands,
)
from kube_rdma.lib.records import Records, in_the_log
from kube_rdma.model.attach.attachment import Attached
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.card import CardId
from kube_rdma.model.claims.claim import (
    AllocatedClaim,
    ClaimDevice,
    ClaimName,
    ClaimShare,
    DeviceStatus,
    PodClaims,
    PreparedClaim,
    PreparedDevice,
)
from kube_rdma.model.holdings import ClaimingSandbox, Holding
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import (
    ContainerId,
    Edits,
    HeldShare,
    PodName,
    PodSandbox,
    RuntimeHook,
    lift_memlock,
    merge_settings,
)
from kube_rdma.model.pools import Bind, FileMount, Pool
from kube_rdma.pools.kubelet_view import NodeClaims
from kube_rdma.pools.rules.allocation import limited, unheld
from kube_rdma.pools.rules.modes import terms

# Files by which programs in a container learn of its claims (KEP-5304): written and mounted.

log = structlog.get_logger()


class ClaimMetadata:
    """One per agent; `attributes` are what the slices of the node say of its devices now."""

    def __init__(self, folder: ClaimFiles, attributes: Callable[[], Attributes]) -> None:
        self._folder = folder
        self._attributes = attributes
        self._notices = Notices()

    def mounts(self, prepared: PreparedClaim) -> dict[str, FileMount]:
        """By request what its containers see, once it lies there; raise Unavailable. It blocks."""
        texts = self._texts(prepared)
        paths = self._folder.put(prepared.claim.uid, texts[0])
        return {
            name: FileMount(paths[name], where) for name, where in zip(paths, texts[1], strict=True)
        }

    async def attached(self, prepared: PreparedClaim, interfaces: Sequence[Attached]) -> None:
        """Its pod got these interfaces; what fails is told once, and the file stays as it was."""
        if not prepared.pod_claim:
            return
        texts, _ = self._texts(prepared, interfaces)
        try:
            await asyncio.to_thread(self._folder.put, prepared.claim.uid, texts)
        except Unavailable as error:
            self._notices.warn(
                log,
                "metadata of claim not written",
                "metadata",
                str(error),
                claim=str(prepared.claim),
            )
            return
        self._notices.over("metadata")

    async def remove(self, uid: str) -> None:
        """The claim was given back; raise Unavailable."""
        await asyncio.to_thread(self._folder.remove, uid)

    def _texts(
        self, prepared: PreparedClaim, interfaces: Sequence[Attached] = ()
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """The texts by request, and where a container has each."""
        made = files(prepared, own_pod(prepared), self._attributes(), interfaces)
        return {request_of(path): text for path, text in made.items()}, tuple(made)


# Writes what became of the devices of claims into their status, beside all that matters.

Statuses = tuple[DeviceStatus, ...]
WriteStatuses = Callable[[ClaimName, Sequence[DeviceStatus]], Awaitable[None]]


class ClaimStatuses:
    """One per agent; `write` raises KubeError, Conflict for a claim that is gone."""

    def __init__(self, write: WriteStatuses) -> None:
        self._write = write
        self._wanted: dict[ClaimName, Statuses] = {}
        self._written: dict[ClaimName, Statuses] = {}
        self._news = asyncio.Event()
        self._notices = Notices()

    def tell(self, claim: ClaimName, statuses: Statuses) -> None:
        """From now on this is what the claim should say; returns at once."""
        self._wanted[claim] = statuses
        self._news.set()

    def forget(self, claim: ClaimName) -> None:
        """The claim was given back: what it says last stays."""
        self._wanted.pop(claim, None)
        self._written.pop(claim, None)

    async def run(self) -> None:
        """Write, until cancelled."""
        failures = 0
        while True:
            await self._news.wait()
            self._news.clear()
            await self.write()
            if self._wanted:
                await asyncio.sleep(full_jitter(failures))
                failures += 1
                self._news.set()
            else:
                failures = 0

    async def write(self) -> None:
        """Write each once; what the API server did not answer stays wanted."""
        for claim, statuses in tuple(self._wanted.items()):
            if self._written.get(claim) != statuses and not await self._try(claim, statuses):
                continue
            if self._wanted.get(claim) == statuses:  # nobody has told anything newer
                del self._wanted[claim]

    async def _try(self, claim: ClaimName, statuses: Statuses) -> bool:
        """Whether there is nothing more to do about it."""
        try:
            await self._write(claim, statuses)
        except Conflict:
            return True  # gone, or another one by now
        except KubeError as error:
            # One sentence stands for all claims: a right that is missing is missing for each.
            for _ in self._notices.news("status", type(error).__name__):
                log.warning("status of claim not written", claim=str(claim), why=str(error))
            return not isinstance(error, Unavailable)
        except Exception as error:  # noqa: BLE001  of one claim
            object_failed("ResourceClaim", claim, error)
            return True
        self._written[claim] = statuses
        self._notices.over("status")
        return True


async def nobody(_: Collection[str]) -> Mapping[HeldShare, str]:
    """No pod has a share by the device plugin."""
    return {}


class ClaimDependencies(Frozen):
    """Whom the bookings need.

    `read` has what bears the name of a claim now, `pod` the claims of a pod, `sandboxes` are the
    runtime's; all raise KubeError.
    `node` is this node's name, which its pool of devices has too; `boot` tells one boot of it from
    another. `shim` is a path of the host, `wiring` says who calls for pods, and `claimed` tells the
    shim of those that ask without an annotation. Without `settings` containers are not told of
    their devices, without `metadata` not what these are, and without `statuses` claims say
    nothing of them. `holders` tells who holds shares of resources by the device plugin, `hold` has
    the kernel hold the pods of a claim to their limits (None: this agent cannot), and `tell` takes
    a sentence for each record that cannot be read.
    """

    journal: Journal[PreparedClaim]
    cdi: CdiFolder
    read: Callable[[ClaimName], Awaitable[AllocatedClaim | None]]
    pod: Callable[[PodName], Awaitable[PodClaims | None]]
    sandboxes: Callable[[], Awaitable[Sequence[PodSandbox]]]
    node: str
    boot: str
    shim: Callable[[], str | None] = lambda: None
    wiring: Callable[[], Wiring] = lambda: Wiring.CHAIN
    claimed: ClaimedNamespaces | None = None
    settings: ClaimSettings | None = None
    statuses: ClaimStatuses | None = None
    metadata: ClaimMetadata | None = None
    holders: Callable[[Collection[str]], Awaitable[Mapping[HeldShare, str]]] = nobody
    hold: Callable[[PreparedClaim], Awaitable[None]] | None = None
    tell: Callable[[str], None] = in_the_log
    settled: float = SETTLED


class PreparedClaims(NodeClaims):
    """One per agent; one call at a time changes anything."""

    def __init__(self, to: ClaimDependencies) -> None:
        """Read the journal; records that cannot be read are reported, and block nothing else."""
        self._to = to
        self._records = Records(to.journal, to.tell)
        self._turn = asyncio.Lock()
        self._pools: Mapping[str, Pool] | None = None
        self._pods: dict[str, PodClaims] = {}  # those that had a network, by uid
        self._inside: dict[PodName, dict[InterfaceName, Attached]] = {}
        self._sandboxes: dict[ContainerId, PodName] = {}

    @property
    def booked(self) -> tuple[PreparedClaim, ...]:
        """Every claim that is prepared."""
        return self._records.values

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Take note of what is offered now, by resource."""
        self._pools = pools

    async def prepare(self, claim: ClaimName) -> Sequence[PreparedDevice]:
        """What the kubelet is answered; raise KubeError with the sentence that it shows.

        A kubelet that lost its record gives no claim back: where others are in the way, those that
        are over end first.
        """
        try:
            return await self._prepare(claim)
        except Taken:
            if not await self._end_over():
                raise
        return await self._prepare(claim)

    async def _prepare(self, claim: ClaimName) -> Sequence[PreparedDevice]:
        await self._records.refuse_foreign(claim.uid)
        self._node()  # nothing is asked before there is something to give
        # Outside of the turn: what is prepared, attached or given back waits for no API server.
        is_new = self._records.get(claim.uid) is None
        allocated = await self._to.read(claim) if is_new else None
        is_same = allocated is not None and allocated.claim.uid == claim.uid
        parameters = parameters_by_request(allocated) if allocated and is_same else {}
        holders = await self._to.holders((self._pools or {}).keys()) if is_new else {}
        async with self._turn:
            node = replace(self._node(), holders=holders)
            before = self._records.get(claim.uid)
            if before and stands(before, node):
                prepared = before
            elif before:
                refuse_vanished(before, node)
                prepared = rebooked(before, node)
            else:
                prepared = book(claim, allocated, node, time.time(), parameters)
                refuse_uncalled(prepared, self._to.wiring())
            await self._keep(prepared)
        await self._limit(prepared)
        self._report(prepared)
        if before is None:
            cards = dict.fromkeys(card for share in prepared.shares for card in share.cards)
            log.info("claim prepared", claim=str(claim), cards=",".join(cards))
        return answer(prepared)

    async def _limit(self, prepared: PreparedClaim) -> None:
        """Have the kernel hold the claim's pods to their limits; raise KubeError."""
        limits = limited(self._pools or {})
        mine = [one.resource for one in prepared.shares if one.resource in limits and not one.admin]
        if mine and self._to.hold is None:
            raise unheld(mine[0])
        if mine and self._to.hold:
            await self._to.hold(prepared)

    async def unprepare(self, claim: ClaimName) -> None:
        """Forget a claim; nothing there is not an error. Raise KubeError."""
        async with self._turn:
            await self._end(claim)

    async def restore(self) -> None:
        """After a start, and before the kubelet hears of the driver: every file is there again.

        A claim that is gone, while neither kubelet nor agent ran, is forgotten, unless a pod that
        it was given to is there: a restore of etcd makes pods new claims, and they keep the devices
        of the old ones. The kubelet gives these back when their pods are gone.
        """
        await self._end_over()
        async with self._turn:
            for prepared in self.booked:
                try:
                    node = self._node()
                    now = prepared if stands(prepared, node) else rebooked(prepared, node)
                    await self._keep(now)
                except KubeError:
                    raise
                except Exception as error:  # noqa: BLE001  of one claim
                    self._to.tell(object_failed("ResourceClaim", prepared.claim, error))
            kept = {prepared.claim.uid for prepared in self.booked} | self._records.foreign_names
            for uid in await asyncio.to_thread(self._to.cdi.claims):
                if uid not in kept:
                    await asyncio.to_thread(self._to.cdi.remove_claim, uid)

    async def holdings_of(self, pod: PodName) -> tuple[Holding, ...]:
        """What the containers of a pod hold by claims; raise KubeError when nobody tells.

        Nothing is asked where no claim of its namespace is prepared.
        """
        claims = await self._claims_of(pod)
        return holdings(claims, self.booked) if claims else ()

    async def interfaces_of(self, pod: PodName) -> tuple[ClaimDevice, ...]:
        """What the parameters of a pod's claims ask for; asks and raises as `holdings_of`."""
        mine = (one for one in self.booked if one.claim.namespace == pod.namespace)
        if not any(share.makes_interface for one in mine for share in one.shares):
            return ()
        claims = await self._claims_of(pod)
        return interfaces(claims, self.booked) if claims else ()

    async def _claims_of(self, pod: PodName) -> PodClaims | None:
        if not any(one.claim.namespace == pod.namespace for one in self.booked):
            return None
        claims = await self._to.pod(pod)
        if claims:
            self.seen(claims)
        return claims

    def seen(self, pod: PodClaims) -> None:
        """Take note of a pod's claims, while one of them is prepared."""
        if claims_of(pod, self.booked):
            self._pods[pod.uid] = pod

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

    async def settle(self, pod: ClaimingSandbox) -> None:
        """Write at CNI ADD what claims stand for, and for containers the devices that they hold."""
        await self.attach(pod.edits)
        self._sandboxes[pod.sandbox.container] = pod.sandbox.pod
        if self._to.settings:
            await self._to.settings.write(pod, self.booked, self._pools or {})

    async def detach(self, sandbox: ContainerId) -> None:
        """CNI DEL: nothing is told any more; a claim is prepared until it is given back."""
        pod = self._sandboxes.pop(sandbox, None)
        if pod and pod not in self._sandboxes.values():  # no later sandbox of the same pod
            self._inside.pop(pod, None)
            self._report(*self._of_pod(pod))
        if self._to.settings:
            await self._to.settings.remove(sandbox)

    async def attached(self, pod: PodName, interfaces: Sequence[Attached]) -> None:
        """Take note of what networks made for a pod, which has no container yet: claims say it."""
        if mine := self._of_pod(pod):
            inside = self._inside.setdefault(pod, {})
            inside.update({one.interface: one for one in interfaces})
            self._report(*mine)
            for claim in mine:
                if self._to.metadata:
                    await self._to.metadata.attached(claim, tuple(inside.values()))

    def _of_pod(self, pod: PodName) -> tuple[PreparedClaim, ...]:
        of_name = [one for one in self._pods.values() if PodName(one.namespace, one.name) == pod]
        return claims_of(of_name[-1], self.booked) if of_name else ()

    def _report(self, *claims: PreparedClaim) -> None:
        """Several pods may have a claim; what of them is known since this agent began counts."""
        if not self._to.statuses:
            return
        for claim in claims:
            users = (pod for pod in self._inside if claim in self._of_pod(pod))
            interfaces = [one for pod in users for one in self._inside[pod].values()]
            self._to.statuses.tell(claim.claim, device_statuses_of(claim, interfaces))

    async def _keep(self, prepared: PreparedClaim) -> bool:
        """The record first, then the file; True when the file changed."""
        uid, lay = prepared.claim.uid, partial(self._lay, prepared)
        if self._records.get(uid) == prepared:
            return await asyncio.to_thread(lay)
        return await self._records.put_before(uid, prepared, lay)

    def _lay(self, prepared: PreparedClaim) -> bool:
        """What a record stands for, from a thread; True when the CDI file changed."""
        self._mark()
        hooks: tuple[RuntimeHook, ...] = ()
        if shim := self._to.shim():
            settings = self._to.settings
            merged = (merge_settings(shim, settings.path),) if settings else ()
            hooks = (lift_memlock(shim), *merged)
        mounts = self._to.metadata.mounts(prepared) if self._to.metadata else {}
        devices = []
        for share in prepared.shares:
            if share.cdi and share.char_paths:  # the first device of a request brings its file
                file = mounts.pop(share.request.partition("/")[0], None)
                edits = Edits(share.char_paths, mounts=(file,) if file else (), hooks=hooks)
                devices.append((share.cdi, edits))
        return self._to.cdi.write_claim(prepared.claim.uid, devices)

    def _mark(self) -> None:
        """Tell the shim of which namespaces pods may have a claim; before the kubelet goes on."""
        if self._to.claimed:
            self._to.claimed.keep(frozenset(one.claim.namespace for one in self.booked))

    async def _end(self, claim: ClaimName) -> None:
        """The file goes first: without it no container starts any more."""
        await self._records.refuse_foreign(claim.uid)
        await asyncio.to_thread(self._to.cdi.remove_claim, claim.uid)
        if self._to.metadata:
            await self._to.metadata.remove(claim.uid)
        if ended := self._records.get(claim.uid):
            await self._records.forget(claim.uid)
            await asyncio.to_thread(self._mark)
            if self._to.statuses:
                self._to.statuses.forget(claim)
            if not self.booked and self._to.settings:  # of sandboxes that went without a DEL
                await self._to.settings.remove()
            self._pods = {
                uid: pod for uid, pod in self._pods.items() if not claims_of(pod, [ended])
            }
            log.info("claim given back", claim=str(claim))

    async def _end_over(self) -> bool:
        """End the claims that are over; whether there were any. Nobody waits for who is asked."""
        over = [one for one in self.booked if await self._is_over(one)]
        async with self._turn:
            for prepared in over:
                log.info("claim ended without a word", claim=str(prepared.claim))
                await self._end(prepared.claim)
        return bool(over)

    async def _is_over(self, prepared: PreparedClaim) -> bool:
        """Whether the claim and its pods are surely gone; while nobody can say, they are not."""
        name = prepared.claim
        try:
            claim = await self._to.read(name)
            if claim and claim.claim.uid == name.uid:
                return False
            for user in prepared.users:
                pod = await self._to.pod(PodName(name.namespace, user.name))
                if pod and pod.uid == user.uid:
                    log.warning("claim gone under its pod", claim=str(name), pod=user.name)
                    return False
            # A pod that was deleted by force has the card until its containers have ended.
            running = {one.uid for one in await self._to.sandboxes() if one.ready}
            return running.isdisjoint(user.uid for user in prepared.users)
        except KubeError as error:
            log.warning("claim not read", claim=str(name), why=str(error))
            return False
        except Exception as error:  # noqa: BLE001  of one claim
            self._to.tell(object_failed("ResourceClaim", name, error))
            return False

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
