"""Requests and answers as the API server speaks them, and the protocol of what carries them.

`calls`, `objects` and `watching` make an ApiRequest and read an Answer. A Transport carries them:
`connect.Http` to a real server, a fake of kube_rdma_testing to one in memory. Documents: Kubernetes
API Concepts; apimachinery meta/v1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from kube_base.errors import Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded, pruned
from kube_base.frozen import Frozen
from kube_client.kinds import ObjectKind, Owner, Pairs, Stored, Wanted, Where

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"  # lists of Kubernetes' own kinds by their keys
APPLY = "application/apply-patch+yaml"  # JSON is YAML

_MOST_BYTES = 1 << 30  # of an answer: a list has no end of its own

Named = TypeVar("Named")


class ApiRequest(Frozen):
    """A request to the API server. `verb` is RBAC's, `name` is empty for a collection.

    Without a version `plural` is a path of the server itself, such as version.
    """

    verb: str  # get, list, watch, create, update, patch, delete
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Pairs = ()
    body: bytes = b""
    content_type: str = JSON

    @property
    def method(self) -> str:
        """Return the HTTP method of the request's verb, such as PATCH for patch."""
        return _METHODS[self.verb]

    @property
    def path(self) -> str:
        """Return the request's URL path, without host and query."""
        if not self.version:
            return f"/{self.plural}"
        root = f"/apis/{self.group}" if self.group else "/api"
        space = f"/namespaces/{self.namespace}" if self.namespace else ""
        tail = "".join(f"/{part}" for part in (self.name, self.subresource) if part)
        return f"{root}/{self.version}{space}/{self.plural}{tail}"

    @property
    def resource(self) -> str:
        """Return the resource as RBAC names it: ippools, ippools/status."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    def __str__(self) -> str:
        """Return a text for messages: ``update ippools/status pool-a``."""
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.resource} {where}".rstrip()


_METHODS: Mapping[str, str] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


class Answer(Frozen):
    """An answer of the API server: its status and body."""

    status: int
    body: bytes
    json: bool = True  # by its content type; a proxy, or an unknown path, answers in text
    retry_after: float | None = None  # seconds, where the server says when to ask again


class Transport(Protocol):
    """A way to send requests to the API server. It raises Unavailable without an answer."""

    async def send(self, request: ApiRequest) -> Answer:
        """Send a request and return the whole answer, whatever its status."""
        ...

    def stream(self, request: ApiRequest, seconds: float) -> AbstractAsyncContextManager[Stream]:
        """Open a watch; reading raises Unavailable after `seconds` of silence."""
        ...

    def websocket(
        self, request: ApiRequest, protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[Websocket | Answer]:
        """Open a WebSocket with one of these subprotocols, the best first.

        Yield the API server's answer instead where it refuses.
        """
        ...

    def local_address(self) -> str | None:
        """Return this side's IP address of the newest connection, None before the first."""
        ...


class Websocket(Protocol):
    """A WebSocket that the API server has opened; its messages are bytes."""

    @property
    def protocol(self) -> str:
        """Return the subprotocol of this WebSocket."""
        ...

    async def send(self, message: bytes) -> None:
        """Send a message; raise Unavailable when the connection does not take it."""
        ...

    def messages(self) -> AsyncIterator[bytes]:
        """Yield messages until the server closes; raise Unavailable when it breaks."""
        ...


class Stream(Frozen):
    """The answer to a watch: its lines, or the `failure`."""

    lines: AsyncIterator[bytes]
    failure: Answer | None = None


