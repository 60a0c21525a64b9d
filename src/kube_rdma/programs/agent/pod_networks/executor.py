"""Does what a plan says and takes it back: the journal around the kernel and other CNI plugins.

Between programs/agent/pod_networks/chain, which decides what a pod gets, and
adapters/kernel/pod/steps; what other plugins make goes to adapters/cni_exec. The whole attachment
is in the journal before the first step; whatever ends in between (a refusal, a crash, a namespace
that goes) is taken back by the same undo, which may be run as often as one likes (DESIGN, decision
1).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from kube_rdma.adapters.cni.exec.plugins import Plugins
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.pod.namespaces import Namespace
from kube_rdma.adapters.kernel.pod.steps import PodNetwork
from kube_rdma.model.attachment import Attachment, Plan, PluginResult, Sandbox
from kube_rdma.model.binding import ContainerId
from kube_rdma.model.errors import Broken, HardwareGone, KubeRdmaError, Unavailable
from kube_rdma.model.function_step import RebindFunction, SetFunction
from kube_rdma.model.pod_view import PodView
from kube_rdma.model.step import CallPlugin, EndPlugin, SetSysctl
from kube_rdma.programs.agent.pod_networks.worker_pools import Threads
from kube_rdma.programs.records import Records, in_the_log
from kube_rdma.rules.attach import undo as rules

Open = Callable[[Namespace | None], AbstractContextManager[PodNetwork]]


class Attaching:
    """The attachments of this node. Calls for one sandbox come one after the other."""

    def __init__(
        self,
        journal: Journal[Attachment],
        open_pod: Open,
        plugins: Plugins,
        threads: Threads | None = None,
        tell: Callable[[str], None] = in_the_log,
    ) -> None:
        """Read the journal; PodNetworks.recover ends what was interrupted.

        `tell` takes a sentence for each record that cannot be read.
        """
        self._threads = threads or Threads()
        self._records = Records(journal, tell, read=_as_named)
        self._open = open_pod
        self._plugins = plugins

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Every attachment that the journal has."""
        return self._records.values

    @property
    def foreign(self) -> frozenset[ContainerId]:
        """The sandboxes with a record that this version of kube-rdma does not understand."""
        names = self._records.foreign_names
        return frozenset(ContainerId(name.partition("-")[2]) for name in names)

    async def refuse_foreign(self, container: ContainerId) -> None:
        """Raise Unavailable for such a sandbox: half an undo would be worse than none."""
        await self._records.refuse_foreign(_name(container), _done(container))

    async def installed(self) -> tuple[str, tuple[str, ...]]:
        """The host's folder of CNI plugins, and which are in it."""
        return self._plugins.folder, await asyncio.to_thread(self._plugins.installed)

    def of(self, container: ContainerId) -> Attachment | None:
        """The attachment of a sandbox."""
        return self._records.get(_done(container)) or self._records.get(_name(container))

    def has(self, container: ContainerId) -> bool:
        """Whether there is a record of a sandbox, understood or not."""
        return self.of(container) is not None or container in self.foreign

    async def ready(self, planned: Sequence[Plan]) -> None:
        """Raise for plans with CNI plugins that this machine cannot run, before they are begun."""
        for plan in planned:
            for step in plan.steps:
                if isinstance(step, CallPlugin):
                    await self._threads.run(self._plugins.ready, step, plugins=True)

    def results(self, sandbox: Sandbox) -> tuple[PluginResult, ...]:
        """What other plugins answered for a sandbox."""
        attachment = self.of(sandbox.container)
        return attachment.results if attachment else ()

    async def begin(self, sandbox: Sandbox) -> None:
        """Note that a sandbox will have something: what is taken for it from now on is found again.

        Raise Unavailable when the disk fails.
        """
        await self.refuse_foreign(sandbox.container)
        await asyncio.to_thread(self._put, Attachment(sandbox, ()))

    async def attach(self, wanted: Attachment, namespace: int) -> PodView:
        """Do all steps; the links that the pod's namespace shows then, and what has a new name.

        After an error: detach, forget.
        """
        called = _calls_plugins(wanted)
        return await self._threads.run(self._run, wanted, namespace, plugins=called)

    async def complete(self, container: ContainerId) -> None:
        """Note that ADD is about to answer: from now on only DEL ends it.

        The record's name says so, which takes the disk a third of the time of a new one.
        """
        attachment = self.of(container)
        assert attachment
        done = replace(attachment, complete=True)
        await self._records.rename(_name(container), _done(container), done)

    async def detach(self, container: ContainerId) -> None:
        """Take all steps of a sandbox back, as far as they were done; its record stays.

        Raise KubeRdmaError when something cannot be taken back now; Gone if that is hardware alone
        which is nowhere now. What was taken out of the machine needs no way back.
        """
        attachment = self.of(container)
        if attachment:
            await self._threads.run(self._undo, attachment, plugins=_calls_plugins(attachment))

    async def forget(self, container: ContainerId) -> None:
        """Nothing of the sandbox is left, neither here nor at others: its record goes."""
        if self.of(container):
            await self._records.remove(_done(container), _name(container))

    async def look(self, container: ContainerId, namespace: int) -> tuple[str, ...]:
        """What is not as it was planned, as sentences; nothing when all is well (CNI CHECK)."""
        await self.refuse_foreign(container)
        attachment = self.of(container)
        if attachment is None:
            raise Broken(f"no attachment of sandbox {container} is recorded.")

        steps = [step for plan in attachment.plans for step in plan.steps]
        paths = tuple(step.path for step in steps if isinstance(step, SetSysctl))
        functions = tuple(step.place for step in steps if isinstance(step, SetFunction))

        def see() -> tuple[str, ...]:
            with self._open(namespace) as pod:
                view = pod.look(paths, functions)
            wrong = [line for plan in attachment.plans for line in rules.check(plan, view)]
            return (*wrong, *self._ask(attachment))

        return await self._threads.run(see, plugins=_calls_plugins(attachment))

    def _run(self, wanted: Attachment, namespace: int) -> PodView:
        self._put(wanted)
        with self._open(namespace) as pod:
            for plan in wanted.plans:
                for step in plan.steps:
                    if isinstance(step, CallPlugin):
                        self._call(step, wanted.sandbox)
                    else:
                        pod.run(step)
            if any(isinstance(s, RebindFunction) for plan in wanted.plans for s in plan.steps):
                return pod.look()  # its RDMA devices have other names now
            return PodView(links=pod.links())

    def _call(self, step: CallPlugin, sandbox: Sandbox) -> None:
        """Their answer goes to the journal at once: without it a DEL may leave things behind."""
        answer = self._plugins.add(step, sandbox)
        attachment = self.of(sandbox.container)
        assert attachment
        self._put(replace(attachment, results=(*attachment.results, answer)))

    def _ask(self, attachment: Attachment) -> Iterator[str]:
        """What other plugins have to say of their interfaces."""
        for plan in attachment.plans:
            for step in plan.steps:
                if isinstance(step, CallPlugin):
                    try:
                        self._plugins.check(step, attachment.sandbox, _result(attachment, step))
                    except KubeRdmaError as error:
                        yield f"{plan.interface} ({plan.network}): {str(error).rstrip('.')}"

    def _undo(self, attachment: Attachment) -> None:
        acts = rules.undo_by_plan(attachment.plans)
        if not acts:
            return
        path = Path(attachment.sandbox.netns_path)
        with ExitStack() as stack:
            pod: PodNetwork | None = None
            if is_there(attachment.sandbox):
                pod = stack.enter_context(self._open(path))
            # Another namespace may have come to the path in between: its inode tells.
            if pod is None or pod.inode != attachment.sandbox.netns_inode:
                pod = stack.enter_context(self._open(None))
            failed: list[KubeRdmaError] = []
            stuck: set[int] = set()
            for plan, act in acts:
                try:
                    if isinstance(act, EndPlugin):
                        self._plugins.delete(
                            act.call, attachment.sandbox, _result(attachment, act.call)
                        )
                    elif plan not in stuck:
                        pod.undo(act)
                except KubeRdmaError as error:
                    failed.append(error)  # it keeps no other card from coming back
                    if not isinstance(act, EndPlugin):
                        stuck.add(plan)
        _raise_worst(failed)

    def _put(self, attachment: Attachment) -> None:
        self._records.begin(_name(attachment.sandbox.container), attachment)


def _raise_worst(failed: Iterable[KubeRdmaError]) -> None:
    """Raise what keeps an attachment from being ended; Gone only where there is nothing else."""
    left = [error for error in failed if not (isinstance(error, HardwareGone) and error.for_good)]
    for error in sorted(left, key=lambda one: isinstance(one, HardwareGone)):
        raise error


def _result(attachment: Attachment, call: CallPlugin) -> PluginResult | None:
    return next((one for one in attachment.results if one.interface == call.name), None)


def _calls_plugins(attachment: Attachment) -> bool:
    """Whether binaries of others do a part of it, who may take their time."""
    steps = (step for plan in attachment.plans for step in plan.steps)
    return any(isinstance(step, CallPlugin) for step in steps)


def _name(container: ContainerId) -> str:
    return f"attachment-{container}"


def _done(container: ContainerId) -> str:
    """Of one that is complete."""
    return f"attached-{container}"


def _as_named(name: str, record: Attachment) -> Attachment:
    """A record; that it is complete, its name may say alone."""
    return replace(record, complete=record.complete or name == _done(record.sandbox.container))


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
