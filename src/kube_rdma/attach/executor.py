"""Does the steps of plans and undoes them: the journal around the kernel and other CNI plugins.

attach/attach decides what a pod gets; adapters/kernel/pod/steps does steps in the kernel, and
adapters/cni/plugins calls other plugins. Each step is in the journal before it is done. If the
steps end early (a refusal, a crash, a namespace that goes), one undo takes all back. It may run as
often as necessary. attach/rules/records has the names of records on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from kube_base.errors import Broken, KubeError, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.cni.plugins import Plugins
from kube_rdma.adapters.cni.socket import Turns, refuse_hung_up, set_aside
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.pod.namespaces import Namespace
from kube_rdma.adapters.kernel.pod.steps import PodNetwork
from kube_rdma.attach.rules import records
from kube_rdma.attach.rules.plan import plugin_calls
from kube_rdma.attach.rules.undo import check, looked_at, undo_by_plan
from kube_rdma.lib.records import Records, in_the_log
from kube_rdma.model.attach.attachment import (
    Attachment,
    AttachmentKey,
    Plan,
    PluginResult,
    PodView,
    Sandbox,
)
from kube_rdma.model.attach.steps import CallPlugin, EndPlugin, PluginConf
from kube_rdma.model.errors import HardwareGone
from kube_rdma.model.pools import RebindFunction

Open = Callable[[Namespace | None], AbstractContextManager[PodNetwork]]

STEPS = 8
PLUGINS = 16

Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class WorkerPools:
    """Two pools of threads, for steps in the kernel and for CNI plugins; work waits for a thread.

    Threads are started when there is work for them; both numbers bound what a burst of pods costs.
    """

    def __init__(self, steps: int = STEPS, plugins: int = PLUGINS) -> None:
        self._steps = ThreadPoolExecutor(steps, "steps"), Turns(steps)
        self._plugins = ThreadPoolExecutor(plugins, "plugins"), Turns(plugins)

    async def run(
        self, work: Callable[[*Ts], T], *args: *Ts, plugins: bool, begins: bool = False
    ) -> T:
        """Run work in a thread of the pool for CNI plugins, or for kernel steps; return its result.

        `begins`: the work makes something new for the caller of this task. Raise Unavailable then
        if the caller has hung up. Other work comes first, and is done even if the caller has hung
        up. While plugins of others run, the socket serves the next call.
        """
        threads, turns = self._plugins if plugins else self._steps
        async with set_aside() if plugins else nullcontext(), turns.turn(begins=begins):
            if begins:
                refuse_hung_up()
            return await asyncio.get_running_loop().run_in_executor(threads, work, *args)


class AttachmentJournal:
    """The attachments of this node on disk, in two journals, by key.

    `pods` and `interfaces` are the journals of the two folders. `tell` is called with a sentence
    for each record that cannot be read.
    """

    def __init__(
        self,
        pods: Journal[Attachment],
        interfaces: Journal[Attachment],
        tell: Callable[[str], None] = in_the_log,
    ) -> None:
        """Read both journals, which blocks; raise Unavailable when the disk fails."""
        read, outlives = records.as_read, records.outlives
        self._pods = Records(pods, tell, read=read, outlives=outlives)
        self._interfaces = Records(interfaces, tell, read=read, outlives=outlives)

    @property
    def attachments(self) -> dict[AttachmentKey, Attachment]:
        """Return all recorded attachments by key; attachments of whole pods come first."""
        values = [(records.key_of(one, split=False), one) for one in self._pods.values]
        values += [(records.key_of(one, split=True), one) for one in self._interfaces.values]
        return {key: records.plain(key, one) for key, one in values}

    @property
    def foreign(self) -> frozenset[AttachmentKey]:
        """Return the keys of records that this version of kube-rdma does not understand."""
        pods = (records.key_named(name, split=False) for name in self._pods.foreign_names)
        names = self._interfaces.foreign_names
        interfaces = (records.key_named(name, split=True) for name in names)
        return frozenset((*pods, *interfaces))

    def get(self, key: AttachmentKey) -> Attachment | None:
        """Return the recorded attachment of a key; None without one."""
        folder = self._of(key)
        record = folder.get(records.complete_name(key)) or folder.get(records.begun_name(key))
        return record and records.plain(key, record)

    async def refuse_foreign(self, key: AttachmentKey) -> None:
        """Raise Unavailable if the key has an unreadable record: its Steps cannot be undone."""
        await self._of(key).refuse_foreign(records.begun_name(key), records.complete_name(key))

    def begin(self, key: AttachmentKey, attachment: Attachment) -> None:
        """Record an attachment whose ADD has not ended; call it from a thread.

        Raise Unavailable if the disk fails, or another version wrote a record of this name.
        """
        self._of(key).begin(records.begun_name(key), records.written(key, attachment))

    async def complete(self, key: AttachmentKey) -> None:
        """Mark a record as complete by renaming it."""
        folder, begun = self._of(key), records.begun_name(key)
        record = folder.get(begun)
        assert record
        await folder.rename(begun, records.complete_name(key), replace(record, complete=True))

    async def remove(self, key: AttachmentKey) -> None:
        """Remove a key's record; raise Unavailable for a record of another version.

        If the disk fails, it is removed after the next write that succeeds, or by the next process.
        """
        await self._of(key).forget(records.complete_name(key), records.begun_name(key))

    def _of(self, key: AttachmentKey) -> Records[Attachment]:
        return self._pods if key.interface is None else self._interfaces


class PlanExecutor:
    """A node's attachments: it runs and undoes their plans, with a record of each by key.

    Its callers make the calls for one key one after the other.
    """

    def __init__(
        self,
        journal: AttachmentJournal,
        open_pod: Open,
        plugins: Plugins,
        threads: WorkerPools | None = None,
    ) -> None:
        self.journal = journal
        self._threads = threads or WorkerPools()
        self._open = open_pod
        self._plugins = plugins

    @property
    def by_key(self) -> dict[AttachmentKey, Attachment]:
        """Return all recorded attachments by key."""
        return self.journal.attachments

    @property
    def keys(self) -> frozenset[AttachmentKey]:
        """Return all keys that have a record, readable or not."""
        return self.journal.foreign.union(self.by_key)

    async def installed(self) -> tuple[str, tuple[str, ...]]:
        """Return the host's folder of CNI plugins, and the names of the plugins."""
        return self._plugins.folder, await asyncio.to_thread(self._plugins.installed)

    def of(self, key: AttachmentKey) -> Attachment | None:
        """Return the recorded attachment of a key; None without one."""
        return self.journal.get(key)

    def has(self, key: AttachmentKey) -> bool:
        """Return whether a key has a record, readable or not."""
        return self.of(key) is not None or key in self.journal.foreign

    def beside(self, key: AttachmentKey) -> tuple[Plan, ...]:
        """Return the plans of all other keys of the same sandbox."""
        every = self.by_key.items()
        same = ((other, one) for other, one in every if other.container == key.container)
        return tuple(plan for other, one in same if other != key for plan in one.plans)

    async def ready(self, calls: Iterable[CallPlugin]) -> None:
        """Call these CNI plugins with VERSION; raise Refused or Unavailable if one cannot run."""
        for call in calls:
            await self._threads.run(self._plugins.ready, call, plugins=True)

    async def status(self, plugin: PluginConf) -> None:
        """Call a CNI plugin with STATUS; raise its error if it could not serve an ADD."""
        await self._threads.run(self._plugins.status, plugin, plugins=True)

    def results(self, key: AttachmentKey) -> tuple[PluginResult, ...]:
        """Return the recorded results of other plugins for a key."""
        attachment = self.of(key)
        return attachment.results if attachment else ()

    def begin(self, key: AttachmentKey, sandbox: Sandbox) -> None:
        """Record that an attachment begins, so that all that is taken for it can be found again.

        Call it from a thread. Raise Unavailable when the disk fails.
        """
        self.journal.begin(key, Attachment(sandbox, ()))

    async def attach(
        self, key: AttachmentKey, wanted: Attachment, namespace: int, done: Sequence[Plan] = ()
    ) -> PodView:
        """Run all Steps; return the pod's links afterwards.

        Return RDMA devices too if a function was rebound, which may rename them. Steps in `done`
        were run before, and are skipped. After an error `detach` and `forget` have to follow. Raise
        Unavailable, before any step, if the CNI caller has hung up meanwhile.
        """
        called = calls_plugins(wanted.plans)
        run = partial(self._run, done=done)
        return await self._threads.run(run, key, wanted, namespace, plugins=called, begins=True)

    async def detach(self, key: AttachmentKey) -> None:
        """Undo all Steps of a key; the record stays.

        Raise KubeError if a step cannot be undone now, HardwareGone if only missing hardware is the
        reason. Hardware that is out of the machine for good needs no undo.
        """
        attachment = self.of(key)
        if attachment:
            await self._threads.run(self._undo, attachment, plugins=calls_plugins(attachment.plans))

    async def forget(self, key: AttachmentKey) -> None:
        """Remove the record of a key whose Steps are undone and whose addresses are free."""
        if self.of(key):
            await self.journal.remove(key)

    async def look(self, key: AttachmentKey, namespace: int) -> tuple[str, ...]:
        """Return differences from the plans, as sentences; call other plugins with CHECK.

        Raise Broken if the key has no record, Unavailable if this version cannot read it.
        """
        await self.journal.refuse_foreign(key)
        attachment = self.of(key)
        if attachment is None:
            raise Broken(f"no attachment of sandbox {key.container} is recorded.")
        paths, functions = looked_at(attachment.plans)

        def see() -> tuple[str, ...]:
            with self._open(namespace) as pod:
                view = pod.look(paths, functions)
            wrong = [line for plan in attachment.plans for line in check(plan, view)]
            return (*wrong, *self._ask(attachment))

        return await self._threads.run(see, plugins=calls_plugins(attachment.plans))

    async def lost(self, key: AttachmentKey, namespace: int) -> tuple[Plan, ...]:
        """Return the plans whose interfaces are missing in the namespace; none without a record."""
        attachment = self.of(key)
        if attachment is None:
            return ()
        plans = attachment.plans

        def see() -> tuple[Plan, ...]:
            with self._open(namespace) as pod:
                names = {link.name for link in pod.links()}
            return tuple(plan for plan in plans if plan.interface not in names)

        return await self._threads.run(see, plugins=False)

    def _run(
        self, key: AttachmentKey, wanted: Attachment, namespace: int, done: Sequence[Plan]
    ) -> PodView:
        self.journal.begin(key, replace(wanted, results=self.results(key) if done else ()))
        first = {plan.interface: len(plan.steps) for plan in done}
        with self._open(namespace) as pod:
            for plan in wanted.plans:
                for step in plan.steps[first.get(plan.interface, 0) :]:
                    if isinstance(step, CallPlugin):
                        answer = self._plugins.add(step, wanted.sandbox)
                        attachment = self.of(key)
                        assert attachment
                        # At once: without the answer a DEL may leave things behind.
                        results = (*attachment.results, answer)
                        self.journal.begin(key, replace(attachment, results=results))
                    else:
                        pod.run(step)
            if any(isinstance(s, RebindFunction) for plan in wanted.plans for s in plan.steps):
                return pod.look()  # its RDMA devices have other names now
            return PodView(links=pod.links())

    def _ask(self, attachment: Attachment) -> Iterator[str]:
        """Yield the faults that other plugins report for their interfaces (CHECK)."""
        for plan in attachment.plans:
            for step in plan.steps:
                if isinstance(step, CallPlugin):
                    try:
                        self._plugins.check(step, attachment.sandbox, _result(attachment, step))
                    except KubeError as error:
                        yield f"{plan.interface} ({plan.network}): {str(error).rstrip('.')}"

    def _undo(self, attachment: Attachment) -> None:
        acts = undo_by_plan(attachment.plans)
        if not acts:
            return
        path = Path(attachment.sandbox.netns_path)
        with ExitStack() as stack:
            pod: PodNetwork | None = None
            if is_there(attachment.sandbox):
                pod = stack.enter_context(self._open(path))
            # Another namespace may have come to the path in between: compare its inode.
            if pod is None or pod.inode != attachment.sandbox.netns_inode:
                pod = stack.enter_context(self._open(None))
            failed: list[KubeError] = []
            stuck: set[int] = set()
            for plan, act in acts:
                try:
                    if isinstance(act, EndPlugin):
                        before = _result(attachment, act.call)
                        self._plugins.delete(act.call, attachment.sandbox, before)
                    elif plan not in stuck:
                        pod.undo(act)
                except KubeError as error:
                    failed.append(error)  # it keeps no other card from coming back
                    if not isinstance(act, EndPlugin):
                        stuck.add(plan)
        # What is gone for good keeps nothing; HardwareGone is raised only without another error.
        left = [one for one in failed if not (isinstance(one, HardwareGone) and one.for_good)]
        if left:
            raise min(left, key=lambda one: isinstance(one, HardwareGone))


def _result(attachment: Attachment, call: CallPlugin) -> PluginResult | None:
    return next((one for one in attachment.results if one.interface == call.name), None)


def calls_plugins(plans: Sequence[Plan]) -> bool:
    """Return whether the plans call plugins of others, which may take long."""
    return bool(plugin_calls(plans))


def is_there(sandbox: Sandbox) -> bool:
    """Return whether the sandbox's path still leads to the same network namespace.

    Raise Unavailable if the path cannot be looked at.
    """
    try:
        return Path(sandbox.netns_path).stat().st_ino == sandbox.netns_inode
    except FileNotFoundError:
        return False
    except OSError as error:
        why = f"{sandbox.netns_path} cannot be looked at ({error.strerror})."
        raise Unavailable(why) from error
