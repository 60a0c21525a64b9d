"""The one procedure by which pods get networks and addresses, and give them back.

    endpoint ─ request ─► record begun │ facts ─► decided ─► IPAM ─► planned
      ─► executor: kernel, other CNI plugins ─► late binding ─► endpoint ─ report ─► record complete

attach/rules/procedure has the order of the rules; here they get their facts. Three endpoints lead
here (attach/calls): the runtime for all networks of a pod, a meta-plugin for one interface, and
another plugin for addresses alone. What was made is recorded by container and interface. If
anything fails after something was taken, it is given back; if that fails, it stays recorded. The
answer is then the error, which the kubelet shows in the pod's event before it tries again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import structlog
from msgspec import Struct

from kube_base.errors import Broken, KubeError, Unavailable
from kube_base.frozen import Frozen, field
from kube_rdma.adapters.cni.protocol import decoded_result
from kube_rdma.attach.executor import PlanExecutor, calls_plugins, is_there
from kube_rdma.attach.late_binding import LateBindingChoice
from kube_rdma.attach.rules import procedure
from kube_rdma.attach.rules.addresses import is_of_card, of_allocations, owner
from kube_rdma.attach.rules.foreign_plugins import refuse_missing
from kube_rdma.attach.rules.procedure import AddressedNics, MadeNics, NetworkRequest, SettledNics
from kube_rdma.attach.rules.repair import RefusedAdd, RefusedKey, is_remade, refused
from kube_rdma.attach.share_limits import ShareLimits, not_counted
from kube_rdma.ipam.node_addresses import NodeAddresses
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.stopwatch import Stopwatch
from kube_rdma.model.attach.attachment import (
    RESTART,
    AssignedAddresses,
    AttachedInterface,
    Attachment,
    AttachmentKey,
    CardAddresses,
    Plan,
    PodView,
    Sandbox,
)
from kube_rdma.model.attach.cni import Call, CniResult
from kube_rdma.model.errors import HardwareGone, Outdated
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import AddressRequest, InterfaceName, NicRequest, PodUid
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, PodName

if TYPE_CHECKING:
    from kube_rdma.adapters.files.device_info import DeviceInfoFolder
    from kube_rdma.attach.node_view import NodeView
    from kube_rdma.ipam.ip_conf import IpamConf

log = structlog.get_logger()

_FAILED = {True: "network attachment failed", False: "address request failed"}


# What a call keeps to itself while it runs: its sandbox, GUIDs, and MACs and addresses of claims.


class _SandboxLock(Struct, weakref=True):
    held: asyncio.Lock = field(default_factory=asyncio.Lock)
    borrowing: asyncio.Lock = field(default_factory=asyncio.Lock)  # by a call while `held` is lent
    is_lent: bool = False


class SandboxLocks:
    """Locks that let only one call at a time change a pod's sandbox.

    A plugin of others may call back for addresses while it runs for a pod. Its call may borrow the
    lock of the call that runs it, or both would wait for each other.
    """

    def __init__(self) -> None:
        self._sandboxes: WeakValueDictionary[ContainerId, _SandboxLock] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, container: ContainerId, *, within: bool = False) -> AsyncIterator[None]:
        """Hold the lock of a sandbox for the block; `within` lets a call borrow a lent lock."""
        lock = self._lock(container)
        async with lock.borrowing if within and lock.is_lent else lock.held:
            yield

    @asynccontextmanager
    async def lent(self, container: ContainerId) -> AsyncIterator[None]:
        """Lend the held lock of a sandbox for the block; then wait for calls that borrowed it."""
        lock = self._lock(container)
        lock.is_lent = True
        try:
            yield
        finally:
            lock.is_lent = False
            async with lock.borrowing:  # in the order in which they came
                pass

    def _lock(self, container: ContainerId) -> _SandboxLock:
        lock = self._sandboxes.get(container)
        if lock is None:
            lock = self._sandboxes[container] = _SandboxLock()
        return lock


class Reservations:
    """Values that an unfinished ADD is about to give, such as GUIDs: no other pod may have them."""

    def __init__(self) -> None:
        self._reserved: dict[AttachmentKey, dict[str, str]] = {}  # a sentence by value

    def of_others(self, key: AttachmentKey) -> dict[str, str]:
        """Return the values that other ADDs reserved, each with a sentence about the pod."""
        others = [reserved for other, reserved in self._reserved.items() if other != key]
        return {value: pod for reserved in others for value, pod in reserved.items()}

    def reserve(self, key: AttachmentKey, sandbox: Sandbox, values: Iterable[str]) -> None:
        """Reserve these values for an ADD until `release`."""
        if reserved := dict.fromkeys(values, f"{sandbox.pod} is being given it"):
            self._reserved[key] = reserved

    def release(self, key: AttachmentKey) -> None:
        """Remove the reservation of an ADD that has ended."""
        self._reserved.pop(key, None)


EVICTED = (
    "kube-rdma's controller evicts the pod, and its owner makes another; without a controller, "
    "delete it."
)
ALONE = "No controller owns the pod: delete it and create it again."


Restart = Callable[[PodState, str | None], Awaitable[None]]


async def request_restart(restart: Restart, pod: PodState, why: str | None) -> None:
    """Request a pod's eviction, or (`why` is None) withdraw the request; only log a failure.

    A request that cannot be withdrawn ends by its age: the controller ignores old ones.
    """
    try:
        await restart(pod, why)
    except KubeError as error:
        name = f"{pod.namespace}/{pod.name}"
        log.warning("restart request not written", pod=name, why=str(error))


class OutdatedPods:
    """Pods of one node whose device nodes belong to other devices by now, and their eviction.

    `restart` requests a pod's eviction, or (None) withdraws the request; it raises KubeError.
    `tell` records an Event: reason, sentence, whether it is a warning. `clock` is monotonic.
    """

    def __init__(
        self,
        restart: Restart,
        tell: Callable[[PodState, str, str, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._restart = restart
        self._tell = tell
        self._clock = clock
        self._refusals: Mapping[RefusedKey, RefusedAdd] = {}

    async def refused(
        self, pod: PodState, interface: InterfaceName | None, error: Outdated
    ) -> None:
        """Count a refused ADD; after REFUSALS in a row, report it in an Event.

        Then ask for the pod's eviction too, if a controller makes another pod in its place. Do both
        once in AGAIN seconds for an interface, and nothing for a pod that is being deleted.
        """
        if pod.deleting:
            return
        self._refusals, asks = refused(self._refusals, (pod.uid, interface), self._clock())
        if not asks:
            return
        why = f"{str(error).rstrip('.')}."
        remade = is_remade(pod)
        if remade:
            await request_restart(self._restart, pod, why)
        self._tell(pod, "DeviceNodesOutdated", f"{why} {EVICTED if remade else ALONE}", True)

    async def attached(self, pod: PodState, interface: InterfaceName | None) -> None:
        """Forget the refused ADDs of one interface, whose ADD has now succeeded.

        Withdraw the request for eviction if no interface of the pod is refused any more.
        """
        key = (pod.uid, interface)
        self._refusals = {each: one for each, one in self._refusals.items() if each != key}
        others = any(uid == pod.uid for uid, _ in self._refusals)
        if RESTART in dict(pod.labels) and not others:
            await request_restart(self._restart, pod, None)


# The procedure of one call, between the endpoint that reads it and the executor.


class RepeatedAdd(Enum):
    """The answers to an ADD for an attachment that has a record already."""

    ANSWERED = auto()  # success, if the record is complete; else the attachment is made anew
    ANEW = auto()  # the attachment is removed and made anew
    KEPT = auto()  # the record stays, and the container's addresses are given again


class RequestedNetworks(Frozen):
    """The networks of a request, with the IPAM configuration of each by the network's name."""

    request: NetworkRequest
    ipam: Mapping[str, IpamConf]


