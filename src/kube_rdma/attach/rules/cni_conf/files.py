"""The files of a node's CNI configuration as a runtime takes them.

First of the rules about that folder, for conflist, which decides what it should hold, and
meta_plugins, which says who reads the annotations of pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.model.cni_conf import ConfFile

ENDINGS = (".conf", ".conflist", ".json")

Document = dict[str, Any]
Network = tuple[ConfFile, Document]


def documents(files: Iterable[ConfFile]) -> list[Network]:
    """All that can be read as an object, in the order of a runtime; it passes over the rest."""
    readable = []
    for file in sorted(files, key=lambda file: file.name.encode()):
        if not file.name.endswith(ENDINGS):
            continue
        try:
            document = decoded(file.text)
        except Undecodable:
            continue
        if isinstance(document, dict):
            readable.append((file, document))
    return readable


def networks(files: Iterable[ConfFile]) -> list[Network]:
    """Those that a runtime would take, in its order."""
    return [(file, document) for file, document in documents(files) if _is_network(file, document)]


def is_list(document: Document) -> bool:
    """Whether it is a list of plugins, and not a lone one."""
    return isinstance(document.get("plugins"), list) and not type_of(document)


def plugins(document: Document) -> list[Any]:
    """The plugins of a list, or the lone one."""
    return list(document["plugins"]) if is_list(document) else [document]


def first_type(document: Document) -> str:
    """The type of the plugin that makes the interface."""
    return type_of(next(iter(plugins(document)), None))


def type_of(plugin: object) -> str:
    """The name of a plugin's binary; empty for what is not a plugin."""
    binary = plugin.get("type") if isinstance(plugin, dict) else None
    return binary if isinstance(binary, str) else ""


def _is_network(file: ConfFile, document: Document) -> bool:
    if file.name.endswith(".conflist"):
        listed = document.get("plugins")
        return isinstance(listed, list) and bool(listed) and all(map(type_of, listed))
    return bool(type_of(document))
