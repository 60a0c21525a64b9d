"""Repairs what was missed: sandboxes without their networks, attachments without a sandbox.

    runtime's sandboxes, pods, journal ─ attach/rules/repair ─► the ADD, made late │ the end
                                            └ in vain, and the pod runs ─► Event, restart wanted

Runs beside the socket of the shim (attach/node_networks). Each round compares the whole state, so
it finds what was missed, whatever the reason. One is at the start, others are after news (`wake`),
when a repair is due, and after five minutes at the latest (RepairTiming). A watch shows the node's
pods that ask for networks. Pods on a card that came back are checked once, and those that lost an
interface get an Event.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, suppress
from pathlib import Path

import structlog

from kube_base.backoff import full_jitter, has_happened
from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_base.os_files import closed_after
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Deleted, Synced
from kube_rdma.adapters.bulkhead import contained, object_failed
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.adapters.cni.shim_files import AskingPods, Mark
from kube_rdma.attach.annotated_networks import asking
from kube_rdma.attach.attach import Restart, request_restart
from kube_rdma.attach.calls import SandboxNetworks
from kube_rdma.attach.executor import is_there
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.rules import repair as rules
from kube_rdma.attach.rules.conflist import ENTRY
from kube_rdma.attach.rules.requests import is_asking, names_networks, refuse_host_network
from kube_rdma.model.attach.attachment import RESTART, Attachment, AttachmentKey, Plan
from kube_rdma.model.attach.cni import VERSIONS, Call, Verb, Wiring
from kube_rdma.model.card import CardId
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, PodName, PodSandbox
from kube_rdma.pools.rules.absence import attached_cards

log = structlog.get_logger()


def open_netns(path: str) -> AbstractContextManager[int]:
    """Open the network namespace at a path for the block; raise Unavailable if that fails."""
    try:
        return closed_after(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise Unavailable(
            f"The network namespace {path} cannot be opened ({error.strerror}); the host's folder "
            "of it has to be mounted with mountPropagation: HostToContainer."
        ) from error


class RepairDependencies(Frozen):
    """Everything that the rounds of repair depend on."""

    networks: SandboxNetworks
    listed: Callable[[], Awaitable[tuple[PodSandbox, ...]]]  # lists sandboxes; raises Unavailable
    # path of a sandbox's network namespace; raises Unavailable
    netns: Callable[[ContainerId], Awaitable[str]]
    # the node's pods that ask for networks of kube-rdma, none while the agent is not called
    pods: Callable[[], tuple[PodState, ...]]
    # Returns whether a sandbox should have had networks when it was made, from the disk; raises
    # Unavailable. A pod that was annotated later has missed nothing, and is not evicted for it.
    owed: Callable[[PodSandbox, PodState], bool]
    context: NodeContext
    # requests a pod's eviction with the reason, or (None) withdraws that; raises KubeError
    restart: Restart
    # records an Event about a pod: reason, sentence, whether it is a warning
    tell: Callable[[PodState, str, str, bool], None]
    # returns why a pod cannot have what it asks for on this node
    refused: Callable[[PodState], Refused | None] = lambda _: None
    # opens a namespace
    opened: Callable[[str], AbstractContextManager[int]] = open_netns


class RepairTiming(Frozen):
    """The intervals between rounds of repair, in seconds."""

    least: float = 1.0  # between two rounds
    most: float = 300.0  # between two rounds
    clock: Callable[[], float] = time.monotonic


class SandboxRepair:
    """Rounds that compare a node's sandboxes with its attachments, and repair both."""

    def __init__(self, dependencies: RepairDependencies, pace: RepairTiming | None = None) -> None:
        self._needs = dependencies
        self._pace = pace or RepairTiming()
        self._state = rules.RepairState()
        self._news = asyncio.Event()
        self._notices = Notices()
        # When a round last noted the time: by its own clock, and by that of the addresses.
        self._mark: tuple[float, float] | None = None

    def wake(self) -> None:
        """Begin the next round at once, or when RepairTiming.least has passed since the last."""
        self._news.set()

    async def run(self) -> None:
        """Run rounds of repair until cancelled."""
        failures = 0
        while True:
            self._news.clear()
            try:
                await self.round()
                failures = 0
                self._notices.over("round")
                now = self._pace.clock()
                seconds = min(self._pace.most, rules.due(self._state, now) - now)
            except KubeError as error:
                self._notices.warn(log, "sandbox reconciliation failed", "round", str(error))
                seconds = full_jitter(failures)
                failures += 1
            await asyncio.sleep(self._pace.least)
            await has_happened(self._news, seconds)

    async def round(self) -> None:
        """Compare sandboxes with attachments, and repair; free addresses of gone sandboxes.

        Raise KubeError if they cannot be compared. A failure for one sandbox holds up no other.
        """
        now, freed = self._pace.clock(), self._needs.networks.now()
        listed = await self._needs.listed()
        pods = self._needs.pods()
        attachments = self._needs.networks.attachments
        gone = await asyncio.to_thread(_gone, attachments)
        seen = rules.RepairView(listed, pods, attachments, gone, self._needs.networks.foreign)
        decided = rules.decide(seen, self._state, now)
        self._state = decided.state
        for container in decided.orphans:
            await self._end(container)
        by_uid = {pod.runtime_uid: pod for pod in pods}
        for sandbox in decided.missing:
            await self._repair(sandbox, by_uid[sandbox.uid])
        if not listed:
            return
        # Free addresses that are older than any sandbox that the runtime still makes.
        mark = self._mark
        if mark and now - mark[0] >= rules.ABSENT:
            living = frozenset(one.container for one in listed)
            await self._needs.networks.collect(living, mark[1])
        if mark is None or now - mark[0] >= rules.ABSENT:
            self._mark = now, freed

    async def _end(self, container: ContainerId) -> None:
        try:
            await self._needs.networks.end_lost(container)
            log.info("orphaned attachment removed", container=container)
        except KubeError as error:
            log.warning("attachment removal failed", container=container, why=str(error))
        except Exception as error:  # noqa: BLE001  of one pod
            object_failed("Pod", container, error)

    async def _repair(self, sandbox: PodSandbox, pod: PodState) -> None:
        try:
            await self._attach(sandbox, pod)
        except KubeError as error:
            await self._failed(sandbox, pod, error)
            return
        except Exception:  # one pod must not end the agent for all others
            log.exception("pod repair failed", pod=str(sandbox.pod))
            await self._failed(sandbox, pod, Unavailable("The agent's log has the reason."))
            return
        if any(
            one.sandbox.container == sandbox.container for one in self._needs.networks.attachments
        ):
            note = "Its networks were attached late: no request for them came at its start."
            self._needs.tell(pod, "NetworksAttachedLate", note, False)
        else:
            self._state = rules.asks_for_nothing(self._state, sandbox.container)
        if RESTART in dict(pod.labels):
            await request_restart(self._needs.restart, pod, None)

    async def _attach(self, sandbox: PodSandbox, pod: PodState) -> None:
        """Make the networks of a pod whose ADD never came; raise KubeError if that fails."""
        if why := self._needs.refused(pod):
            raise why
        path = await self._needs.netns(sandbox.container)
        if not path:
            raise Unavailable(f"The runtime reports no network namespace of pod {sandbox.pod}.")
        with self._needs.opened(path) as descriptor:
            call = Call(
                Verb.ADD,
                VERSIONS[-1],
                self._needs.context.network,
                json.dumps(ENTRY).encode(),
                sandbox.container,
                InterfaceName("eth0"),
                netns=descriptor,
                netns_path=path,
                pod=sandbox.pod,
                uid=sandbox.uid,
            )
            await self._needs.networks.answer(call)

    async def _failed(self, sandbox: PodSandbox, pod: PodState, error: KubeError) -> None:
        container = sandbox.container
        now, is_refused = self._pace.clock(), isinstance(error, Refused)
        self._state = rules.failed(self._state, container, now, refused=is_refused)
        note = f"The pod lacks networks that it asks for: {error}"
        try:
            hopeless = rules.is_hopeless(self._state, container, pod)
            if hopeless and await asyncio.to_thread(self._needs.owed, sandbox, pod):
                await request_restart(self._needs.restart, pod, note)
                note = f"{note} kube-rdma's controller evicts it; without a controller, delete it."
        except KubeError as why:
            log.warning("disk not readable", pod=str(sandbox.pod), why=str(why))
        self._needs.tell(pod, "NetworksMissing", note, True)