class AttachRequest(Frozen, kw_only=True):
    """One ADD as its endpoint understood it: networks, pod, key."""

    key: AttachmentKey
    sandbox: Sandbox
    netns: int  # of the sandbox, open
    uid: PodUid  # the pod's, as its addresses are recorded
    pod: PodState | None
    again: RepeatedAdd
    # Reads the networks; raises Refused with all faults, Unavailable when the API server is away.
    # None: no interface is made, and `nics` are all that is asked for.
    networks: Callable[[], Awaitable[RequestedNetworks]] | None = None
    nics: tuple[NicRequest, ...] = ()


class AttachResult(Frozen):
    """The outcome of an ADD: addresses, plans and interfaces."""

    given: tuple[AssignedAddresses, ...]  # addresses
    plans: tuple[Plan, ...] = ()
    interfaces: tuple[AttachedInterface, ...] = ()  # all of them, as they are
    beside: tuple[Plan, ...] = ()  # plans of the sandbox's other interfaces


class CniEndpoint(Protocol):
    """An endpoint for one kind of CNI callers: it reads requests in calls, and reports results."""

    is_within: bool  # its calls may come from a plugin that another call for the sandbox runs

    async def request(self, call: Call) -> AttachRequest | None:
        """Return the request in an ADD; None if it asks for nothing of kube-rdma.

        Raise KubeError where the ADD has to fail.
        """

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """Report the result of an ADD, and return what its caller gets.

        Raise KubeError if that fails.
        """


