"""Where our plugin stands in a node's CNI configuration: files in, changed files out.

A runtime takes the first file that is a network, in the order of the names (libcni ConfFiles,
containerd go-cni loadFromConfDir, CRI-O ocicni). Into that one our entry is put behind the others,
once, and everything else in it stays as it is. A file with a lone plugin has no room for a second
one: a list of ours is then put before it, with its plugin and ours, and removed to undo it. Where a
meta-plugin comes first it is the one that calls us, and nothing is chained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kube_rdma.model.cni_conf import PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.errors import Refused

ENTRY: dict[str, Any] = {"type": PLUGIN}

ENDINGS = (".conf", ".conflist", ".json")

# Names of our own list, the first that sorts before the file it stands in for.
OWN_LISTS = ("00-kube-rdma.conflist", "0-kube-rdma.conflist", "!kube-rdma.conflist")

# Plugins that read a pod's annotations and call others -> the product. Thick and thin are one.
META_PLUGINS = {
    "multus": "Multus",
    "multus-shim": "Multus",
    "cello-meta": "Cello",
    "coordinator": "Spiderpool",
    "genie": "CNI-Genie",
    "danm": "DANM",
}

# Before this version a chained plugin got no previous result that could be passed on.
OLDEST = (0, 3, 1)


def plan(files: tuple[ConfFile, ...]) -> ConfPlan:
    """What to change so that we are called once for each pod; `files` are all of the folder.

    Raise Refused when the configuration cannot be chained, or two meta-plugins claim the pods.
    """
    networks = _networks(files)
    foreign = [one for one in networks if one[0].name not in OWN_LISTS]
    if not foreign:
        return _compared(files, {}, ConfPlan(Wiring.NONE))
    wanted = {file.name: without(file.text) for file, _ in foreign}
    default, document = foreign[0]
    if meta := _metas(document):
        _refuse_two(default, meta[0], foreign[1:])
        return _compared(files, wanted, ConfPlan(Wiring.DELEGATE, default.name))
    _refuse_old(default, document)
    name = default.name
    if _is_list(document):
        wanted[name] = chained(default.text)
    else:
        wanted[_own_name(default)] = _wrapped(document)
    return _compared(files, wanted, ConfPlan(Wiring.CHAIN, name))


def unplan(files: tuple[ConfFile, ...]) -> ConfPlan:
    """What to change so that nothing of ours is left."""
    networks = _networks(files)
    wanted = {file.name: without(file.text) for file, _ in networks if file.name not in OWN_LISTS}
    return _compared(files, wanted, ConfPlan(Wiring.NONE))


def chained(text: str) -> str:
    """A list with our entry in it once, behind another; the very same text if it is so already."""
    document = json.loads(text)
    plugins = document["plugins"]
    places = [place for place, plugin in enumerate(plugins) if _type(plugin) == PLUGIN]
    # Others may stand behind us: whoever wants to be last too would be fought for ever.
    if len(places) == 1 and places[0] > 0:
        return text
    document["plugins"] = [one for one in plugins if _type(one) != PLUGIN] + [ENTRY]
    return _written(document)


def without(text: str) -> str:
    """A list without our entry; the very same text if it has none, or is no list."""
    document = json.loads(text)
    if not _is_list(document) or PLUGIN not in map(_type, document["plugins"]):
        return text
    document["plugins"] = [one for one in document["plugins"] if _type(one) != PLUGIN]
    return _written(document)


Network = tuple[ConfFile, dict[str, Any]]


def _networks(files: Iterable[ConfFile]) -> list[Network]:
    """Those that a runtime would take, in its order; it passes over what it cannot read."""
    found = []
    for file in sorted(files, key=lambda file: file.name.encode()):
        if not file.name.endswith(ENDINGS):
            continue
        try:
            document = json.loads(file.text)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and _is_network(file, document):
            found.append((file, document))
    return found


def _is_network(file: ConfFile, document: dict[str, Any]) -> bool:
    if file.name.endswith(".conflist"):
        plugins = document.get("plugins")
        return isinstance(plugins, list) and bool(plugins) and all(map(_type, plugins))
    return bool(_type(document))


def _is_list(document: dict[str, Any]) -> bool:
    return isinstance(document.get("plugins"), list) and not _type(document)


def _type(plugin: object) -> str:
    found = plugin.get("type") if isinstance(plugin, dict) else None
    return found if isinstance(found, str) else ""


def _metas(document: dict[str, Any]) -> list[str]:
    plugins = document["plugins"] if _is_list(document) else [document]
    return [META_PLUGINS[_type(one)] for one in plugins if _type(one) in META_PLUGINS]


def _refuse_two(default: ConfFile, product: str, others: list[Network]) -> None:
    for file, document in others:
        if second := [name for name in _metas(document) if name != product]:
            raise Refused(
                f"two meta-plugins claim the pods of this node: {product} in {default.name} and "
                f"{second[0]} in {file.name}",
                remedy="Remove the file of the one that is no longer used",
                where="CNI configuration",
            )


def _refuse_old(default: ConfFile, document: dict[str, Any]) -> None:
    version = document.get("cniVersion")
    try:
        numbers = tuple(int(part) for part in str(version or "0.1.0").split("."))
    except ValueError:
        numbers = ()
    if numbers < OLDEST:
        raise Refused(
            f"cniVersion is {version!r}, and a second plugin needs 0.3.1 or newer",
            remedy='Set "cniVersion": "1.0.0" in it, if its plugins know that version',
            where=default.name,
        )


def _own_name(default: ConfFile) -> str:
    for name in OWN_LISTS:
        if name.encode() < default.name.encode():
            return name
    raise Refused(
        "no list of ours can be put before it, its name sorts too early",
        remedy="Give the file a name that begins with a digit, or make it a .conflist",
        where=default.name,
    )


def _wrapped(document: dict[str, Any]) -> str:
    """The list that libcni itself makes of a lone plugin (ConfListFromConf), with ours in it."""
    head: dict[str, Any] = {key: document[key] for key in ("cniVersion", "name") if key in document}
    return _written({**head, "plugins": [document, ENTRY]})


def _written(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _compared(files: Iterable[ConfFile], wanted: dict[str, str], goal: ConfPlan) -> ConfPlan:
    there = {file.name: file.text for file in files}
    writes = tuple(ConfFile(name, text) for name, text in wanted.items() if there.get(name) != text)
    removes = tuple(name for name in there if name in OWN_LISTS and name not in wanted)
    return ConfPlan(goal.wiring, goal.default, writes, removes)
