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
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import structlog

from kube_base.backoff import full_jitter
from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen
from kube_base.notices import Notices
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.attach.chain import SandboxNetworks
from kube_rdma.attach.context import NodeContext
from kube_rdma.attach.executor import is_there
from kube_rdma.attach.rules.cni_conf.conflist import ENTRY
from kube_rdma.attach.rules.repair import (
    ABSENT,
    RepairState,
    RepairView,
    asks_for_nothing,
    decide,
    due,
    failed,
    is_hopeless,
)
from kube_rdma.model.attach.attachment import Attachment
from kube_rdma.model.attach.cni import VERSIONS, Call, Verb
from kube_rdma.model.attach.restart import RESTART
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding.binding import ContainerId
from kube_rdma.model.late_binding.runtime import PodSandbox
from kube_rdma.model.pod import PodState

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
