"""An API server in memory for the real client: `Cluster(server.line())` is all that a test needs.

The contract tests run on it and on a real one. Faults that a test sets belong to a line, the
transport of one client: one node can be cut off while another works.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client.kinds import ObjectKind
from kube_client.wire import APPLY, STRATEGIC, Answer, ApiRequest, Stream
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma_testing.cluster import endpoint_slices
from kube_rdma_testing.cluster.commands import PodCommand, Program, running
from kube_rdma_testing.cluster.fields import Document
from kube_rdma_testing.cluster.resource_slices import faults, immutable, kept
from kube_rdma_testing.cluster.select import matches
from kube_rdma_testing.cluster.store import (
    Key,
    ObjectChange,
    ObjectStore,
    Refusal,
    ServedResource,
    StoreBackup,
    check_version,
)

_DEFINITIONS = "customresourcedefinitions"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_EVENTS = ServedResource("events.k8s.io", "v1", "Event", "events", namespaced=True)


class FakeServer:
    """A fake API server that serves nodes, pods, Events and the `kinds` that a test adds.

    `forbidden` holds pairs of verb and resource (``("update", "ippools/status")``) that RBAC does
    not allow. ``*/`` before the resource forbids only requests for all namespaces at once, and
    ``team/`` only those in that namespace. `escalating` are further forbidden pairs, of which a
    SelfSubjectAccessReview says that they are allowed, as where RBAC refuses an escalation.
    `protected` are pods, by namespace and name, whose eviction a PodDisruptionBudget refuses.
    `gates_off` are disabled feature gates, whose fields of ResourceSlices are dropped. `undefined`
    holds pairs of a resource and a status field that the resource's definition lacks.
    """

    def __init__(self, kinds: Iterable[ObjectKind[Any, Any]] = ()) -> None:
        resources = (_EVENTS, _resource(NODE), _resource(POD), *map(_resource, kinds))
        self._resources = {(r.group, r.version, r.plural): r for r in resources}
        self.forbidden: set[tuple[str, str]] = set()
        self.escalating: set[tuple[str, str]] = set()
        self.protected: set[tuple[str, str]] = set()
        self.gates_off: set[str] = set()
        self.undefined: set[tuple[str, str]] = set()
        self.program: Program | None = None  # runs every command in a pod
        self.git_version = "v1.36.3"
        self.establishes = True  # a new definition is served at once, else by `establish`
        self.lines: list[ClientLine] = []
        self._own = {"/version": self._version, _REVIEWS: self._review}
        self.store = ObjectStore(self._tell)

    def establish(self) -> None:
        """Serve the kinds of all stored definitions (apiextensions' establishing controller)."""
        for key, document in tuple(self.store.objects.items()):
            if key.resource.plural != _DEFINITIONS:
                continue
            spec = document["spec"]
            names, scoped = spec["names"], spec["scope"] == "Namespaced"
            for each in spec["versions"]:
                place = (spec["group"], each["name"], names["plural"])
                kind = (spec["group"], each["name"], names["kind"], names["plural"])
                self._resources.setdefault(place, ServedResource(*kind, scoped))
            established = {"type": "Established", "status": "True"}
            status = {"status": {"conditions": [established]}}
            self.store.merge(key, status, "kube-apiserver", "status")

    def add(self, kind: ObjectKind[Any, Any]) -> None:
        """Serve one more kind, as after its CustomResourceDefinition was installed."""
        resource = _resource(kind)
        self._resources[resource.group, resource.version, resource.plural] = resource

    def uninstall(self, kind: ObjectKind[Any, Any], *, seen: bool) -> None:
        """Stop serving a kind, whose objects are deleted first (apiextensions' finalizer).

        With `seen` watches get the deletions before they end, else they break at once.
        """
        resource = _resource(kind)
        if not seen:
            for line in self.lines:
                line.break_watches(resource)
        for key in [key for key in self.store.objects if key.resource == resource]:
            self.store.delete(key, {})
        del self._resources[resource.group, resource.version, resource.plural]
        for line in self.lines:
            line.end_watches(resource)

    def line(self) -> ClientLine:
        """Connect one more client to the server and return its transport."""
        line = ClientLine(self)
        self.lines.append(line)
        return line

    def put(self, kind: ObjectKind[Any, Any], document: Mapping[str, Any]) -> None:
        """Write an object with its status as another client would; `document` is the API's JSON."""
        meta = document["metadata"]
        self.store.put(self._key(kind, meta["name"], meta.get("namespace", "")), dict(document))

    def remove(self, kind: ObjectKind[Any, Any], name: str, namespace: str = "") -> None:
        """Delete an object, as another client would."""
        self.store.delete(self._key(kind, name, namespace), {})

    def documents(self, plural: str) -> tuple[Document, ...]:
        """Return the stored objects of a resource, named by its plural, as JSON values."""
        return tuple(
            doc for key, doc in self.store.objects.items() if key.resource.plural == plural
        )

    def compact(self) -> None:
        """Forget the history of changes, so that a watch from an older version gets 410."""
        self.store.forget()

    def restore(self, backup: StoreBackup, bump: int = 0) -> None:
        """Restore etcd from a backup and start the server anew, so that all watches break.

        With `bump`, versions go on above all earlier ones (etcdutl --bump-revision
        --mark-compacted).
        """
        self.store.restore(backup, bump)
        for line in self.lines:
            line.break_watches()

    def handle(self, request: ApiRequest) -> Answer:
        """Answer a request: with a Status if refused, with plain text for an unknown resource."""
        try:
            return Answer(200, msgspec.json.encode(self._serve(request)))
        except Refusal as refusal:
            return _status(refusal)

    def resource(self, request: ApiRequest) -> ServedResource:
        """Return the resource of a request; raise Refusal if it is unknown or forbidden."""
        resource = self._resources.get((request.group, request.version, request.plural))
        if resource is None:
            raise Refusal(404, "", "404 page not found")
        barred = (request.resource, f"{request.namespace or '*'}/{request.resource}")
        if any((request.verb, name) in self.forbidden | self.escalating for name in barred):
            message = (
                f'{resource.full} "{request.name}" is forbidden: User "fake" cannot {request.verb}'
                f' resource "{request.resource}" in API group "{request.group}"'
            )
            raise Refusal(403, "Forbidden", message, {"name": request.name})
        return resource

    def _serve(self, request: ApiRequest) -> Document:
        if request.path in self._own:
            return self._own[request.path](request.body)
        resource = self.resource(request)
        if request.verb == "list":
            return self._list(resource, request)
        body = msgspec.json.decode(request.body) if request.body else {}
        name = request.name or body.get("metadata", {}).get("name", "")
        key = Key(resource, request.namespace, name)
        if request.verb == "get":
            return self.store.get(key)
        if request.verb == "delete":
            self.store.delete(key, body.get("preconditions", {}))
            return {"kind": "Status", "status": "Success"}
        if request.resource == "pods/eviction":
            return self._evict(key, body)
        if dict(request.query).get("dryRun") == "All":
            return self._write(self.store.copy(), request, key, body)
        written = self._write(self.store, request, key, body)
        if request.plural != _DEFINITIONS:
            return written
        if self.establishes:
            self.establish()
            written = self.store.get(key)
        return {"status": {"conditions": None}, **written}  # of a new one they are null

    def _version(self, _: bytes) -> Document:
        return {"gitVersion": self.git_version}

    def _review(self, body: bytes) -> Document:
        """Answer a SelfSubjectAccessReview, which asks whether a request is allowed."""
        review = msgspec.json.decode(body)
        asked = review["spec"]["resourceAttributes"]
        barred = (asked["resource"], f"{asked.get('namespace') or '*'}/{asked['resource']}")
        denied = any((asked["verb"], name) in self.forbidden for name in barred)
        return {**review, "status": {"allowed": not denied}}

    def joined(
        self, request: ApiRequest, protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[PodCommand]:
        """Run a command in a pod; raise Refusal without pod or program, or as `resource` does."""
        self.store.get(Key(self.resource(request), request.namespace, request.name))
        if self.program is None:
            raise Refusal(400, "BadRequest", "container not found")
        return running(self.program, request, protocols)

    def _evict(self, key: Key, body: Document) -> Document:
        """Evict a pod, or raise Refusal (429) for its budget (core/pod/storage/eviction.go)."""
        conditions = body.get("deleteOptions", {}).get("preconditions", {})
        check_version(key, self.store.get(key), conditions)
        if (key.namespace, key.name) in self.protected:
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise Refusal(429, "TooManyRequests", message, {"retryAfterSeconds": 10})
        self.store.delete(key, conditions)
        return {"kind": "Status", "status": "Success"}

    def _write(self, store: ObjectStore, request: ApiRequest, key: Key, body: Document) -> Document:
        query = dict(request.query)
        self._check_space(key)
        manager, part = query.get("fieldManager", "unknown"), request.subresource
        if request.verb in {"create", "update"}:
            body = self._judged(key, body)
        if request.verb == "create":
            return store.create(key, body, manager)
        if request.verb == "update":
            return store.update(key, body, manager, part)
        if request.content_type == APPLY:
            for name in body.get("status", {}):
                if (request.plural, name) in self.undefined:
                    why = f".status.{name}: field not declared in schema"
                    raise Refusal(500, "", f"failed to create typed patch object (): {why}")
            force = query.get("force") == "true"
            return store.apply(key, body, manager, force=force, part=part)
        strategic = request.content_type == STRATEGIC
        return store.merge(key, body, manager, part, strategic=strategic)

    def _check_space(self, key: Key) -> None:
        """Raise Refusal (404) if the object's namespace is missing and namespaces are served."""
        spaces = [one for one in self._resources.values() if one.full == "namespaces"]
        if key.namespace and spaces and Key(spaces[0], "", key.namespace) not in self.store.objects:
            message = f'namespaces "{key.namespace}" not found'
            details = {"name": key.namespace, "kind": "namespaces"}
            raise Refusal(404, "NotFound", message, details)

    def _judged(self, key: Key, body: Document) -> Document:
        """Return a ResourceSlice or EndpointSlice as stored; raise Refusal (422) if it is invalid.

        Objects of other kinds are returned as they are.
        """
        old, why = self.store.objects.get(key), list[str]()
        if key.resource.plural == "resourceslices":
            body = kept(body, old, self.gates_off)
            why = [*faults(body["spec"]), *(immutable(body["spec"], old["spec"]) if old else ())]
        elif key.resource.plural == "endpointslices":
            body, why = endpoint_slices.kept(body), [*endpoint_slices.faults(body, old)]
        if why:
            message = f'{key.resource.kind}.{key.resource.group} "{key.name}" is invalid: {why[0]}'
            raise Refusal(422, "Invalid", message, {"name": key.name})
        return body

    def _list(self, resource: ServedResource, request: ApiRequest) -> Document:
        documents = [
            document
            for key, document in sorted(
                self.store.objects.items(), key=lambda pair: (pair[0].namespace, pair[0].name)
            )
            if key.resource == resource and matches(request, resource, document)
        ]
        query = dict(request.query)
        limit = int(query.get("limit", "0")) or len(documents)
        revision, _, begin = query.get("continue", f"{self.store.revision}:0").partition(":")
        if int(revision) < self.store.oldest:
            message = "The provided continue parameter is too old to display a consistent list"
            raise Refusal(410, "Expired", message)
        first, last = int(begin), int(begin) + limit
        meta = {"resourceVersion": revision}
        if last < len(documents):
            meta["continue"] = f"{revision}:{last}"
        return {"metadata": meta, "items": documents[first:last]}

    def _key(self, kind: ObjectKind[Any, Any], name: str, namespace: str) -> Key:
        return Key(_resource(kind), namespace, name)

    def _tell(self) -> None:
        for line in self.lines:
            line.wake()


@dataclass(eq=False)
class _ServedWatch:
    """One open watch, which changes wake, and which the server or the network may end."""

    resource: tuple[str, str, str]  # group, version and plural
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    broken: bool = False

    def end(self) -> None:
        """End the watch, as a server does after a while."""
        self.ended = True
        self.woken.set()


class ClientLine:
    """A client's transport to the fake server, with faults that a test sets.

    The next `lose` requests are carried out, but their answers get lost. The next `repeat` ones are
    delivered twice, and the second answer counts. `busy` has the seconds of Retry-After with which
    the next requests are answered 429, `fail` the statuses that answer the next ones. Such requests
    have no effect. `local` is the client's own address.
    """

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.requests: list[ApiRequest] = []  # that were delivered
        self.lose = 0
        self.repeat = 0
        self.fail: list[int] = []
        self.busy: list[float] = []
        self.local: str | None = None
        self._is_cut = False
        self._watches: set[_ServedWatch] = set()

    def cut(self) -> None:
        """Cut the client's network, open watches included."""
        self._is_cut = True
        self.break_watches()

    def mend(self) -> None:
        """Connect the client's network again after `cut`."""
        self._is_cut = False

    @property
    def watching(self) -> int:
        """Return how many watches the client has open."""
        return len(self._watches)

    def end_watches(self, of: ServedResource | None = None) -> None:
        """End the client's open watches, or only one resource's, as a server does."""
        for watch in self._of(of):
            watch.end()

    def break_watches(self, of: ServedResource | None = None) -> None:
        """Break the connections of the client's open watches, or only of one resource's."""
        for watch in self._of(of):
            watch.broken = True
        self.wake()

    def _of(self, resource: ServedResource | None) -> list[_ServedWatch]:
        """Return the client's open watches of a resource, or all of them for None."""
        wanted = resource and (resource.group, resource.version, resource.plural)
        return [watch for watch in self._watches if wanted in (None, watch.resource)]

    def wake(self) -> None:
        """Let all open watches look for changes."""
        for watch in self._watches:
            watch.woken.set()

    def local_address(self) -> str | None:
        """Return the local address of the connection, None before the first request."""
        return self.local if self.requests else None

    async def send(self, request: ApiRequest) -> Answer:
        """Send a request to the server and return its answer, with the faults that are set.

        Raise Unavailable if the network is cut or the answer gets lost.
        """
        await asyncio.sleep(0)  # others run in between, as on a network
        if (refused := self._meet(request)) is not None:
            return refused
        answer = self._server.handle(request)
        if self.repeat:
            self.repeat -= 1
            answer = self._server.handle(request)
        if self.lose:
            self.lose -= 1
            raise Unavailable(f"The answer of the API server to {request} got lost.")
        await asyncio.sleep(0)
        if self._is_cut:
            raise Unavailable(f"The answer of the API server to {request} got lost.")
        return answer

    @asynccontextmanager
    async def stream(
        self,
        request: ApiRequest,
        seconds: float,
    ) -> AsyncIterator[Stream]:
        """Open a watch, with the faults that are set, and yield its lines or the refusal."""
        await asyncio.sleep(0)
        watch = _ServedWatch((request.group, request.version, request.plural))
        lines = self._changes(request, watch)
        self._watches.add(watch)
        seconds = float(dict(request.query).get("timeoutSeconds", seconds))
        timer = asyncio.get_running_loop().call_later(seconds, watch.end)
        try:
            failure = self._meet(request) or self._refusal(request)
            yield Stream(lines, failure)
        finally:
            timer.cancel()
            self._watches.discard(watch)
            await lines.aclose()

    @asynccontextmanager
    async def websocket(
        self, request: ApiRequest, protocols: Sequence[str]
    ) -> AsyncIterator[PodCommand | Answer]:
        """Run a command in a pod by a websocket, with the faults that are set."""
        await asyncio.sleep(0)
        async with AsyncExitStack() as stack:
            answer: PodCommand | Answer | None = self._meet(request)
            if answer is None:
                try:
                    joined = self._server.joined(request, protocols)
                    answer = await stack.enter_async_context(joined)
                except Refusal as refusal:
                    answer = _status(refusal)
            yield answer

    def _refusal(self, request: ApiRequest) -> Answer | None:
        try:
            self._server.resource(request)
        except Refusal as refusal:
            return _status(refusal)
        return None

    def _meet(self, request: ApiRequest) -> Answer | None:
        """Return the error that a test has set for requests; raise Unavailable if cut off."""
        if self._is_cut:
            raise Unavailable(f"The API server does not answer to {request}: the network is cut.")
        self.requests.append(request)
        if self.busy:
            refusal = Refusal(429, "TooManyRequests", "storage is (re)initializing")
            return replace(_status(refusal), retry_after=self.busy.pop(0))
        if self.fail:
            return _status(Refusal(self.fail.pop(0), "", "told to fail"))
        return None

    async def _changes(
        self, request: ApiRequest, watch: _ServedWatch
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch; raise Unavailable when its connection breaks."""
        store = self._server.store
        resource = self._server.resource(request)
        revision = int(dict(request.query)["resourceVersion"])
        while True:
            watch.woken.clear()  # first: whatever happens while a line is read counts
            if revision < store.oldest:
                gone = Refusal(410, "Expired", f"too old resource version: {revision}")
                yield msgspec.json.encode({"type": "ERROR", "object": _document(gone)})
                return
            if watch.broken:
                raise Unavailable(f"The API server broke off to {request}.")
            latest = store.revision  # above all of a history that a restore has emptied
            newer = bisect_right(store.history, revision, key=lambda each: each.revision)
            for change in store.history[newer:]:
                if line := _line(request, resource, change):
                    yield line
            revision = max(revision, latest)
            if watch.ended:
                if dict(request.query).get("allowWatchBookmarks") == "true":
                    yield _bookmark(resource, revision)
                return
            if store.revision <= revision:
                await watch.woken.wait()


def _bookmark(resource: ServedResource, revision: int) -> bytes:
    """Return the bookmark line of a watch, with the version up to which it has every change."""
    meta = {"resourceVersion": str(revision), "creationTimestamp": None}
    return msgspec.json.encode(
        {"type": "BOOKMARK", "object": {"kind": resource.kind, "metadata": meta}}
    )


def _line(request: ApiRequest, resource: ServedResource, change: ObjectChange) -> bytes | None:
    """Return a watch's line for a change; None if the request selects neither version."""
    if change.key.resource != resource:
        return None
    was = change.before is not None and matches(request, resource, change.before)
    shown = change.after is not None and matches(request, resource, change.after)
    if not was and not shown:
        return None
    kind = "ADDED" if not was else "MODIFIED" if shown else "DELETED"
    document = change.after or change.before
    assert document
    meta = {**document["metadata"], "resourceVersion": str(change.revision)}
    return msgspec.json.encode({"type": kind, "object": {**document, "metadata": meta}})


def _resource(kind: ObjectKind[Any, Any]) -> ServedResource:
    return ServedResource(kind.group, kind.version, kind.kind, kind.plural, kind.namespaced)


def _document(refusal: Refusal) -> Document:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": refusal.code,
        "message": refusal.message,
        "reason": refusal.reason,
        "details": refusal.details,
    }


def _status(refusal: Refusal) -> Answer:
    if refusal.code == 404 and not refusal.reason:
        return Answer(404, refusal.message.encode(), json=False)
    # The header of responsewriters/status.go.
    again = refusal.details.get("retryAfterSeconds")
    return Answer(refusal.code, msgspec.json.encode(_document(refusal)), retry_after=again)
