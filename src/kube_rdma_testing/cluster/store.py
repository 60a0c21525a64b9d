"""The objects behind the fake API server: versions, conflicts, finalizers and the history.

Follows apiserver's registry/generic: a write that changes nothing makes no version, status is
written only through its subresource, an object with finalizers outlives its deletion.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from kube_rdma_testing.cluster import fields as ff
from kube_rdma_testing.cluster.fields import Document

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_THEN = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class ServedResource:
    """A resource that the fake API server serves: its group, version, plural and kind."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def full(self) -> str:
        """Return the resource's name as error messages have it, such as ippools.kube-rdma.io."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_kubernetes_own(self) -> bool:
        """Return whether, by its group, the resource is Kubernetes' own, not a custom resource."""
        return "." not in self.group or self.group.endswith(".k8s.io")

    @property
    def has_status(self) -> bool:
        """Return whether the fake keeps the status apart, as of all resources but Events."""
        return self.plural != "events"


@dataclass(frozen=True)
class Key:
    """The name of an object: its resource, namespace and name."""

    resource: ServedResource
    namespace: str
    name: str


@dataclass(frozen=True)
class ObjectChange:
    """A change of an object: its earlier and its new version, None if it had or has none."""

    revision: int
    key: Key
    before: Document | None
    after: Document | None


@dataclass(eq=False)
class Refusal(Exception):
    """The error with which the fake API server refuses a request."""

    code: int
    reason: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoreBackup:
    """A copy of all objects at one version."""

    revision: int
    objects: dict[Key, Document]
    owners: dict[Key, ff.Owners]


