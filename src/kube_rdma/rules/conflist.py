"""Where our plugin stands in a node's CNI configuration: files in, changed files out.

A runtime takes the first file that is a network, in the order of the names (libcni ConfFiles,
containerd go-cni loadFromConfDir, CRI-O ocicni). Into that one our entry is put behind the others,
once, and everything else in it stays as it is. A file with a lone plugin has no room for a second
one: a list of ours is then put before it, with its plugin and ours, and removed to undo it. Where a
meta-plugin comes first it is the one that calls us, and nothing is chained: our entry is also taken
out of the copy of the cluster's list that such a plugin may keep in its own file. The entry bears a
mark, by which the agent tells its calls from those for a network of our type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kube_rdma.model.cni_conf import CHAINED, PLUGIN, ConfFile, ConfPlan, Wiring
from kube_rdma.model.errors import Refused

ENTRY: dict[str, Any] = {"type": PLUGIN, CHAINED: True}

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


def name_of(files: tuple[ConfFile, ...], default: str) -> str:
    """The name of the network in the file `default`, which is that of the cluster; "" for none."""
    names = [document.get("name") for file, document in _networks(files) if file.name == default]
    return str(names[0] or "") if names else ""


def told(made: ConfPlan) -> str:
    """Who calls us by this plan, as a sentence."""
    match made.wiring:
        case Wiring.CHAIN:
            return f"Pods get networks from kube-rdma, which is chained in {made.default}."
        case Wiring.DELEGATE:
            return (
                f"Pods get networks from the meta-plugin of {made.default}; kube-rdma is not "
                "chained and makes those of its own type when it is called for them."
            )
        case Wiring.NONE:
            return "This node has no CNI configuration yet, so nothing calls kube-rdma."


def chained(text: str) -> str:
    """A list with our entry in it once, behind another; the very same text if it is so already."""
    document = json.loads(text)
    plugins = document["plugins"]
    places = [place for place, plugin in enumerate(plugins) if _is_entry(plugin)]
    # Others may stand behind us: whoever wants to be last too would be fought for ever.
    if len(places) == 1 and places[0] > 0:
        if plugins[places[0]].get(CHAINED) is True:
            return text
        plugins[places[0]] = ENTRY
    else:
        document["plugins"] = [one for one in plugins if not _is_entry(one)] + [ENTRY]
    return _written(document)


def without(text: str) -> str:
    """A file without our entry, also in the lists that a meta-plugin keeps; else the same text."""
    document = json.loads(text)
    lists = [one for one in (document, *_kept(document)) if _is_list(one)]
    found = [one for one in lists if any(map(_is_entry, one["plugins"]))]
    for one in found:
        one["plugins"] = [plugin for plugin in one["plugins"] if not _is_entry(plugin)]
    return _written(document) if found else text


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


def _kept(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The networks that meta-plugins of this file have in it, instead of naming their files."""
    plugins = document["plugins"] if _is_list(document) else [document]
    lists = [one.get("delegates") for one in plugins if _type(one) in META_PLUGINS]
    found = [each for one in lists if isinstance(one, list) for each in one]
    return [one for one in found if isinstance(one, dict)]


def _is_entry(plugin: object) -> bool:
    """Whether it is our entry, with its mark or as we wrote it before there was one.

    A plugin of our type with anything to say is a network of its own, and somebody else's.
    """
    if not isinstance(plugin, dict) or _type(plugin) != PLUGIN:
        return False
    return plugin.get(CHAINED) is True or plugin.keys() == {"type"}


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
