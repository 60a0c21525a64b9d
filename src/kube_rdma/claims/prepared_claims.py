"""Prepares claims on this node when the kubelet asks, and books them so that they last.

    NodePrepareResources ─ claims/rules/prepare ─► journal ─► CDI file ─► answer
    NodeUnprepareResources ─────────────────────► CDI file gone ─► journal
    CNI ADD ─ what the network made ────────────► journal ─► CDI file

The order survives a crash: the record stands before the file, and the answer after it. So an answer
is true when it is given. The folder of CDI files is empty after a reboot (/run is a tmpfs),
although the records are there. The scheduler's allocation is booked as it is, so nothing here
chooses, and preparing twice gives the same answer. Metadata files of containers and the status of
claims' devices in the cluster are written here too.
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
from kube_rdma.adapters.cni.shim_files import ClaimedNamespaces
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import ClaimFiles
from kube_rdma.attach.claim_settings import ClaimSettings
from kube_rdma.attach.rules import claim_networks
from kube_rdma.attach.rules.claim_networks import claims_of
from kube_rdma.attach.rules.late_binding import SETTLED
from kube_rdma.claims.parameters import parameters_by_request
from kube_rdma.claims.rules import prepare
from kube_rdma.claims.rules.prepare import BookingNode
from kube_rdma.lib.records import Records, in_the_log
from kube_rdma.model.attach.attachment import AttachedInterface
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.card import CardId
from kube_rdma.model.claims import claim as model
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
from kube_rdma.pools.rules.allocation import known_pools, limited, unheld
from kube_rdma.pools.rules.modes import terms

log = structlog.get_logger()


# The files by which programs in a container learn of its claims (KEP-5304).


class ClaimMetadata:
    """A writer of claims' metadata files, which containers mount; one per agent."""

    def __init__(
        self, folder: ClaimFiles, attributes: Callable[[], prepare.MetadataAttributes]
    ) -> None:
        """Take the folder to write to; `attributes` returns the devices' attributes in slices."""
        self._folder = folder
        self._attributes = attributes
        self._notices = Notices()

    def mounts(self, prepared: model.PreparedClaim) -> dict[str, FileMount]:
        """Write the metadata files of a claim; return their mounts by request.

        Raise Unavailable where the files cannot be written.
        """
        files = prepare.metadata_files(prepared, self._attributes())
        texts = {request: text for request, (_, text) in files.items()}
        lying = self._folder.put(prepared.claim.uid, texts)
        return {request: FileMount(lying[request], path) for request, (path, _) in files.items()}

    async def attached(
        self, prepared: model.PreparedClaim, interfaces: Sequence[AttachedInterface]
    ) -> None:
        """Write the pod's interfaces into the metadata files; log a failure once.

        A claim that is not made for one pod by its template is left out.
        """
        if not prepared.pod_claim:
            return
        files = prepare.metadata_files(prepared, self._attributes(), interfaces)
        texts = {request: text for request, (_, text) in files.items()}
        try:
            await asyncio.to_thread(self._folder.put, prepared.claim.uid, texts)
        except Unavailable as error:
            what, claim = "metadata of claim not written", str(prepared.claim)
            self._notices.warn(log, what, "metadata", str(error), claim=claim)
            return
        self._notices.over("metadata")

    async def remove(self, uid: str) -> None:
        """Remove the files of a claim that was given back; raise Unavailable if that fails."""
        await asyncio.to_thread(self._folder.remove, uid)


# The status of devices in claims: written beside all that matters, and waited for by nobody.

Statuses = tuple[model.DeviceStatus, ...]
WriteStatuses = Callable[[model.ClaimName, Sequence[model.DeviceStatus]], Awaitable[None]]