class ObjectStore:
    """The objects of the fake API server; `changed` is called after each new version."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.revision = 1
        self.objects: dict[Key, Document] = {}
        self.history: list[ObjectChange] = []
        self.oldest = 1  # versions before it are forgotten
        self._owners: dict[Key, ff.Owners] = {}

    def copy(self) -> ObjectStore:
        """Return a store of the same objects, which a dry run changes in place of this one."""
        made = ObjectStore(lambda: None)
        made.revision, made.objects, made._owners = (
            self.revision,
            dict(self.objects),
            dict(self._owners),
        )
        return made

    def get(self, key: Key) -> Document:
        """Return the object; raise Refusal (404) if there is none."""
        if key not in self.objects:
            raise missing(key)
        return self.objects[key]

    def create(self, key: Key, document: Document, manager: str) -> Document:
        """Create an object; raise Refusal, 409 for a taken name and 422 for an invalid one."""
        check_name(key)
        if key in self.objects:
            raise Refusal(
                409,
                "AlreadyExists",
                f'{key.resource.full} "{key.name}" already exists',
                {"name": key.name},
            )
        new = dict(document)
        if key.resource.has_status:
            new.pop("status", None)
        new["metadata"] = {
            **{k: v for k, v in document.get("metadata", {}).items() if k != "resourceVersion"},
            "name": key.name,
            "uid": str(uuid4()),
            "creationTimestamp": _THEN,
            "generation": 1,
        }
        owners = ff.updated({}, new, {}, (manager, "Update", ""))
        return self._write(key, new, owners)

    def update(self, key: Key, document: Document, manager: str, part: str = "") -> Document:
        """Replace the object except its status, or only the status.

        Raise Refusal: 404 without the object, 409 for another uid or resourceVersion, 422 without a
        resourceVersion.
        """
        old = self.get(key)
        meta = document.get("metadata", {})
        if not meta.get("resourceVersion"):
            message = (
                f'{key.resource.full} "{key.name}" is invalid: metadata.resourceVersion: must be'
            )
            raise Refusal(422, "Invalid", f"{message} specified for an update", {"name": key.name})
        check_version(key, old, meta)
        new = self._confine(old, document, part)
        owners = ff.updated(old, new, self._owners.get(key, {}), (manager, "Update", part))
        return self._write(key, new, owners)

    def merge(
        self, key: Key, patch: Document, manager: str, part: str = "", *, strategic: bool = False
    ) -> Document:
        """Apply a merge patch.

        Raise Refusal: 404 without the object, 409 for another resourceVersion, 422 for another uid.

        A `strategic` patch is refused (415) for a kind that is not Kubernetes' own.
        """
        if strategic and not key.resource.is_kubernetes_own:
            message = "the body of the request was in an unknown format"
            raise Refusal(415, "UnsupportedMediaType", message)
        old = self.get(key)
        if patch.get("metadata", {}).get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            message = f'{key.resource.kind} "{key.name}" is invalid: metadata.uid: immutable'
            causes = [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]
            raise Refusal(422, "Invalid", message, {"name": key.name, "causes": causes})
        check_version(key, old, patch.get("metadata", {}))
        merged = ff.strategic_merge(old, patch) if strategic else ff.merge(old, patch)
        new = self._confine(old, merged, part)
        owners = ff.updated(old, new, self._owners.get(key, {}), (manager, "Update", part))
        return self._write(key, new, owners)

    def apply(
        self, key: Key, wanted: Document, manager: str, *, force: bool, part: str = ""
    ) -> Document:
        """Apply fields of `wanted` server-side: its status for a `part`, else all but the status.

        Raise Refusal, such as 409 if others own fields with other values, unless forced.
        """
        check_name(key)
        who = (manager, "Apply", part)
        conditions = wanted.get("metadata", {})
        parts = {"status"} if part else set(wanted) - {"status"}
        wanted = {name: value for name, value in wanted.items() if name in parts}
        if key not in self.objects:
            if part:
                raise missing(key)
            skeleton = {"apiVersion": key.resource.version, "kind": key.resource.kind}
            self.create(key, {**skeleton, **wanted}, manager)
            self._owners[key] = {path: {who} for path in ff.fields(wanted)}
            return self.objects[key]
        old, owners = self.objects[key], self._owners.get(key, {})
        check_version(key, old, conditions)
        conflicts = ff.conflicts(old, wanted, owners, who)
        if conflicts and not force:
            causes = [
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{owner}"',
                    "field": "." + ".".join(path),
                }
                for path, owner in conflicts
            ]
            message = f"Apply failed with {len(conflicts)} conflict(s)"
            raise Refusal(409, "Conflict", message, {"name": key.name, "causes": causes})
        new, owners = ff.applied(old, wanted, owners, who)
        return self._write(key, self._confine(old, new, part), owners)

    def delete(self, key: Key, preconditions: Document) -> None:
        """Delete the object, or mark it for its finalizers.

        Raise Refusal: 404 without it, 409 if `preconditions` name another uid or resourceVersion.
        """
        old = self.get(key)
        check_version(key, old, preconditions)
        if old["metadata"].get("finalizers"):
            meta = {**old["metadata"], "deletionTimestamp": _THEN}
            self._write(key, {**old, "metadata": meta}, self._owners.get(key, {}))
            return
        self._remove(key)

    def put(self, key: Key, document: Document) -> None:
        """Write an object with its status, as another manager and without any check."""
        old = self.objects.get(key)
        uid = old["metadata"]["uid"] if old else str(uuid4())
        meta = {"creationTimestamp": _THEN, **document["metadata"], "uid": uid}
        owners = ff.updated({}, document, {}, ("others", "Update", ""))
        self._write(key, {**document, "metadata": meta}, owners)

    def forget(self) -> None:
        """Forget the history of changes: no watch can begin at an older version."""
        self.history.clear()
        self.oldest = self.revision

    def backup(self) -> StoreBackup:
        """Return a copy of all objects, as `etcdctl snapshot save` makes one."""
        return StoreBackup(self.revision, dict(self.objects), dict(self._owners))

    def restore(self, backup: StoreBackup, bump: int = 0) -> None:
        """Restore a backup (etcdutl snapshot restore); the history is lost."""
        self.objects, self._owners = dict(backup.objects), dict(backup.owners)
        self.revision = self.revision + bump if bump else backup.revision
        self.history.clear()
        self.oldest = self.revision if bump else 1

    def _confine(self, old: Document, new: Document, part: str) -> Document:
        """Return the object after a write of `part` or, for "", of all but the status.

        Fields that the server sets stay as they are.
        """
        if part:
            return {**{k: v for k, v in old.items() if k != part}, **_only(new, part)}
        if "status" in new or "status" in old:
            new = {**{k: v for k, v in new.items() if k != "status"}, **_only(old, "status")}
        fixed = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation")
        kept = {name: old["metadata"][name] for name in fixed if name in old["metadata"]}
        free = {k: v for k, v in new.get("metadata", {}).items() if k not in fixed}
        return {**new, "metadata": {**free, **kept}}

    def _write(self, key: Key, new: Document, owners: ff.Owners) -> Document:
        old = self.objects.get(key)
        version = old["metadata"]["resourceVersion"] if old else ""
        meta = {**new["metadata"], "resourceVersion": version}
        if key.namespace:
            meta["namespace"] = key.namespace
        new = {**new, "metadata": {k: v for k, v in meta.items() if v not in ({}, [], None)}}
        self._owners[key] = owners
        if new == old:
            return new
        if old and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self._remove(key)
            return new
        self.revision += 1
        new["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[key] = new
        self.history.append(ObjectChange(self.revision, key, old, new))
        self._changed()
        return new

    def _remove(self, key: Key) -> None:
        old = self.objects.pop(key)
        self._owners.pop(key, None)
        self.revision += 1
        self.history.append(ObjectChange(self.revision, key, old, None))
        self._changed()


def missing(key: Key) -> Refusal:
    """Return the error (404) for an object that does not exist."""
    message = f'{key.resource.full} "{key.name}" not found'
    return Refusal(404, "NotFound", message, {"name": key.name, "kind": key.resource.plural})


def check_name(key: Key) -> None:
    """Raise Refusal (422) if a name is no DNS subdomain."""
    if not _NAME.fullmatch(key.name) or len(key.name) > 253:
        message = f'{key.resource.kind} "{key.name}" is invalid: metadata.name: Invalid value'
        raise Refusal(422, "Invalid", message, {"name": key.name})


def check_version(key: Key, old: Document, conditions: Document) -> None:
    """Raise Refusal (409) if the object has another uid or resourceVersion than `conditions`."""
    for name in ("uid", "resourceVersion"):
        if conditions.get(name) and conditions[name] != old["metadata"][name]:
            message = f'Operation cannot be fulfilled on {key.resource.full} "{key.name}"'
            raise Refusal(409, "Conflict", f"{message}: its {name} is another", {"name": key.name})


def _only(document: Document, part: str) -> Document:
    return {part: document[part]} if part in document else {}
