"""Mirrors one watch as values of the model by name; garbled objects are faults, logged once.

The values may be late, but are not wrong for long: kube_client/watching makes up for missed events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, TypeVar

import structlog

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.notices import Notices
from kube_client.kinds import EVERYWHERE, ObjectKind, Stored, Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Cut, Deleted, Muddled, Synced, WatchEvent
from kube_rdma.adapters.bulkhead import kept, object_failed

V = TypeVar("V")

log = structlog.get_logger()


async def follow_all(
    tasks: asyncio.TaskGroup, cluster: Cluster, pause: Callable[[int], float], *mirrors: Mirror[Any]
) -> None:
    """Start a task for each mirror that watches its objects; return once all have shown them.

    A mirror of an optional kind is awaited for its first attempt only.
    """
    for mirror in mirrors:
        tasks.create_task(kept(f"watch of {mirror.plural}", partial(mirror.follow, cluster, pause)))
    for mirror in mirrors:
        await (mirror.tried if mirror.optional else mirror.synced).wait()


class Mirror(Generic[V]):
    """The values of all objects of a kind, as a watch shows them.

    `read` makes the value of an object, returns None for one of no interest, and may raise Refused.
    """

    def __init__(
        self,
        kind: ObjectKind[Any, Any],
        read: Callable[[Stored[Any, Any]], V | None],
        changed: Callable[[V | None, V | None], None] = lambda _old, _new: None,
        where: Where = EVERYWHERE,
        *,
        optional: bool = False,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `changed` with the value before and after, None where there is none.

        `heard` is called after each list and each interruption of the watch. `optional`: the
        program does without the kind, so its absence is no warning.
        """
        # By name; of a kind in all namespaces by "namespace/name".
        self.values: dict[str, V] = {}
        self.faults: dict[str, KubeError] = {}  # of objects that are not understood
        self.synced = asyncio.Event()  # the watch has shown all objects once
        self.tried = asyncio.Event()  # the first attempt has ended, well or not
        self.trouble = ""  # why nothing is known now; empty while all is well
        self._unseen: set[str] = set()  # of an earlier watch
        self.outages = 0  # how often there was trouble
        self.refused = False  # the trouble is that the kind is missing, or a right
        self.plural = kind.plural
        self._kind, self._where, self.optional = kind, where, optional
        self._read, self._changed, self._heard = read, changed, heard
        self._notices = Notices()  # by object, and of the watch

    async def follow(self, cluster: Cluster, pause: Callable[[int], float]) -> None:
        """Watch the objects until cancelled; try again after every error, even a refusal."""
        failures = 0
        while True:
            self._unseen = {*self.values, *self.faults}
            try:
                async with aclosing(cluster.watch(self._kind, self._where)) as events:
                    async for event in events:
                        self.take(event)
            except Refused as error:
                self._hear(Cut(str(error)))
                self.refused = True
            await asyncio.sleep(pause(failures))
            failures += 1

    def take(self, event: WatchEvent[Any, Any]) -> None:
        """Handle an event of the watch; for a program that watches the kind by itself."""
        match event:
            case Changed(stored):
                self._show(stored)
            case Deleted(name, namespace):
                key = self._key(namespace, name)
                self._well(key)
                self._set(key, None)
            case Muddled(name, namespace, why, bug):
                key = self._key(namespace, name)
                if bug:
                    object_failed(self._kind.kind, key, bug)
                self._fault(key, Unavailable(why))
            case Synced() | Cut():
                if isinstance(event, Synced):
                    # What it did not show was deleted between two watches.
                    for key in self._unseen:
                        self._well(key)
                        self._set(key, None)
                    self._unseen = set()
                self._hear(event)

    def _show(self, stored: Stored[Any, Any]) -> None:
        key = self._key(stored.namespace, stored.name)
        try:
            value = self._read(stored)
        except KubeError as error:
            self._fault(key, error)
        except Exception as error:  # noqa: BLE001  of one object
            why = object_failed(self._kind.kind, key, error)
            self._fault(key, Unavailable(f"{key}: {why}"))
        else:
            self._well(key)
            self._set(key, value)

    def _key(self, namespace: str, name: str) -> str:
        everywhere = self._kind.namespaced and not self._where.namespace
        return f"{namespace}/{name}" if everywhere else name

    def _fault(self, name: str, error: KubeError) -> None:
        self._notices.warn(
            log, "object not understood", ("object", name), str(error), kind=self._kind.kind
        )
        self.faults[name] = error
        self._set(name, None)

    def _well(self, name: str) -> None:
        self.faults.pop(name, None)
        self._notices.over(("object", name))

    def _set(self, name: str, value: V | None) -> None:
        self._unseen.discard(name)
        old = self.values.pop(name, None)
        if value is not None:
            self.values[name] = value
        if old is not None or value is not None:
            try:
                self._changed(old, value)
            except Exception as error:  # noqa: BLE001  of one object
                object_failed(self._kind.kind, name, error)

    def _hear(self, event: Synced | Cut) -> None:
        self.trouble = event.why if isinstance(event, Cut) else ""
        self.outages += bool(self.trouble)
        self.refused = False
        for why in self._notices.news("watch", *filter(None, [self.trouble])):
            tell = log.info if self.optional else log.warning
            tell("watch interrupted", kind=self._kind.kind, why=why)
        if not self.trouble:
            self.synced.set()
        self.tried.set()
        self._heard()