def _gone(attachments: tuple[Attachment, ...]) -> frozenset[ContainerId]:
    """Return the containers whose network namespace is surely gone."""
    gone = set()
    for attachment in attachments:
        with suppress(Unavailable):
            if Path(attachment.sandbox.netns_path).parent.is_dir() and not is_there(
                attachment.sandbox
            ):
                gone.add(attachment.sandbox.container)
    return frozenset(gone)


class ReturnedCards:
    """A check of attachments for cards that came back to this node.

    `attachments` returns the journal's. `lost` returns the plans whose interfaces are missing in a
    namespace, and raises KubeError; `tell` records an Event: pod, reason, note.
    """

    def __init__(
        self,
        attachments: Callable[[], Mapping[AttachmentKey, Attachment]],
        lost: Callable[[AttachmentKey, int], Awaitable[tuple[Plan, ...]]],
        tell: Callable[[PodName, str, str], None],
        opened: Callable[[str], AbstractContextManager[int]] = open_netns,
    ) -> None:
        self._attachments = attachments
        self._lost = lost
        self._tell = tell
        self._opened = opened
        self._returned: set[CardId] = set()
        self._news = asyncio.Event()

    def returned(self, card: CardId) -> None:
        """Request a check of the pods of a card that is usable again after it was not."""
        self._returned.add(card)
        self._news.set()

    async def run(self) -> None:
        """Check the pods of each card that came back, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            cards, self._returned = frozenset(self._returned), set()
            for key, attachment in tuple(self._attachments().items()):
                if attachment.complete and not cards.isdisjoint(attached_cards((attachment,))):
                    await self._look(key, attachment)

    async def _look(self, key: AttachmentKey, attachment: Attachment) -> None:
        sandbox = attachment.sandbox
        try:
            with self._opened(sandbox.netns_path) as namespace:
                lost = await self._lost(key, namespace)
        except KubeError as error:  # it has ended meanwhile, or its next CHECK finds the same
            log.info("attachment not checked", pod=str(sandbox.pod), why=str(error))
            return
        if lost:
            names = " and ".join(f"{plan.interface} ({plan.network})" for plan in lost)
            note = f"{names} went with the card, which came back without: delete the pod."
            self._tell(sandbox.pod, "NetworksLost", note)


class PodWatchDependencies(Frozen):
    """Everything that the watch of the node's pods depends on."""

    cluster: Cluster
    node: str
    state: Path  # the agent's folder on the host's disk
    context: NodeContext
    # records an Event about a pod: reason, sentence, whether it is a warning
    tell: Callable[[PodState, str, str, bool], None]


