"""Does what a plan says and takes it back: the journal around the kernel.

Between programs/agent/networks, which decides what a pod gets, and adapters/kernel/steps. The whole
attachment is in the journal before the first step; whatever ends in between (a refusal, a crash, a
namespace that goes) is taken back by the same undo, which may be run as often as one likes
(DESIGN, decision 1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

import structlog

from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.namespaces import Namespace
from kube_rdma.adapters.kernel.steps import PodNetwork
from kube_rdma.model.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.binding import ContainerId
from kube_rdma.model.errors import Broken, Unavailable
from kube_rdma.model.pod_view import PodView
from kube_rdma.model.step import SetSysctl
from kube_rdma.rules import attach_undo as rules

KINDS: dict[str, type[Attachment]] = {"attachment": Attachment}

log = structlog.get_logger()


Open = Callable[[Namespace | None], AbstractContextManager[PodNetwork]]


class Attaching:
    """The attachments of this node. Calls for one sandbox come one after the other."""

    def __init__(self, journal: Journal[Attachment], open_pod: Open) -> None:
        """Read the journal; PodNetworks.recover ends what was interrupted."""
        self._journal = journal
        self._open = open_pod
        self._known: dict[ContainerId, Attachment] = {}
        loaded = journal.load()
        for fault in loaded.faults:
            log.error("a record cannot be read", why=str(fault))
        for _, record in loaded.records:
            self._known[record.sandbox.container] = record

    @property
    def known(self) -> tuple[Attachment, ...]:
        """Every attachment that the journal has."""
        return tuple(self._known.values())

    def of(self, container: ContainerId) -> Attachment | None:
        """The attachment of a sandbox."""
        return self._known.get(container)

    async def begin(self, sandbox: Sandbox) -> None:
        """Note that a sandbox will have something: what is taken for it from now on is found again.

        Raise Unavailable when the disk fails.
        """
        await self._put(Attachment(sandbox, ()))

    async def attach(self, wanted: Attachment, namespace: int) -> PodView:
        """Do all steps; what the pod's namespace shows then. After an error: detach, forget."""
        await self._put(wanted)
        return await asyncio.to_thread(self._run, wanted.plans, namespace)

    async def complete(self, container: ContainerId) -> None:
        """Note that ADD is about to answer: from now on only DEL ends it."""
        await self._put(replace(self._known[container], complete=True))

    async def detach(self, container: ContainerId) -> None:
        """Take all steps of a sandbox back, as far as they were done; its record stays.

        Raise KubeRdmaError when something cannot be taken back now.
        """
        known = self._known.get(container)
        if known:
            await asyncio.to_thread(self._undo, known)

    async def forget(self, container: ContainerId) -> None:
        """Nothing of the sandbox is left, neither here nor at others: its record goes."""
        if container in self._known:
            await asyncio.to_thread(self._journal.remove, _name(container))
            del self._known[container]

    async def look(self, container: ContainerId, namespace: int) -> tuple[str, ...]:
        """What is not as it was planned, as sentences; nothing when all is well (CNI CHECK)."""
        known = self._known.get(container)
        if known is None:
            raise Broken(f"nothing is known of an attachment of sandbox {container}.")

        steps = (step for plan in known.plans for step in plan.steps)
        paths = tuple(step.path for step in steps if isinstance(step, SetSysctl))

        def see() -> tuple[str, ...]:
            with self._open(namespace) as pod:
                view = pod.look(paths)
            return tuple(line for plan in known.plans for line in rules.check(plan, view))

        return await asyncio.to_thread(see)

    def _run(self, plans: tuple[Plan, ...], namespace: int) -> PodView:
        with self._open(namespace) as pod:
            for plan in plans:
                for step in plan.steps:
                    pod.run(step)
            return pod.look()

    def _undo(self, known: Attachment) -> None:
        acts = [act for plan in reversed(known.plans) for act in rules.undo(plan)]
        if not acts:
            return
        path = Path(known.sandbox.netns_path)
        with ExitStack() as stack:
            pod: PodNetwork | None = None
            if is_there(known.sandbox):
                pod = stack.enter_context(self._open(path))
            # Another namespace may have come to the path in between: its inode tells.
            if pod is None or pod.inode != known.sandbox.netns_inode:
                pod = stack.enter_context(self._open(None))
            for act in acts:
                pod.undo(act)

    async def _put(self, attachment: Attachment) -> None:
        container = attachment.sandbox.container
        # Known first: a disk that fails may have the record all the same, so it has to be removed.
        self._known[container] = attachment
        await asyncio.to_thread(self._journal.put, _name(container), attachment)


def _name(container: ContainerId) -> str:
    return f"attachment-{container}"


def is_there(sandbox: Sandbox) -> bool:
    """Whether the namespace at the sandbox's path is the one that it was."""
    try:
        return Path(sandbox.netns_path).stat().st_ino == sandbox.netns_inode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unavailable(
            f"{sandbox.netns_path} cannot be looked at ({error.strerror})."
        ) from error
