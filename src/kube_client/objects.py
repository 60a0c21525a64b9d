"""The client itself: read, compare-and-swap, apply and delete objects of any kind, and watch them.

A call is one request, but a list has pages, and begins again when one has expired. No write is
repeated unless the server has done nothing (401, 429), for only the caller knows what a repetition
means. **Unavailable after a write says nothing about whether it was done**: read, then decide.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Generic, TypeVar

import msgspec

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_client import wire
from kube_client.calls import ApiRequests, RequestTiming, make
from kube_client.errors import Conflict, Expired, Lost, NotInstalled
from kube_client.kinds import EVERYWHERE, ObjectKind, Pairs, Stored, Wanted, Where
from kube_client.watching import Changed, Cut, Deleted, Level, Muddled, Synced, WatchEvent

S = TypeVar("S")
U = TypeVar("U")

Changes = tuple[tuple[str, str | None], ...]
"""Labels or annotations to set; None takes one away."""

_LISTS = 3  # times that a list is begun whose pages came too late


class SeenObjects(Frozen, Generic[S, U]):
    """Objects of a kind that were understood, sorted by name, and a sentence for each other one."""

    objects: tuple[Stored[S, U], ...]
    muddled: tuple[str, ...]
    unread: frozenset[str] = frozenset()  # names of objects that were not understood


class Cluster:
    """A client of one API server.

    All methods that send a request raise Unavailable without an answer and Refused for a refusal.
    Conflict, an Unavailable (`errors`), means that the object is not as the caller believed.
    """

    def __init__(
        self,
        transport: wire.Transport,
        pace: RequestTiming | None = None,
        *,
        namespace: str = "default",
        program: str = "kube-client",
        server: str = "",
    ) -> None:
        """Set up a client of the API server that `transport` reaches.

        `namespace` is for callers that name none: what `connect` was given, else that of the
        kubeconfig's context, or of the pod that this runs in. `program` is the field manager of
        writes, and is named in refusals. `server` is the host and port of the API server.
        """
        self._calls = ApiRequests(transport, pace or RequestTiming(), program)
        self.managed: Pairs = (("fieldManager", program),)
        self.namespace = namespace
        self.server = server

    @property
    def listeners(self) -> list[Callable[[], None]]:
        """Return the list of functions to call when etcd is found restored; callers add to it."""
        return self._calls.horizon.listeners

    def troubles(self) -> tuple[str, ...]:
        """Return a sentence for each selection of a kind whose last watch failed.

        A kind that is not installed is no failure.
        """
        errors = self._calls.troubles.values()
        return tuple(dict.fromkeys(str(e) for e in errors if not isinstance(e, NotInstalled)))

    def local_address(self) -> str | None:
        """Return this machine's IP address towards the API server; None before it connected."""
        return self._calls.local_address()

    async def get(
        self, kind: ObjectKind[S, U], name: str, namespace: str = ""
    ) -> Stored[S, U] | None:
        """Return the object of a name, None when there is none. The read is consistent."""
        mark = self._calls.horizon.mark(kind, name, namespace)
        body = await self.document(kind, name, namespace)
        if body is None:
            return None
        stored = wire.stored(kind, body)
        self._calls.horizon.read(kind, stored, mark)
        return stored

    async def document(
        self, kind: ObjectKind[Any, Any], name: str, namespace: str = ""
    ) -> bytes | None:
        """Return an object as the server's JSON bytes; None when there is none."""
        try:
            return await self._calls.call(make("get", kind, name, namespace))
        except Conflict as missing:
            if missing.lost is not Lost.GONE:
                raise
            return None

    async def list(
        self, kind: ObjectKind[S, U], where: Where = EVERYWHERE
    ) -> tuple[Stored[S, U], ...]:
        """Return all objects of a selection, sorted by namespace and name. The read is consistent.

        Raise Unreadable (a Refused) when one of them is not understood.
        """
        for attempt in range(_LISTS):
            objects: list[Stored[S, U]] = []
            try:
                async for page in self._calls.list(kind, where):
                    objects += [wire.stored(kind, item) for item in page.items]
                break
            except Expired:  # the server has forgotten the version that the first page was of
                if attempt == _LISTS - 1:
                    raise
        return tuple(sorted(objects, key=lambda each: (each.namespace, each.name)))

    async def see(self, kind: ObjectKind[S, U], where: Where = EVERYWHERE) -> SeenObjects[S, U]:
        """Return the objects of a selection, with a sentence for each one that cannot be decoded.

        Raise Unavailable without an answer, Refused for a refusal.
        """
        # By namespace and name, for a list that expires between two pages is begun anew: what was
        # deleted or changed meanwhile is reported.
        seen: dict[tuple[str, str], Stored[S, U] | Muddled] = {}
        try:
            async with aclosing(self.watch(kind, where)) as events:
                async for event in events:
                    match event:
                        case Changed(stored):
                            seen[stored.namespace, stored.name] = stored
                        case Muddled(name, namespace):
                            seen[namespace, name] = event
                        case Deleted(name, namespace):
                            seen.pop((namespace, name), None)
                        case Cut(why):
                            raise Unavailable(why)
                        case Synced():
                            break
        except Refused:  # the watch ended by itself, and nothing would clear its trouble
            self._calls.troubles.pop((kind.plural, where), None)
            raise
        objects = [each for each in seen.values() if isinstance(each, Stored)]
        objects.sort(key=lambda each: each.name)
        muddled = [each for each in seen.values() if isinstance(each, Muddled)]
        sentences = tuple(sorted(each.why for each in muddled))
        return SeenObjects(tuple(objects), sentences, frozenset(each.name for each in muddled))

    async def create(self, kind: ObjectKind[S, U], wanted: Wanted[S]) -> Stored[S, U]:
        """Create an object; raise Conflict(EXISTS) when there is one of this name."""
        request = make("create", kind, "", wanted.namespace)
        body = wire.document(kind, wanted)
        return await self._written(kind, replace(request, query=self.managed, body=body))

    async def replace(self, kind: ObjectKind[S, U], changed: Stored[S, U]) -> Stored[S, U]:
        """Write a changed object except its status, if nobody wrote it since it was read.

        `changed` is the read object after `replace` of kube_base.frozen. The write removes what
        the kind's codecs do not read. Raise Conflict(CHANGED) when somebody wrote it since,
        Conflict(GONE) when it is gone.
        """
        request = make("update", kind, changed.name, changed.namespace)
        body = wire.document(kind, changed)
        request = replace(request, query=self.managed, body=body)
        return await self._written(kind, request, changed.version)

    async def replace_status(self, kind: ObjectKind[S, U], changed: Stored[S, U]) -> Stored[S, U]:
        """Write only the status of `changed`, with the same conflicts as `replace`."""
        request = make("update", kind, changed.name, changed.namespace)
        body = wire.document(kind, changed, status=_status(kind, changed.status))
        request = replace(request, subresource="status", query=self.managed, body=body)
        return await self._written(kind, request, changed.version)

    async def apply(
        self, kind: ObjectKind[S, U], wanted: Wanted[S], *, force: bool = False
    ) -> Stored[S, U]:
        """Apply fields on the server: `wanted` has all fields that the program manages.

        An object that is missing is made. A field that the program applied before and `wanted`
        lacks is removed, if nobody else owns it. Raise Refused when others own a field with another
        value, unless `force` takes it from them. Needs the verbs patch and create.
        """
        return await self._apply(kind, wanted, wire.document(kind, wanted), force=force)

    async def apply_status(
        self,
        kind: ObjectKind[S, U],
        name: str,
        namespace: str,
        status: U,
        *,
        force: bool = False,
        version: str = "",
    ) -> Stored[S, U]:
        """Apply the status alone on the server; raise Conflict(GONE) without the object.

        With `version`, that of the object it was computed from, raise Conflict(CHANGED) when
        somebody wrote the object since.
        """
        wanted: Wanted[S] = Wanted(name, namespace)
        body = wire.document(kind, wanted, status=_status(kind, status), version=version)
        return await self._apply(kind, wanted, body, force=force, subresource="status")

    async def merge_status(
        self, kind: ObjectKind[S, U], name: str, namespace: str, status: U, *, version: str
    ) -> Stored[S, U]:
        """Write status fields into an object of this `version`; raise Conflict for another one.

        This suits a CRD that somebody else has installed: the server leaves out fields that the CRD
        lacks. An apply would be refused as a whole (structured-merge-diff, "field not declared in
        schema").
        """
        body = msgspec.json.encode(
            {
                "metadata": {"resourceVersion": version},
                "status": msgspec.Raw(_status(kind, status)),
            }
        )
        request = replace(make("patch", kind, name, namespace), subresource="status")
        request = replace(request, query=self.managed, body=body, content_type=wire.MERGE)
        return wire.stored(kind, await self._calls.call(request))

    async def patch(
        self,
        kind: ObjectKind[S, U],
        name: str,
        namespace: str = "",
        *,
        labels: Changes = (),
        annotations: Changes = (),
        uid: str = "",
    ) -> Stored[S, U]:
        """Set or remove single labels and annotations, whoever wrote them.

        Raise Conflict(CHANGED) when `uid` is given and the object has another.
        """
        changes = {"labels": dict(labels), "annotations": dict(annotations), "uid": uid}
        meta = {part: change for part, change in changes.items() if change}
        request = make("patch", kind, name, namespace)
        body = msgspec.json.encode({"metadata": meta})
        request = replace(request, query=self.managed, body=body, content_type=wire.MERGE)
        return wire.stored(kind, await self._calls.call(request))

    async def delete(
        self, kind: ObjectKind[S, U], seen: Stored[S, U], *, unchanged: bool = True
    ) -> bool:
        """Delete the object that was `seen`; return False when it is gone already.

        Raise Conflict when another object has its name by now, or, if it has to be `unchanged`,
        when somebody wrote it since. An object with finalizers stays until they are taken off.
        """
        conditions = {"uid": seen.uid} | ({"resourceVersion": seen.version} if unchanged else {})
        body = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        )
        request = make("delete", kind, seen.name, seen.namespace)
        try:
            await self._calls.call(replace(request, body=body))
        except Conflict as missing:
            if missing.lost is not Lost.GONE:
                raise
            return False
        return True

    def watch(
        self, kind: ObjectKind[S, U], where: Where = EVERYWHERE
    ) -> AsyncGenerator[WatchEvent[S, U], None]:
        """Yield all objects and then their changes, as WatchEvents, without end.

        Close it with aclosing. Raise Refused, while iterating, when the first list is refused.
        """
        return Level(self._calls, kind, where).run()

    async def write(self, request: wire.ApiRequest) -> bytes:
        """Send a request that needs no ObjectKind, as for Events; return the body of the answer."""
        return await self._calls.call(request)

    def websocket(
        self, request: wire.ApiRequest, protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[wire.Websocket]:
        """Yield a WebSocket to the API server, for the time of the block."""
        return self._calls.websocket(request, protocols)

    async def _written(
        self, kind: ObjectKind[S, U], request: wire.ApiRequest, before: str = ""
    ) -> Stored[S, U]:
        """Send a write; return the object; note its version as newest unless it is `before`."""
        mark = self._calls.horizon.mark(kind, request.name, request.namespace)
        stored = wire.stored(kind, await self._calls.call(request))
        if stored.version != before:
            self._calls.horizon.shown(kind, stored.version, mark)
        self._calls.horizon.read(kind, stored, mark)
        return stored

    async def _apply(
        self,
        kind: ObjectKind[S, U],
        wanted: Wanted[S],
        body: bytes,
        *,
        force: bool,
        subresource: str = "",
    ) -> Stored[S, U]:
        request = replace(
            make("patch", kind, wanted.name, wanted.namespace),
            subresource=subresource,
            query=(*self.managed, ("force", "true" if force else "false")),
            body=body,
            content_type=wire.APPLY,
        )
        return wire.stored(kind, await self._calls.call(request))


def _status(kind: ObjectKind[Any, U], status: U | None) -> bytes:
    if kind.status.encode is None or status is None:
        raise TypeError(f"the codec of {kind.kind} writes no status, or there is none")
    return kind.status.encode(status)
