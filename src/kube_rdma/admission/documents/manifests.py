"""Manifests: which objects a document holds.

First step of `kube-rdma config check` for files that people apply; admission/documents/pod_places
looks for the pods in them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import Document, section


class Manifest(Frozen):
    """An object: its kind, its name, and the part of the text that it stands in."""

    group: str
    kind: str
    namespace: str  # empty where the object says none
    name: str
    document: Document

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.document.place(()).line

    def is_a(self, group: str, kind: str) -> bool:
        """Whether it is of this kind, in whatever version."""
        return (self.group, self.kind) == (group, kind)


def manifests(document: Document) -> tuple[Manifest, ...]:
    """The objects of a document: itself, or the items of a List; none where it is no object."""
    value = document.value
    if not isinstance(value, dict):
        return ()
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return ()
    items = value.get("items")
    if kind.endswith("List") and isinstance(items, list):
        inner = (section(document, ("items", number)) for number in range(len(items)))
        return tuple(one for part in inner for one in manifests(part))
    group = version.rpartition("/")[0]
    metadata = value.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    return (Manifest(group, kind, _text(names, "namespace"), _name(names), document),)


def _name(metadata: Mapping[str, object]) -> str:
    return _text(metadata, "name") or _text(metadata, "generateName")


def _text(metadata: Mapping[str, object], field: str) -> str:
    value = metadata.get(field)
    return value if isinstance(value, str) else ""
