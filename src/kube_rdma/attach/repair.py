"""Finds sandboxes that lack the networks their pods ask for, and attachments without a sandbox.

    runtime's sandboxes, pods, journal ─ attach/rules/repair ─► the same ADD, made late │ the same
    end
                                            └ in vain, and the pod runs ─► Event, restart wanted

Beside the socket of the shim (attach/node_networks). A level is compared, so
whatever was missed, and why, is found by the next round: one at the start, one after news (`wake`),
else one a minute.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from pathlib import Path

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_base.notices import Notices
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Deleted, Synced
from kube_rdma.adapters.bulkhead import contained, object_failed
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.adapters.cni.state import AskingPods, Mark
from kube_rdma.attach.annotated_networks import asking
from kube_rdma.attach.calls import SandboxNetworks
from kube_rdma.attach.executor import is_there
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.rules.conflist import ENTRY
from kube_rdma.attach.rules.repair import (
    ABSENT,
    RepairState,
    RepairView,
    asks_for_nothing,
    decide,
    due,
    failed,
    is_hopeless,
    is_owed,
)
from kube_rdma.attach.rules.requests import is_asking, names_networks, refuse_host_network
from kube_rdma.model.attach.attachment import RESTART, Attachment, AttachmentKey, Plan
from kube_rdma.model.attach.cni import VERSIONS, Call, Verb, Wiring
from kube_rdma.model.card import CardId
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import ContainerId, PodName, PodSandbox
from kube_rdma.pools.rules.absence import attached_cards

log = structlog.get_logger()


@contextmanager
def open_netns(path: str) -> Iterator[int]:
    """A descriptor of the namespace at a path of the runtime; raise Unavailable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(
            f"The network namespace {path} cannot be opened ({error.strerror}); the host's folder "
            "of it has to be mounted with mountPropagation: HostToContainer."
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class RepairDependencies(Frozen):
    """Whom the rounds need.

    `listed` are the sandboxes of the runtime, `netns` is the path of one's network namespace; both
    raise Unavailable. `pods` are the node's that ask for networks of kube-rdma, by the last news;
    none while the agent is not called for them. `owed` tells of a sandbox whether it should have
    had networks when it was made, from the disk, and raises Unavailable: what was annotated later
    has missed nothing, and a slip of the pen must not end it. `restart` asks the controller to end
    a pod, with the reason, or (None) asks no more; it raises KubeError. `tell` says something
    about a pod: a word for it, a sentence, and whether it is a warning. `refused` says why a pod
    cannot have what it asks for on this node. `opened` gives a descriptor of a namespace.
    """

    networks: SandboxNetworks
    listed: Callable[[], Awaitable[tuple[PodSandbox, ...]]]
    netns: Callable[[ContainerId], Awaitable[str]]
    pods: Callable[[], tuple[PodState, ...]]
    owed: Callable[[PodSandbox, PodState], bool]
    context: NodeContext
    restart: Callable[[PodState, str | None], Awaitable[None]]
    tell: Callable[[PodState, str, str, bool], None]
    refused: Callable[[PodState], Refused | None] = lambda _: None
    opened: Callable[[str], AbstractContextManager[int]] = open_netns


class RepairTiming(Frozen):
    """Seconds: between two rounds at least and at most; `clock` is monotonic."""

    least: float = 1.0
    most: float = 60.0
    clock: Callable[[], float] = time.monotonic


class SandboxRepair:
    """The rounds of one node; one task runs them."""

    def __init__(self, dependencies: RepairDependencies, pace: RepairTiming | None = None) -> None:
        self._needs = dependencies
        self._pace = pace or RepairTiming()
        self._state = RepairState()
        self._news = asyncio.Event()
        self._notices = Notices()
        self._mark: tuple[float, float] | None = None  # the own clock and that of the addresses

    def wake(self) -> None:
        """Something changed that a round may have to do with."""
        self._news.set()

    async def run(self) -> None:
        """Rounds, until cancelled."""
        failures = 0
        while True:
            self._news.clear()
            try:
                await self.round()
                failures = 0
                self._notices.over("round")
                seconds = self._wait()
            except KubeError as error:
                self._notices.warn(log, "sandbox reconciliation failed", "round", str(error))
                seconds = full_jitter(failures)
                failures += 1
            await asyncio.sleep(self._pace.least)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()

    async def round(self) -> None:
        """Compare once, and do what is to be done; raise KubeError when nothing can be said.

        What cannot be done for one sandbox holds up no other.
        """
        now, freed = self._pace.clock(), self._needs.networks.now()
        listed = await self._needs.listed()
        pods = self._needs.pods()
        attachments = self._needs.networks.attachments
        gone = await asyncio.to_thread(_gone, attachments)
        seen = RepairView(listed, pods, attachments, gone, self._needs.networks.foreign)
        decided = decide(seen, self._state, now)
        self._state = decided.state
        for container in decided.orphans:
            await self._end(container)
        by_uid = {pod.runtime_uid: pod for pod in pods}
        for sandbox in decided.missing:
            await self._repair(sandbox, by_uid[sandbox.uid])
        if listed:
            await self._collect(frozenset(one.container for one in listed), now, freed)

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
            self._state = asks_for_nothing(self._state, sandbox.container)
        if RESTART in dict(pod.labels):
            await self._want(pod, None)

    async def _attach(self, sandbox: PodSandbox, pod: PodState) -> None:
        """The ADD that never came, as the runtime would have made it."""
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
        self._state = failed(
            self._state, container, self._pace.clock(), refused=isinstance(error, Refused)
        )
        note = f"The pod lacks networks that it asks for: {error}"
        try:
            hopeless = is_hopeless(self._state, container, pod)
            if hopeless and await asyncio.to_thread(self._needs.owed, sandbox, pod):
                await self._want(pod, note)
                note = f"{note} kube-rdma's controller evicts it; without a controller, delete it."
        except KubeError as why:
            log.warning("disk not readable", pod=str(sandbox.pod), why=str(why))
        self._needs.tell(pod, "NetworksMissing", note, True)

    async def _want(self, pod: PodState, why: str | None) -> None:
        """Ask for a pod's restart, or no more; what fails is done by the next try."""
        try:
            await self._needs.restart(pod, why)
        except KubeError as error:
            name = f"{pod.namespace}/{pod.name}"
            log.warning("restart request not written", pod=name, why=str(error))

    async def _collect(self, living: frozenset[ContainerId], now: float, freed: float) -> None:
        """Free addresses that are older than any sandbox that the runtime still makes."""
        if self._mark is None:
            self._mark = now, freed
        elif now - self._mark[0] >= ABSENT:
            await self._needs.networks.collect(living, self._mark[1])
            self._mark = now, freed

    def _wait(self) -> float:
        """Seconds until the next round, without news."""
        now = self._pace.clock()
        return min(self._pace.most, due(self._state, now) - now)


def _gone(attachments: tuple[Attachment, ...]) -> frozenset[ContainerId]:
    """Those whose namespace no longer exists, where the folder of namespaces can be seen."""
    gone = set()
    for attachment in attachments:
        with suppress(Unavailable):
            if Path(attachment.sandbox.netns_path).parent.is_dir() and not is_there(
                attachment.sandbox
            ):
                gone.add(attachment.sandbox.container)
    return frozenset(gone)


# Looks at the pods that stand on a card which came back, and tells those that lost an interface.


class ReturnedCards:
    """Those of one node; one task runs `run`.

    `attachments` are the journal's now. `lost` says which plans of an attachment have no interface
    in the namespace, and raises KubeError; `tell` says a sentence about a pod under a word for it.
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
        """A card that was bad or gone is good again."""
        self._returned.add(card)
        self._news.set()

    async def run(self) -> None:
        """Look after each return, until cancelled."""
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
        except KubeError as error:  # it has ended meanwhile, or its next CHECK tells the same
            log.info("attachment not checked", pod=str(sandbox.pod), why=str(error))
            return
        if lost:
            names = " and ".join(f"{plan.interface} ({plan.network})" for plan in lost)
            note = f"{names} went with the card, which came back without: delete the pod."
            self._tell(sandbox.pod, "NetworksLost", note)


# The pods of this node that ask for networks, as the API server's watch shows them.


class PodWatchDependencies(Frozen):
    """Whom the watch of the pods needs. `state` is the agent's folder on the host's disk. `tell`
    says something about a pod: a word for it, a sentence, and whether it is a warning."""

    cluster: Cluster
    node: str
    state: Path
    context: NodeContext
    tell: Callable[[PodState, str, str, bool], None]


class NodePodWatch:
    """``await NodePodWatch(...).follow(wake)``; `wired` when it is known who calls the agent."""

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
        """Those that ask for networks and can have some, by the last news."""
        return tuple(self._asking.values())

    def wired(self, wiring: Wiring) -> None:
        """Take note of who calls the agent for pods now; raise Unavailable if it cannot be kept.

        While nobody does because the node has no network, nothing starts: what was so stays so.
        """
        self._is_chained = wiring is Wiring.CHAIN
        if wiring is Wiring.CHAIN:
            self._chained.set()
        elif wiring is Wiring.DELEGATE:
            self._chained.clear()
        self._refuse()

    def unwired(self) -> None:
        """Nobody calls the agent: its configuration is refused or not installed; raise so."""
        self._is_chained = False
        self._chained.clear()

    def owed(self, sandbox: PodSandbox, pod: PodState) -> bool:
        """Whether a sandbox should have had networks when it was made; reads the disk."""
        since = self._list.since(PodName(pod.namespace, pod.name)), self._chained.since()
        return is_owed(sandbox, pod, *since)

    async def follow(self, wake: Callable[[], None]) -> None:
        """Watch until cancelled; `wake` hears when a pod that asks began to run.

        The list on the disk is changed only when all pods are listed: until then that of an earlier
        life is truer.
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
        # Labels have no end but that of an object, 1.5 MiB, and all pods of the node are kept.
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
        """Tell each pod on the host's network once. Behind a meta-plugin that one has the word."""
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