def sandbox_of(call: Call, inode: Callable[[int], int]) -> tuple[Sandbox, int]:
    """Return a call's sandbox, and the descriptor of its network namespace.

    Raise Unavailable if the namespace is gone. `inode` returns the inode of the namespace of a
    descriptor.
    """
    if call.netns is None:
        raise Unavailable("The pod's network namespace no longer exists.")
    pod = call.pod or PodName("", "")
    place = Sandbox(call.container, pod, call.uid, call.netns_path, inode(call.netns))
    return place, call.netns


class AttachDependencies(Frozen, kw_only=True):
    """Everything that the attaching of networks and its endpoints depend on."""

    node: NodeView
    giver: NodeAddresses
    late: LateBindingChoice
    attachments: PlanExecutor
    inode: Callable[[int], int]  # of the namespace behind a descriptor
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    # namespaces whose networks any pod may name; None: all
    global_namespaces: tuple[str, ...] | None = None
    outdated: OutdatedPods | None = None  # notified of pods that must be recreated
    limits: ShareLimits | None = None  # None: no limits are set
    infos: DeviceInfoFolder | None = None  # where meta-plugins find files about devices


class AttachDecision(Frozen):
    """The chosen cards and links for a request, and the addresses to ask for."""

    placed: SettledNics
    nics: tuple[NicRequest, ...]  # for IPAM
    holdings: tuple[Holding, ...]  # of the pod's containers


