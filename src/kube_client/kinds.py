"""Describes kinds of objects: their names, the codecs of their parts, the values that are stored.

A caller describes its kind once (`ObjectKind`) and gets frozen values (`Stored`) ever after; the
same client serves custom resources and Kubernetes' own. The caller's codec knows the names of
fields in JSON: `ObjectCodec.of(T)` for a Struct that has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

from kube_base.foreign_json import decoded
from kube_base.frozen import Frozen, replace

S = TypeVar("S")  # of the spec
U = TypeVar("U")  # of the status
T = TypeVar("T")
V = TypeVar("V")
W = TypeVar("W")

Pairs = tuple[tuple[str, str], ...]
"""Pairs of name and value: labels and annotations (sorted when read), headers, a query."""


class ObjectCodec(Frozen, Generic[T]):
    """A decoder and an encoder for one part of an object, such as its spec.

    `decode` raises ValueError or Refused for what it does not understand. Without `encode` the part
    is read only: a codec that knows only some of the fields must not write the whole part back.
    """

    decode: Callable[[bytes], T]
    encode: Callable[[T], bytes] | None = None

    @classmethod
    def of(cls, what: type[T], *, writes: bool = True) -> Self:
        """Return the codec of a dataclass or Struct; fields that it does not have are ignored."""
        return cls(partial(decoded, what=what), msgspec.json.encode if writes else None)


NOTHING: ObjectCodec[None] = ObjectCodec(lambda _: None)
"""The codec of a part that is not read."""


class ObjectKind(Frozen, Generic[S, U]):
    """A kind of Kubernetes object: its names at the API server, and codecs of spec and status."""

    group: str  # "" for the core group
    version: str  # v1, v1alpha1
    kind: str  # IPPool
    plural: str  # ippools
    namespaced: bool
    spec: ObjectCodec[S]
    status: ObjectCodec[U]
    # The field that `spec` reads and writes; a ConfigMap has data. Empty: all beside the metadata,
    # of a kind that has several such fields.
    content: str = "spec"
    page: int = 500  # objects that a list asks for at first; few, where others make them large
    annotations: Callable[[str], bool] = lambda _: True  # which of them are read, by key
    # Listed after each stream that broke off: an older object shows that etcd was restored, however
    # many writes it had since.
    is_listed_in_doubt: bool = False

    @property
    def api_version(self) -> str:
        """Return the kind's group and version, as in the field apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def read_as(self, spec: ObjectCodec[V], status: ObjectCodec[W]) -> ObjectKind[V, W]:
        """Return the same kind with these codecs, which decode more or fewer fields."""
        kind: ObjectKind[V, W] = replace(cast("Any", self), spec=spec, status=status)
        return kind


class Owner(Frozen):
    """An owner of an object (metadata.ownerReferences).

    Kubernetes deletes the object when its last owner is gone.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Stored(Frozen, Generic[S, U]):
    """An object as the API server holds it.

    `spec` is decoded from an empty document where the object has none; a missing `status` is None.
    `version` is opaque to callers, who compare it for equality and hand it back.
    """

    name: str
    namespace: str  # "" for what belongs to the cluster
    uid: str
    version: str
    labels: Pairs
    annotations: Pairs
    spec: S
    status: U | None
    owners: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    deleting: bool = False  # it has a deletionTimestamp and waits for its finalizers
    created: str = ""  # RFC 3339
    generation: int = 0  # counts changes of the spec; 0 for kinds that have none

    def label(self, key: str) -> str | None:
        """Return the value of the object's label, None without it."""
        return dict(self.labels).get(key)

    def annotation(self, key: str) -> str | None:
        """Return the value of the object's annotation, None without it."""
        return dict(self.annotations).get(key)


class Wanted(Frozen, Generic[S]):
    """An object to create, or the fields of one to apply; a `spec` of None is not sent."""

    name: str
    namespace: str = ""
    spec: S | None = None
    labels: Pairs = ()
    annotations: Pairs = ()
    owners: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()


class Where(Frozen):
    """A selection of objects of a kind: all fields that are set must hold.

    `labels` and `fields` are written as for kubectl: ``a=b,c``, ``spec.nodeName=node-1``. Of a
    custom resource the server knows the fields metadata.name, metadata.namespace and the
    selectableFields of its definition.
    """

    namespace: str = ""
    name: str = ""
    labels: str = ""
    fields: str = ""


EVERYWHERE = Where()