class NodePodWatch:
    """A watch of the node's pods that ask for networks, with a list of them on the disk."""

    def __init__(self, dependencies: PodWatchDependencies) -> None:
        self._needs = dependencies
        self._asking: dict[tuple[str, str], PodState] = {}
        self._on_host: dict[tuple[str, str], PodState] = {}
        self._notices = Notices()  # to those on the host's network, by their uid
        self._list = AskingPods(dependencies.state / "asking")
        self._chained = Mark(dependencies.state / "chained")
        self._is_chained = False

    @property
    def asking(self) -> tuple[PodState, ...]:
        """Return the pods that ask for networks and can have some, as last seen."""
        return tuple(self._asking.values())

    def wired(self, wiring: Wiring) -> None:
        """Note how the host's CNI configuration calls the agent for pods; then `_refuse`.

        Raise Unavailable if that cannot be written to the disk. While nobody calls because the node
        has no network, an earlier record stays.
        """
        self._is_chained = wiring is Wiring.CHAIN
        if wiring is Wiring.CHAIN:
            self._chained.set()
        elif wiring is Wiring.DELEGATE:
            self._chained.clear()
        self._refuse()

    def unwired(self) -> None:
        """Note that nobody calls the agent: its configuration is refused or not installed.

        Raise Unavailable if the disk fails.
        """
        self._is_chained = False
        self._chained.clear()

    def owed(self, sandbox: PodSandbox, pod: PodState) -> bool:
        """Return whether a sandbox should have got networks when it was made, by files on disk."""
        asking_since = self._list.since(PodName(pod.namespace, pod.name))
        return rules.is_owed(sandbox, pod, asking_since, self._chained.since())

    async def follow(self, wake: Callable[[], None]) -> None:
        """Watch until cancelled; call `wake` when a pod that asks has begun to run.

        The list on the disk stays unchanged until all pods have been listed once.
        """
        self._asking.clear()  # of an earlier watch: some may be gone
        self._on_host.clear()
        kept: frozenset[PodName] | None = None
        synced = False
        where = Where(fields=f"spec.nodeName={self._needs.node}")
        async with aclosing(self._needs.cluster.watch(POD, where)) as events:
            async for event in events:
                match event:
                    case Changed(document):
                        with contained("pods of the node"):  # of one pod, whatever is in it
                            self._note(pod_state(document), wake)
                    case Deleted(name, namespace, uid):
                        self._forget(namespace, name)
                        self._notices.over(uid)
                    case Synced():
                        synced = True
                names = frozenset(PodName(*key) for key in self._asking)
                if synced and names != kept:
                    await asyncio.to_thread(self._list.keep, names)
                    kept = names

    def _note(self, pod: PodState, wake: Callable[[], None]) -> None:
        # Only the size of an object, 1.5 MiB, limits labels, and many pods may be kept.
        pod = replace(pod, labels=tuple(label for label in pod.labels if label[0] == RESTART))
        key = (pod.namespace, pod.name)
        before = self._asking.get(key)
        self._forget(*key)
        if is_asking(pod):
            self._asking[key] = pod
            # Its sandbox is there now. A round finds out whether its networks are too.
            if pod.phase == "Running" and (before is None or before.phase != "Running"):
                wake()
        elif names_networks(pod.annotations) and not pod.is_over:
            self._on_host[key] = pod
            self._refuse()

    def _forget(self, namespace: str, name: str) -> None:
        self._asking.pop((namespace, name), None)
        self._on_host.pop((namespace, name), None)

    def _refuse(self) -> None:
        """Warn each asking pod with hostNetwork once, as it gets no networks.

        Do so only while the host's CNI configuration chains kube-rdma.
        """
        for pod in self._on_host.values() if self._is_chained else ():
            try:
                asked = asking(pod, self._needs.context.network)
                refuse_host_network(pod, asked.asks, asked.annotation)
            except Refused as error:
                for why in self._notices.news(pod.uid, str(error)):
                    self._needs.tell(pod, "NetworksRefused", why, True)
            except Unavailable:
                continue  # its annotation is being written; that is news too
            except Exception as error:  # noqa: BLE001  of one pod
                why = object_failed(POD.kind, f"{pod.namespace}/{pod.name}", error)
                self._needs.tell(pod, "NetworksRefused", why, True)