class AttachPipeline:
    """The attaching and detaching of a node's pods; calls for one sandbox run one by one.

    While plugins of others run for a sandbox, they may call for its addresses.
    """

    def __init__(self, dependencies: AttachDependencies) -> None:
        self._needs = dependencies
        self._attachments = dependencies.attachments
        self._reserved = Reservations()
        self._sandboxes = SandboxLocks()

    async def add(self, call: Call, endpoint: CniEndpoint) -> CniResult:
        """Make the networks that a call asks for, and answer it.

        If anything fails, undo what was done and raise the error; a failed undo is only logged.
        """
        async with self._sandboxes.taken(call.container, within=endpoint.is_within):
            request = await endpoint.request(call)
            if request is None or await self._is_answered(request):
                return CniResult()
            try:
                with self._needs.stopwatch.timed(families.ATTACH, "add"):
                    answer = await self._attach(call, endpoint, request)
            except Exception as error:
                event = _FAILED[request.networks is not None]
                log.warning(event, pod=str(call.pod), why=str(error))
                try:
                    await self._end(request.key)
                except KubeError as left:  # for the log: the pod has its own reason
                    log.warning("cleanup failed", pod=str(request.sandbox.pod), why=str(left))
                if isinstance(error, Outdated) and request.pod and self._needs.outdated:
                    await self._needs.outdated.refused(request.pod, request.key.interface, error)
                raise
            finally:
                self._reserved.release(request.key)
            if request.pod and self._needs.outdated:
                await self._needs.outdated.attached(request.pod, request.key.interface)
            return answer

    async def _attach(self, call: Call, endpoint: CniEndpoint, request: AttachRequest) -> CniResult:
        await self._attachments.journal.refuse_foreign(request.key)
        decision = await self._decide(request)
        given = await self._allocate(request, decision.nics if decision else request.nics)
        result = await self._make(request, decision, given) if decision else AttachResult(given)
        # Reported: the record is complete last, so what a crash interrupts here is ended as well.
        answer = await endpoint.report(call, request, result)
        await self._attachments.journal.complete(request.key)
        _log(request, result)
        return answer

    async def _is_answered(self, request: AttachRequest) -> bool:
        """Return whether an earlier ADD answers this; else remove its attachment, unless KEPT."""
        before = self._attachments.of(request.key)
        if request.again is RepeatedAdd.ANSWERED and before and before.complete:
            return True
        if request.again is not RepeatedAdd.KEPT and self._attachments.has(request.key):
            await self._end(request.key)
        return False

    async def _decide(self, request: AttachRequest) -> AttachDecision | None:
        """Note that an ADD begins; decide its cards, links and pools; reserve GUIDs.

        MACs and addresses of interfaces by claims are reserved too. Return None for a request for
        addresses alone. Raise Refused if a rule refuses the request, Unavailable if a fact cannot
        be read now.
        """
        node, attachments, key = self._needs.node, self._attachments, request.key
        # Begun: the journal notes it before anything is taken.
        begin = partial(attachments.begin, key, request.sandbox)
        if request.networks is None:
            await asyncio.to_thread(begin)
            return None
        # Facts: what is asked for and what the pod holds, at once, for neither needs the other.
        asking = asyncio.ensure_future(request.networks())
        holding = asyncio.ensure_future(node.holdings(request.sandbox.pod))
        await asyncio.gather(asking, holding, return_exceptions=True)
        asked, holdings = asking.result(), holding.result()
        matched = procedure.match(asked.request, node.granted(holdings))
        if matched.needs_plugins:  # first, for without the plugin all further answers are useless
            refuse_missing(matched.entries, *await attachments.installed())
        host = await node.host(matched.entries, matched.granted, begin)
        # Decided: from here on each rule may refuse, and nothing has been taken yet.
        every, beside = attachments.by_key.values(), attachments.beside(key)
        located = procedure.locate(matched, host, every, beside)
        settings = await node.settings(located.functions)
        # Nothing is awaited between the look at what is taken and the reservation of it.
        others = [one for other, one in attachments.by_key.items() if other != key]
        placed = procedure.settle(located, settings, others, self._reserved.of_others(key))
        self._reserved.reserve(key, request.sandbox, placed.sole)
        await attachments.ready(placed.plugin_calls)
        nics = [nic async for nic in self._nics(request, asked, placed)]
        return AttachDecision(placed, tuple(nics), holdings)

    async def _nics(
        self, request: AttachRequest, asked: RequestedNetworks, placed: SettledNics
    ) -> AsyncIterator[NicRequest]:
        from kube_rdma.ipam.ip_conf import nic_request

        for one in placed.nics:
            ask, network = one.entry.ask, one.entry.network
            rail = self._needs.node.rail(one.card.id) if one.card else None
            pooled = ask.addresses if network.pools else ()  # others are set as they are
            nic = nic_request(
                asked.ipam[network.name],
                ask.interface,
                rail,
                tuple(each.address for each in pooled),
                owner(request.pod, ask.interface) if request.pod else None,
            )
            is_lenient = nic and network.card_addresses is CardAddresses.MOVE
            pool = await self._needs.node.pool(nic.pool) if nic and is_lenient else None
            if nic and not (pool and is_of_card(one, pool, rail)):
                yield nic

    async def _allocate(
        self, request: AttachRequest, nics: tuple[NicRequest, ...]
    ) -> tuple[AssignedAddresses, ...]:
        """Allocate the addresses of all interfaces in one request: all of them or none."""
        if not nics:
            return ()
        namespace = request.sandbox.pod.namespace
        ask = AddressRequest(request.key.container, request.uid, nics, namespace)
        with self._needs.stopwatch.timed(families.IPAM):
            granted = await self._needs.giver.add(ask)
        pools = {name: await self._needs.node.pool(name) for name in {nic.pool for nic in nics}}
        made = granted.allocations
        return tuple(of_allocations(nic.interface, made, pools[nic.pool]) for nic in nics)

    async def _make(
        self, request: AttachRequest, decision: AttachDecision, given: tuple[AssignedAddresses, ...]
    ) -> AttachResult:
        """Plan and run all Steps, set limits, bind the pod's devices to the interfaces made."""
        node, late, placed = self._needs.node, self._needs.late.now, decision.placed
        # Planned: an IPAM plugin is asked through its link (DHCP), so that is made before.
        pools = await node.ip_pools() if placed.matched.unpooled else ()
        addressed = procedure.address(placed, request.sandbox, given, pools)
        planned = procedure.plan(addressed, await self._ask_plugins(request, addressed))
        await node.refuse_full(planned.own)  # with the addresses of plugins, which count too
        # Done: the executor writes the whole plan to the journal before its first step.
        view = await self._execute(request, planned.plans, addressed.begun)
        made = procedure.observe(planned, view)
        devices, rdma_cm = await node.devices(made.devices)  # now: a rebound driver renames them
        outcome = procedure.conclude(made, devices, rdma_cm, self._attachments.results(request.key))
        # Limited: no container has been made yet that could take more.
        await self._limit(request, decision, made)
        # Bound: the files of earlier calls go first; no container has been made yet to use them.
        if placed.beside:
            await self._unbind(request.key.container)
        annotations = dict(request.pod.annotations) if request.pod else {}
        with self._needs.stopwatch.timed(families.LATE_BINDING):
            bound = (request.sandbox, outcome.edits, annotations, decision.holdings)
            await late.attach(*bound)
            await node.made(*bound)
        return AttachResult(given, planned.own, outcome.interfaces, placed.beside)

    async def _unbind(self, container: ContainerId) -> None:
        await self._needs.late.now.detach(container)
        await self._needs.node.ended(container)

    async def _limit(
        self, request: AttachRequest, decision: AttachDecision, made: MadeNics
    ) -> None:
        """Set the limits of the pod's shares in its control group; raise KubeError if that fails.

        Devices that the kernel does not count are only logged.
        """
        if not self._needs.limits:
            return
        sandbox = request.sandbox
        uid = sandbox.uid or (request.pod.runtime_uid if request.pod else "")
        granted = decision.placed.matched.granted
        if uncounted := await self._needs.limits.hold(uid, granted, made.used):
            log.warning("share limits not held", pod=str(sandbox.pod), why=not_counted(uncounted))

    async def _ask_plugins(
        self, request: AttachRequest, addressed: AddressedNics
    ) -> dict[InterfaceName, CniResult]:
        """Make the links whose addresses other IPAM plugins give; return the plugins' answers."""
        if not addressed.begun:
            return {}
        await self._execute(request, addressed.begun)
        results = self._attachments.results(request.key)
        return {one.interface: decoded_result(one.document) for one in results}

    async def _execute(
        self, request: AttachRequest, planned: tuple[Plan, ...], done: tuple[Plan, ...] = ()
    ) -> PodView:
        desired = Attachment(request.sandbox, planned)
        async with self._while_plugins_run(request.key, planned):
            return await self._attachments.attach(request.key, desired, request.netns, done)

    def _while_plugins_run(
        self, key: AttachmentKey, planned: Sequence[Plan]
    ) -> AbstractAsyncContextManager[None]:
        """Return a context that lends the sandbox's lock if these plans call other plugins."""
        return self._sandboxes.lent(key.container) if calls_plugins(planned) else nullcontext()

    async def end(self, key: AttachmentKey, *, within: bool = False) -> None:
        """Remove the attachment of a key, if there is one.

        `within`: the call may come from a plugin that another call for this sandbox runs. Raise
        KubeError if something cannot be undone now: the record stays.
        """
        async with self._sandboxes.taken(key.container, within=within):
            await self._end(key)

    async def _end(self, key: AttachmentKey) -> None:
        """Remove an attachment: undo its steps, then free its addresses, then remove its record.

        As the record goes last, a removal that is interrupted is repeated. Raise HardwareGone if
        only missing hardware stops the undo: the record stays, but the addresses are freed. Late
        binding ends with the last interface, for its files are of the whole pod.
        """
        await self._attachments.journal.refuse_foreign(key)
        attachment = self._attachments.of(key)
        is_made = attachment is not None and bool(attachment.plans)
        if key.interface is None or (is_made and not self._attachments.beside(key)):
            await self._unbind(key.container)
        try:
            async with self._while_plugins_run(key, attachment.plans if attachment else ()):
                await self._attachments.detach(key)
        except HardwareGone:
            await self._needs.giver.delete(key.container, key.interface)
            raise
        await self._needs.giver.delete(key.container, key.interface)
        await self._attachments.forget(key)

    async def delete(self, call: Call, key: AttachmentKey, *, within: bool = False) -> CniResult:
        """Answer DEL: remove the attachment.

        A missing card does not hold up the pod: the rounds of repair.py or `sweep` try again.
        """
        try:
            with self._needs.stopwatch.timed(families.ATTACH, "delete"):
                await self.end(key, within=within)
        except HardwareGone as error:
            log.warning("card missing", pod=str(call.pod), why=str(error))
        return CniResult()

    async def check(self, call: Call, key: AttachmentKey) -> CniResult:
        """Answer CHECK; raise Broken with each difference from the plan."""
        if call.netns is None:
            return CniResult()
        with self._needs.stopwatch.timed(families.ATTACH, "check"):
            async with self._sandboxes.taken(key.container):
                if wrong := await self._attachments.look(key, call.netns):
                    raise Broken(" ".join(f"{line}." for line in wrong))
        return CniResult()

    async def lost(self, key: AttachmentKey, namespace: int) -> tuple[Plan, ...]:
        """Return the plans whose interfaces are missing in the namespace.

        Raise KubeError if the namespace cannot be read.
        """
        async with self._sandboxes.taken(key.container):
            return await self._attachments.lost(key, namespace)

    async def recover(self) -> None:
        """Remove, after a start, the attachments of unfinished ADDs and of pods that are gone."""
        attachments = self._attachments.by_key
        lost = await asyncio.to_thread(_lost, [one.sandbox for one in attachments.values()])
        for key, attachment in attachments.items():
            if not attachment.complete or attachment.sandbox in lost:
                await self._end_left(key, attachment.sandbox)

    async def sweep(self) -> None:
        """Remove single interfaces of pods that are gone, for which a DEL may never come.

        Attachments of whole pods are removed by repair.py.
        """
        attachments = self._attachments.by_key.items()
        whole = ((key, one.sandbox) for key, one in attachments if one.complete)
        singles = {key: sandbox for key, sandbox in whole if key.interface is not None}
        lost = await asyncio.to_thread(_lost, singles.values()) if singles else ()
        for key, sandbox in singles.items():
            if sandbox in lost:
                await self._end_left(key, sandbox)

    async def _end_left(self, key: AttachmentKey, sandbox: Sandbox) -> None:
        facts = {"pod": str(sandbox.pod), "interface": key.interface or "all"}
        try:
            await self.end(key)
            log.info("leftover attachment removed", **facts)
        except KubeError as error:
            log.warning("attachment removal failed", **facts, why=str(error))

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Free the addresses of sandboxes that are gone.

        `living` are the runtime's sandboxes; addresses given after the time `since` stay. The
        sandbox of an unfinished ADD may be missing in `living`, but is in the journal.
        """
        recorded = {key.container for key in self._attachments.keys}
        await self._needs.giver.collect(living | recorded, since)


def _lost(sandboxes: Iterable[Sandbox]) -> frozenset[Sandbox]:
    """Return the sandboxes whose network namespace is surely gone, as the disk shows."""
    lost = set()
    for sandbox in sandboxes:
        with suppress(Unavailable):
            if not is_there(sandbox):
                lost.add(sandbox)
    return frozenset(lost)


def _log(request: AttachRequest, result: AttachResult) -> None:
    pod = str(request.sandbox.pod)
    if request.networks:
        pairs = (f"{one.interface}={one.network}" for one in result.interfaces)
        log.info("attached", pod=pod, networks=",".join(pairs))
    else:
        every = (one for each in result.given for one in each.addresses)
        addresses = (f"{one.address}/{one.prefix}" for one in every)
        interface = request.key.interface
        log.info("addresses assigned", pod=pod, interface=interface, addresses=",".join(addresses))