class ClaimStatuses:
    """A writer of the device status in ResourceClaims; one per agent."""

    def __init__(self, write: WriteStatuses) -> None:
        """Take the function `write`, which raises KubeError; Conflict if the claim is gone."""
        self._write = write
        self._wanted: dict[model.ClaimName, Statuses] = {}
        self._written: dict[model.ClaimName, Statuses] = {}
        self._news = asyncio.Event()
        self._notices = Notices()

    def tell(self, claim: model.ClaimName, statuses: Statuses) -> None:
        """Queue a status of a claim for writing, and return at once."""
        self._wanted[claim] = statuses
        self._news.set()

    def forget(self, claim: model.ClaimName) -> None:
        """Drop the queued and the written status of a claim that was given back."""
        self._wanted.pop(claim, None)
        self._written.pop(claim, None)

    async def run(self) -> None:
        """Write queued statuses until cancelled."""
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
        """Write each queued status once; keep it queued if the API server does not answer."""
        for claim, statuses in tuple(self._wanted.items()):
            if self._written.get(claim) != statuses and not await self._try(claim, statuses):
                continue
            if self._wanted.get(claim) == statuses:  # nothing newer was queued
                del self._wanted[claim]

    async def _try(self, claim: model.ClaimName, statuses: Statuses) -> bool:
        """Write a status; return False if it has to be tried again."""
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


# The claims themselves.


async def no_holders(_: Collection[str]) -> Mapping[HeldShare, str]:
    """Return no holders: nobody holds shares by the device plugin."""
    return {}


class ClaimDependencies(Frozen):
    """Everything that the bookings of claims depend on.

    Functions that ask the API server, the kubelet or the runtime raise KubeError.
    """

    journal: Journal[model.PreparedClaim]
    cdi: CdiFolder
    # the claim of this name now
    read: Callable[[model.ClaimName], Awaitable[model.ResourceClaim | None]]
    pod: Callable[[PodName], Awaitable[model.PodClaims | None]]
    sandboxes: Callable[[], Awaitable[Sequence[PodSandbox]]]  # of the runtime
    node: str  # the name of the node and of its pool of devices
    boot: str  # differs from boot to boot of the node
    shim: Callable[[], str | None] = lambda: None  # its path on the host
    wiring: Callable[[], Wiring] = lambda: Wiring.CHAIN
    claimed: ClaimedNamespaces | None = None  # names namespaces with claims to the shim
    settings: ClaimSettings | None = None  # None: containers get no settings of their devices
    statuses: ClaimStatuses | None = None  # None: claims get no status
    metadata: ClaimMetadata | None = None  # None: containers get no metadata
    # Returns the holders of shares of these resources by the device plugin, in words.
    holders: Callable[[Collection[str]], Awaitable[Mapping[HeldShare, str]]] = no_holders
    # Has the kernel limit the pods of a claim; None: this agent cannot.
    hold: Callable[[model.PreparedClaim], Awaitable[None]] | None = None
    tell: Callable[[str], None] = in_the_log  # takes a sentence for each unreadable record
    settled: float = SETTLED  # seconds that the runtime needs to see a changed CDI file