class _Owner(msgspec.Struct, omit_defaults=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Meta(msgspec.Struct, omit_defaults=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    finalizers: list[str] | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str = ""
    generation: int = 0


class _ReadMeta(_Meta):
    """The metadata of an object that is read; annotations are decoded only as its kind asks."""

    annotations: dict[str, msgspec.Raw] | None = None  # type: ignore[assignment]


class _Object(msgspec.Struct):
    metadata: _ReadMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"")


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Identity(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _OnlyMeta(msgspec.Struct):
    metadata: _Identity


class _Code(msgspec.Struct):
    code: int = 500


class Identity(Frozen):
    """The name and uid of an object, and its version."""

    namespace: str
    name: str
    uid: str
    version: str

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name, which at most one object of a kind has at a time."""
        return self.namespace, self.name


class Unreadable(Refused):
    """The error for an object that the caller's codec cannot decode.

    `name` and `namespace` say which one. `bug` is what the codec raised if that was no refusal.
    """

    def __init__(
        self, kind: ObjectKind[Any, Any], namespace: str, name: str, why: Exception
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.bug = None if isinstance(why, ValueError | Refused) else why  # of the codec
        where = f"{namespace}/{name}" if namespace else name
        text = why.why if isinstance(why, Undecodable) else str(why)
        if self.bug:
            text = f"{type(why).__name__}: {text}"
        sentence = " ".join(text.split())[:300] or type(why).__name__
        super().__init__(
            f"the object is not one that this version understands: {sentence.rstrip('.')}",
            remedy="Correct it, or run the version that wrote it",
            where=f"{kind.kind} {where}",
        )


Spec = TypeVar("Spec")
Status = TypeVar("Status")


def parse(data: bytes | msgspec.Raw, what: type[Named]) -> Named:
    """Decode a JSON document of the API itself, such as a list; raise Unavailable if it is none."""
    try:
        return _decoded(data, what)
    except Undecodable as error:
        raise Unavailable(
            f"What answers in place of the API server does not speak its protocol: {error.why}."
        ) from error


def _decoded(data: bytes, what: type[Named]) -> Named:
    """Return the decoded document, pruned where it is nested too deeply."""
    try:
        return decoded(data, what, most=_MOST_BYTES)
    except Undecodable as error:
        if not error.deep:
            raise
    return decoded(pruned(data), what, most=_MOST_BYTES)


def stored(kind: ObjectKind[Spec, Status], data: bytes | msgspec.Raw) -> Stored[Spec, Status]:
    """Decode one object by its kind's codecs; raise Unreadable if they fail."""
    document = parse(data, _Object)
    meta = document.metadata
    status = bytes(document.status)
    content = document.spec
    try:
        if not kind.content:
            content = msgspec.Raw(data)
        elif kind.content != "spec":
            content = parse(data, dict[str, msgspec.Raw]).get(kind.content, msgspec.Raw(b"{}"))
        texts = {k: v for k, v in (meta.annotations or {}).items() if kind.annotations(k)}
        annotations = {key: parse(text, str) for key, text in texts.items()}
        spec = kind.spec.decode(bytes(content))
        state = kind.status.decode(status) if status else None
    except Exception as error:  # whatever it is, objects beside this one are read
        raise Unreadable(kind, meta.namespace, meta.name, error) from error
    return Stored(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        version=meta.resource_version,
        labels=_pairs(meta.labels),
        annotations=_pairs(annotations),
        spec=spec,
        status=state,
        owners=tuple(
            Owner(o.api_version, o.kind, o.name, o.uid, o.controller, o.block_owner_deletion)
            for o in meta.owner_references or ()
        ),
        finalizers=tuple(meta.finalizers or ()),
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
        generation=meta.generation,
    )


def identity(data: bytes | msgspec.Raw) -> Identity:
    """Return the uid, version and name of the object in a document."""
    meta = parse(data, _OnlyMeta).metadata
    return Identity(meta.namespace, meta.name, meta.uid, meta.resource_version)


def answer_of(status: msgspec.Raw) -> Answer:
    """Return the Answer that a Status object inside a stream of changes means."""
    return Answer(parse(status, _Code).code, bytes(status))


class Page(Frozen):
    """A part of a list: the list's version, its undecoded objects, the token of the next part.

    `following` is that token, empty at the end. `size` is in bytes.
    """

    version: str
    items: tuple[msgspec.Raw, ...]
    following: str
    size: int


def page(data: bytes) -> Page:
    """Return a part of a list, decoded from the body of an answer."""
    document = parse(data, _List)
    meta = document.metadata
    return Page(meta.resource_version, tuple(document.items or ()), meta.continue_, len(data))


def line(data: bytes) -> tuple[str, msgspec.Raw]:
    """Return type (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR) and object of a line of a watch."""
    document = parse(data, _Line)
    return document.type, document.object


def document(
    kind: ObjectKind[Spec, Any],
    item: Wanted[Spec] | Stored[Spec, Any],
    *,
    status: bytes = b"",
    version: str = "",
) -> bytes:
    """Return an object as JSON for writing; a Stored includes its uid and version.

    With a `version`, the server writes a Wanted only over an object of that version. Raise
    TypeError for a spec whose codec only reads.
    """
    meta = _Meta(
        name=item.name,
        namespace=item.namespace,
        labels=dict(item.labels) or None,
        annotations=dict(item.annotations) or None,
        owner_references=[
            _Owner(o.api_version, o.kind, o.name, o.uid, o.controller, o.block_owner_deletion)
            for o in item.owners
        ]
        or None,
        finalizers=list(item.finalizers) or None,
        resource_version=version,
    )
    if isinstance(item, Stored):
        meta.uid, meta.resource_version = item.uid, item.version
    parts: dict[str, Any] = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
    if item.spec is not None:
        if kind.spec.encode is None:
            raise TypeError(f"the codec of {kind.kind} only reads: use apply or patch")
        content = kind.spec.encode(item.spec)
        whole = not kind.content
        parts |= parse(content, dict[str, Any]) if whole else {kind.content: msgspec.Raw(content)}
    if status:
        parts["status"] = msgspec.Raw(status)
    return msgspec.json.encode(parts)


def selection(where: Where) -> Pairs:
    """Return the URL query for a selection, without its namespace, which is a part of the path."""
    fields = ",".join(
        part for part in (where.name and f"metadata.name={where.name}", where.fields) if part
    )
    query = (("labelSelector", where.labels), ("fieldSelector", fields))
    return tuple((key, value) for key, value in query if value)


def _pairs(entries: dict[str, str] | None) -> Pairs:
    return tuple(sorted((entries or {}).items()))