class PreparedClaims(NodeClaims):
    """The bookings of claims that are prepared on a node; one call at a time changes them."""

    def __init__(self, dependencies: ClaimDependencies) -> None:
        """Read the journal and report records that cannot be read.

        Raise Unavailable if the disk fails.
        """
        self._dependencies = dependencies
        self._records = Records(dependencies.journal, dependencies.tell)
        self._turn = asyncio.Lock()
        self._pools: Mapping[str, Pool] | None = None
        self._pods: dict[str, model.PodClaims] = {}  # those that had a network, by uid
        self._inside: dict[PodName, dict[InterfaceName, AttachedInterface]] = {}
        self._sandboxes: dict[ContainerId, PodName] = {}

    @property
    def booked(self) -> tuple[model.PreparedClaim, ...]:
        """Return the bookings of all prepared claims."""
        return self._records.values

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Store the pools that are offered now, by resource."""
        self._pools = pools

    async def prepare(self, claim: model.ClaimName) -> Sequence[model.PreparedDevice]:
        """Book a claim's devices, write files, set limits; return devices for the kubelet.

        Where others hold a device, bookings whose claims and pods are gone are removed, and the
        claim is tried again. Raise KubeError if the claim cannot be prepared.
        """
        try:
            return await self._prepare(claim)
        except prepare.DeviceInUse:
            if not await self._end_over():
                raise
        return await self._prepare(claim)

    async def _prepare(self, claim: model.ClaimName) -> Sequence[model.PreparedDevice]:
        await self._records.refuse_foreign(claim.uid)
        self._node()  # nothing is asked before there is something to give
        # Outside of the turn: what is prepared, attached or given back waits for no API server.
        is_new = self._records.get(claim.uid) is None
        allocated = await self._dependencies.read(claim) if is_new else None
        is_same = allocated is not None and allocated.claim.uid == claim.uid
        parameters = parameters_by_request(allocated) if allocated and is_same else {}
        holders = await self._dependencies.holders((self._pools or {}).keys()) if is_new else {}
        async with self._turn:
            node = replace(self._node(), holders=holders)
            before = self._records.get(claim.uid)
            if before and prepare.stands(before, node):
                prepared = before
            elif before:
                prepare.refuse_vanished(before, node)
                prepared = prepare.rebooked(before, node)
            else:
                prepared = prepare.book(claim, allocated, node, time.time(), parameters)
                claim_networks.refuse_uncalled(prepared, self._dependencies.wiring())
            await self._keep(prepared)
        limits = limited(self._pools or {})
        mine = [one.resource for one in prepared.shares if one.resource in limits and not one.admin]
        if mine:
            if self._dependencies.hold is None:
                raise unheld(mine[0])
            await self._dependencies.hold(prepared)
        self._report(prepared)
        if before is None:
            cards = dict.fromkeys(card for share in prepared.shares for card in share.cards)
            log.info("claim prepared", claim=str(claim), cards=",".join(cards))
        return prepare.answer(prepared)

    async def unprepare(self, claim: model.ClaimName) -> None:
        """Remove a claim's files and its booking, if any; raise KubeError if that fails."""
        async with self._turn:
            await self._end(claim)

    async def restore(self) -> None:
        """Write the CDI files of all bookings again, and remove CDI files without a booking.

        Bookings whose claims and pods are gone are removed first. Raise KubeError if a CDI file
        cannot be written or removed.
        """
        await self._end_over()
        async with self._turn:
            for prepared in self.booked:
                try:
                    node = self._node()
                    stands = prepare.stands(prepared, node)
                    await self._keep(prepared if stands else prepare.rebooked(prepared, node))
                except KubeError:
                    raise
                except Exception as error:  # noqa: BLE001  of one claim
                    self._dependencies.tell(object_failed("ResourceClaim", prepared.claim, error))
            kept = {prepared.claim.uid for prepared in self.booked} | self._records.foreign_names
            for uid in await asyncio.to_thread(self._dependencies.cdi.claims):
                if uid not in kept:
                    await asyncio.to_thread(self._dependencies.cdi.remove_claim, uid)

    async def holdings_of(self, pod: PodName) -> tuple[Holding, ...]:
        """Return the shares that a pod's containers hold by claims; raise KubeError if unknown.

        The API server is asked only where a claim of the pod's namespace is prepared.
        """
        claims = await self._claims_of(pod)
        return claim_networks.holdings(claims, self.booked) if claims else ()

    async def interfaces_of(self, pod: PodName) -> tuple[model.ClaimDevice, ...]:
        """Return the devices of a pod's claims that become interfaces of the pod.

        Raise KubeError if the claims are unknown.
        """
        mine = (one for one in self.booked if one.claim.namespace == pod.namespace)
        if not any(share.makes_interface for one in mine for share in one.shares):
            return ()
        claims = await self._claims_of(pod)
        return claim_networks.interfaces(claims, self.booked) if claims else ()

    async def _claims_of(self, pod: PodName) -> model.PodClaims | None:
        if not any(one.claim.namespace == pod.namespace for one in self.booked):
            return None
        claims = await self._dependencies.pod(pod)
        if claims:
            self.seen(claims)
        return claims

    def seen(self, pod: model.PodClaims) -> None:
        """Store the claims of a pod, if one of them is prepared."""
        if claims_of(pod, self.booked):
            self._pods[pod.uid] = pod

    def holdings(self) -> tuple[Holding, ...]:
        """Return the shares that are held by claims on this node, without adminAccess."""
        return claim_networks.node_holdings(self.booked, self._pods)

    def cards(self) -> frozenset[CardId] | None:
        """Return the cards of prepared claims; None if a record cannot be understood.

        A share of a whole pool takes no single card, so its cards are left out.
        """
        if self._records.foreign_names:
            return None
        pools = self._pools or {}
        whole = {name for name, pool in pools.items() if terms(pool.spec).bind is Bind.POOL}
        shares = (share for one in self.booked for share in one.shares)
        return frozenset(c for share in shares if share.resource not in whole for c in share.cards)

    async def attach(self, edits: Mapping[HeldShare, Edits]) -> None:
        """Update bookings and CDI files with the device nodes that CNI ADD made for a pod.

        Wait after a change of a file, so that the runtime sees it before the pod's containers are
        made. Raise KubeError if a record or a file cannot be written.
        """
        async with self._turn:
            changed = False
            for prepared in self.booked:
                shares = tuple(
                    replace(share, char_paths=made.char_paths)
                    if share.cdi and (made := edits.get((share.resource, share.share)))
                    else share
                    for share in prepared.shares
                )
                if shares != prepared.shares:
                    changed |= await self._keep(replace(prepared, shares=shares))
        if changed:
            await asyncio.sleep(self._dependencies.settled)

    async def settle(self, pod: ClaimingSandbox) -> None:
        """Update a pod's bookings at CNI ADD, and write its containers' settings files."""
        await self.attach(pod.edits)
        self._sandboxes[pod.sandbox.container] = pod.sandbox.pod
        if self._dependencies.settings:
            await self._dependencies.settings.write(pod, self.booked, self._pools or {})

    async def detach(self, sandbox: ContainerId) -> None:
        """Remove a sandbox's settings files; its claims stay prepared.

        Forget the interfaces of its pod, in statuses too, unless another sandbox of the pod is
        known. Raise Unavailable if the disk fails.
        """
        pod = self._sandboxes.pop(sandbox, None)
        if pod and pod not in self._sandboxes.values():  # no later sandbox of the same pod
            self._inside.pop(pod, None)
            self._report(*self._of_pod(pod))
        if self._dependencies.settings:
            await self._dependencies.settings.remove(sandbox)

    async def attached(self, pod: PodName, interfaces: Sequence[AttachedInterface]) -> None:
        """Write a pod's interfaces into the status and metadata of its claims."""
        if mine := self._of_pod(pod):
            inside = self._inside.setdefault(pod, {})
            inside.update({one.interface: one for one in interfaces})
            self._report(*mine)
            for claim in mine:
                if self._dependencies.metadata:
                    await self._dependencies.metadata.attached(claim, tuple(inside.values()))

    def _of_pod(self, pod: PodName) -> tuple[model.PreparedClaim, ...]:
        of_name = [one for one in self._pods.values() if PodName(one.namespace, one.name) == pod]
        return claims_of(of_name[-1], self.booked) if of_name else ()

    def _report(self, *claims: model.PreparedClaim) -> None:
        """Queue statuses of these claims with the interfaces of their pods that are known."""
        if not self._dependencies.statuses:
            return
        for claim in claims:
            users = (pod for pod in self._inside if claim in self._of_pod(pod))
            interfaces = [one for pod in users for one in self._inside[pod].values()]
            statuses = prepare.device_statuses_of(claim, interfaces)
            self._dependencies.statuses.tell(claim.claim, statuses)

    async def _keep(self, prepared: model.PreparedClaim) -> bool:
        """Write a booking's record if it changed, then its files.

        Return whether the CDI file changed.
        """
        uid, lay = prepared.claim.uid, partial(self._lay, prepared)
        if self._records.get(uid) == prepared:
            return await asyncio.to_thread(lay)
        return await self._records.put_before(uid, prepared, lay)

    def _lay(self, prepared: model.PreparedClaim) -> bool:
        """Write the files of a booking, in a thread; return whether the CDI file changed."""
        self._mark()
        hooks: tuple[RuntimeHook, ...] = ()
        if shim := self._dependencies.shim():
            settings = self._dependencies.settings
            merged = (merge_settings(shim, settings.path),) if settings else ()
            hooks = (lift_memlock(shim), *merged)
        mounts = self._dependencies.metadata.mounts(prepared) if self._dependencies.metadata else {}
        devices = []
        for share in prepared.shares:
            if share.cdi and share.char_paths:  # the first device of a request brings its file
                file = mounts.pop(share.request.partition("/")[0], None)
                edits = Edits(share.char_paths, mounts=(file,) if file else (), hooks=hooks)
                devices.append((share.cdi, edits))
        return self._dependencies.cdi.write_claim(prepared.claim.uid, devices)

    def _mark(self) -> None:
        """Write down the namespaces in which claims are prepared, for the shim to read."""
        if self._dependencies.claimed:
            self._dependencies.claimed.keep(frozenset(one.claim.namespace for one in self.booked))

    async def _end(self, claim: model.ClaimName) -> None:
        """Remove a claim's CDI file and metadata files, then its booking."""
        await self._records.refuse_foreign(claim.uid)
        await asyncio.to_thread(self._dependencies.cdi.remove_claim, claim.uid)
        if self._dependencies.metadata:
            await self._dependencies.metadata.remove(claim.uid)
        if ended := self._records.get(claim.uid):
            await self._records.forget(claim.uid)
            await asyncio.to_thread(self._mark)
            if self._dependencies.statuses:
                self._dependencies.statuses.forget(claim)
            # Settings of sandboxes that went without a CNI DEL.
            if not self.booked and self._dependencies.settings:
                await self._dependencies.settings.remove()
            left = (pair for pair in self._pods.items() if not claims_of(pair[1], [ended]))
            self._pods = dict(left)
            log.info("claim given back", claim=str(claim))

    async def _end_over(self) -> bool:
        """Remove bookings whose claims and pods are gone; return whether there were any."""
        over = [one for one in self.booked if await self._is_over(one)]
        async with self._turn:
            for prepared in over:
                log.info("claim ended without a word", claim=str(prepared.claim))
                await self._end(prepared.claim)
        return bool(over)

    async def _is_over(self, prepared: model.PreparedClaim) -> bool:
        """Return whether a claim and its pods are surely gone; False if that is unknown."""
        name = prepared.claim
        try:
            claim = await self._dependencies.read(name)
            if claim and claim.claim.uid == name.uid:
                return False
            for user in prepared.users:
                pod = await self._dependencies.pod(PodName(name.namespace, user.name))
                if pod and pod.uid == user.uid:
                    log.warning("claim gone under its pod", claim=str(name), pod=user.name)
                    return False
            # A pod that was deleted by force has the card until its containers have ended.
            running = {one.uid for one in await self._dependencies.sandboxes() if one.ready}
            return running.isdisjoint(user.uid for user in prepared.users)
        except KubeError as error:
            log.warning("claim not read", claim=str(name), why=str(error))
            return False
        except Exception as error:  # noqa: BLE001  of one claim
            self._dependencies.tell(object_failed("ResourceClaim", name, error))
            return False

    def _node(self) -> BookingNode:
        site, devices = self._dependencies, prepare.devices_of(known_pools(self._pools).values())
        return BookingNode(site.node, site.boot, devices, self.booked)
