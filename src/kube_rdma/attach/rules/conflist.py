"""Decides how kube-rdma stands in a node's CNI configuration: files in, changed files out.

A runtime takes the first file that is a network, in the order of the names (libcni ConfFiles,
containerd go-cni loadFromConfDir, CRI-O ocicni). kube-rdma's entry is put into that file once,
behind the other plugins; all else in it stays as it is. Where all of its plugins lie in a folder,
the entry is a file there. A file with a lone plugin has no room for a second one. A list of
kube-rdma's own is then put before it, with both plugins, and removed to undo it.

Where a meta-plugin comes first, it calls kube-rdma, and nothing is chained. The entry is also taken
out of the copy of the cluster's list that such a plugin may keep in its own file. A list of
kube-rdma's own that it calls for the cluster's network stays, without the entry. The entry bears a
mark, by which `role` distinguishes its calls from those for a network of its type.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in typeshed
from types import MappingProxyType
from typing import Any

from kube_base.errors import Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules.requests import (
    ANNOTATION,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
    RESOURCE,
)
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach import cni
from kube_rdma.model.ipam import FIRST
from kube_rdma.model.kubernetes import PodState

# The text of a list: a plugin is put in or taken out, and every other byte stays as it is.

_DECODER = json.JSONDecoder()
_SPACE = " \t\n\r"

Span = tuple[int, int]


def appended(text: str, entry: str) -> str:
    """Return the list's text with one more plugin at the end, formatted like the last one."""
    begin, end = _plugins(text)[-1]
    before = len(text[:begin].rstrip(_SPACE))
    return f"{text[:end]},{text[before:begin]}{entry}{text[end:]}"


def removed(text: str, place: int) -> str:
    """Return the list's text without the plugin at this place, which is not the first."""
    spans = _plugins(text)
    return text[: spans[place - 1][1]] + text[spans[place][1] :]


def _plugins(text: str) -> list[Span]:
    """Return begin and end of each element of "plugins" in the text of a list.

    Of several members of that name the last one counts, as in Go.
    """
    spans: list[Span] = []
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] == '"':
        key, at = scanstring(text, at + 1)
        at = _skip(text, _skip(text, at) + 1)
        if key == "plugins":
            spans = _elements(text, at)
        at = _skip(text, _end(text, at))
        if text[at] == ",":
            at = _skip(text, at + 1)
    return spans


def _elements(text: str, at: int) -> list[Span]:
    """Return begin and end of each element of the JSON array at this place; empty for no array."""
    spans: list[Span] = []
    while text[at] in "[,":
        at = _skip(text, at + 1)
        if text[at] == "]":
            break
        end = _end(text, at)
        spans.append((at, end))
        at = _skip(text, end)
    return spans


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


# The files of a node's CNI configuration as a runtime takes them.

ENDINGS = (".conf", ".conflist", ".json")

Document = dict[str, Any]
Network = tuple[cni.ConfFile, Document]


def documents(files: Iterable[cni.ConfFile]) -> list[Network]:
    """Return the readable JSON objects of CNI configurations, in a runtime's order."""
    readable = []
    for file in sorted(files, key=lambda file: file.name.encode()):
        if not file.name.endswith(ENDINGS) or "/" in file.name:
            continue
        try:
            document = decoded(file.text)
        except Undecodable:
            continue
        if isinstance(document, dict):
            readable.append((file, document))
    return readable


def networks(files: Iterable[cni.ConfFile]) -> list[Network]:
    """Return the configurations that a runtime would use, in order, with all of their plugins."""
    every, taken = tuple(files), []
    for file, document in documents(every):
        is_listed = file.name.endswith(".conflist")
        network = _gathered(document, every) if is_listed else document
        listed = network.get("plugins") if is_listed else [network]
        if isinstance(listed, list) and listed and all(map(type_of, listed)):
            taken.append((file, network))
    return taken


def _gathered(document: Document, files: Iterable[cni.ConfFile]) -> Document:
    """Return a list with its own plugins, then those in the folder of its name.

    So does libcni 1.3 (conf.go, NetworkConfFromFile). Older ones take no list without plugins.
    """
    folder, own = f"{document.get('name', '')}/", document.get("plugins", ())
    beside = [
        replace(one, name=one.name.removeprefix(folder))
        for one in files
        if one.name.startswith(folder) and not _is_own(one.name)
    ]
    alone = str(document.get("loadOnlyInlinedPlugins")).lower() == "true"
    if alone or not beside or (own != () and (not own or not isinstance(own, list))):
        return document
    found = [plugin for _, plugin in documents(beside)]
    broken = [None] * (len(beside) - len(found))  # which fail the whole list
    return {**document, "plugins": [*own, *found, *broken]}


def _is_own(name: str) -> bool:
    return name.rpartition("/")[2] in OWN_FILES


def is_list(document: Document) -> bool:
    """Return whether a configuration is a list of plugins, and not a single one."""
    return isinstance(document.get("plugins"), list) and not type_of(document)


def plugins(document: Document) -> list[Any]:
    """Return a configuration's plugins: all of a list, or the single one."""
    return list(document["plugins"]) if is_list(document) else [document]


def first_type(document: Document) -> str:
    """Return the type of a configuration's first plugin, which makes the interface."""
    return type_of(next(iter(plugins(document)), None))


def type_of(plugin: object) -> str:
    """Return the plugin's binary, by its field `type`; empty for what is no plugin."""
    binary = plugin.get("type") if isinstance(plugin, dict) else None
    return binary if isinstance(binary, str) else ""


# Products that keep kube-rdma out of the node's CNI configuration.

# By the type of a plugin in the cluster's list, the first or, where it is chained, a later one.
GUARDS: Mapping[str, str] = MappingProxyType({"cilium-cni": "Cilium"})

ENOUGH = 2
"""How many writes undone at once are no coincidence: one may be, as the other product starts."""


def guard(document: Document) -> str:
    """Return the product in a list that may remove other plugins from the folder; "" for none."""
    return next((GUARDS[kind] for kind in map(type_of, plugins(document)) if kind in GUARDS), "")


def shut_out(plan: cni.ConfPlan, undone: cni.UndoneWrites) -> Refused | None:
    """Return the refusal to write again where another product undoes it each time; else None."""
    if not plan.guard or (undone.at_once < ENOUGH and not undone.set_aside):
        return None
    renamed = ", ".join(undone.set_aside)
    acts = [f"renamed {renamed} to *{cni.SET_ASIDE}"] if renamed else []
    if undone.at_once >= ENOUGH:
        acts.append("took kube-rdma out again within a second, each time")
    return Refused(
        f"{plan.guard} {' and '.join(acts)}; so no pod is given its networks at its start",
        remedy=f"Upgrade {plan.guard} (1.14 or newer) with --set cni.exclusive=false",
        where=plan.default,
    )


# Meta-plugins, which read a pod's annotation and call other plugins for it.


class MetaPlugin(Frozen):
    """A product that reads one annotation of pods and calls other CNI plugins."""

    product: str
    reads: str


# By the type in a configuration. Thick and thin Multus are one.
META_PLUGINS: Mapping[str, MetaPlugin] = MappingProxyType(
    {
        "multus": MetaPlugin("Multus", ANNOTATION),
        "multus-shim": MetaPlugin("Multus", ANNOTATION),
        "genie": MetaPlugin("CNI-Genie", ANNOTATION),
        "cello-meta": MetaPlugin("Cello", POD_NETWORKS),
    }
)

CHAINER = "cello-chainer"  # the cluster's network where Cello's configuration names no other

# Behind Cello a network of a pod is a configuration of the node: kube-rdma's, last in order
# so that no runtime takes it for the cluster's.
RDMA_CONF = "zz-kube-rdma.conf"
RDMA = "rdma"

# The plugin that VKE's own configuration `rdma` calls.
CELLO_RDMA = "cello-rdma"


class ConfiguredMetaPlugin(Frozen):
    """A meta-plugin that is called for each pod, and the file that configures it."""

    plugin: MetaPlugin
    file: str


def readers(foreign: Sequence[Network]) -> tuple[ConfiguredMetaPlugin, ...]:
    """Return the meta-plugins that are called for each pod, the outermost first.

    `foreign` are all files but kube-rdma's, of which the runtime takes the first. Raise Refused for
    two meta-plugins of which only one can serve the pods.
    """
    here, *others = foreign
    stacked: list[ConfiguredMetaPlugin] = []
    while metas := [one for one in plugins(here[1]) if _is_meta(one)]:
        own = [ConfiguredMetaPlugin(META_PLUGINS[type_of(one)], here[0].name) for one in metas]
        # One may have others in its own file to call for each pod, besides the first network.
        inner = [meta for each in kept(here[1])[1:] for meta in filter(_is_meta, plugins(each))]
        if len(metas + inner) > 1:
            second = ConfiguredMetaPlugin(META_PLUGINS[type_of((metas + inner)[1])], here[0].name)
            remedy = "Keep one of them, or let one call the other as the cluster's network"
            raise _two(own[0], second, remedy)
        _refuse_twice(stacked, own[0])
        stacked += own
        below = _below(here, metas[0], others)
        if below is None:
            break
        others = [one for one in others if one is not below]
        here = below
    _refuse_idle(stacked, others)
    return tuple(stacked)


def kept(document: Document) -> list[Document]:
    """Return the networks that are written inside of meta-plugins' configuration in this file."""
    lists = [one.get("delegates") for one in plugins(document) if _is_meta(one)]
    delegates = [each for one in lists if isinstance(one, list) for each in one]
    return [one for one in delegates if isinstance(one, dict)]


def is_called(name: str, networks: Sequence[Network]) -> bool:
    """Return whether a meta-plugin names this file as the cluster's network."""
    metas = (one for _, document in networks for one in plugins(document) if _is_meta(one))
    return any(_cluster(one).rpartition("/")[2] == name for one in metas)


def unread(pod: PodState, read: Mapping[str, str]) -> Refused | None:
    """Return the refusal for a pod whose network annotation is not read on this node, else None.

    `read` has the annotations that are read, each with the product that reads it.
    """
    asked = dict(pod.annotations)
    requests = {
        ANNOTATION: asked.get(ANNOTATION, ""),
        POD_NETWORKS: asked.get(POD_NETWORKS, "") + asked.get(POD_NETWORKS_DEFINITION, ""),
    }
    missed = [key for key, text in requests.items() if text.strip() and key not in read]
    if not read or not missed:
        return None
    products = listed(list(dict.fromkeys(read.values())))
    return Refused(
        f"the networks of pods on this node are made by {products}, which does not read "
        f"{missed[0]}, so the pod gets none of those that it names there",
        remedy=f"Name them in the annotation {' or '.join(read)}",
        where=f"pod {pod.namespace}/{pod.name}",
    )


def rdma_conf() -> cni.ConfFile:
    """Return the configuration by which Cello calls kube-rdma for networks named ``rdma``."""
    document = {
        "cniVersion": "1.0.0",
        "name": RDMA,
        "type": cni.PLUGIN,
        cni.BUILT_IN: True,
        "capabilities": {"deviceID": True, "ips": True, "mac": True},
        "meta": {"resourceName": RESOURCE},
    }
    return cni.ConfFile(RDMA_CONF, json.dumps(document, indent=2) + "\n")


def _is_meta(plugin: object) -> bool:
    return type_of(plugin) in META_PLUGINS


def _cluster(meta: Document) -> str:
    """Return the path or name by which a meta-plugin calls the cluster's network."""
    network = meta.get("clusterNetwork")
    if META_PLUGINS[type_of(meta)].reads == POD_NETWORKS:
        network = meta.get("defaultCni") or CHAINER
    return network if isinstance(network, str) else ""


def _below(here: Network, meta: Document, others: Sequence[Network]) -> Network | None:
    """Return the cluster's network of a meta-plugin: in another file or inside its own; or None."""
    wanted = _cluster(meta)
    if not wanted:
        inner = kept(here[1])
        return (here[0], inner[0]) if inner else None
    name = wanted.rpartition("/")[2]
    if "/" in wanted:
        return next((one for one in others if one[0].name == name), None)
    return next((one for one in others if one[1].get("name") == name), None)


def _refuse_twice(above: Sequence[ConfiguredMetaPlugin], below: ConfiguredMetaPlugin) -> None:
    for reader in above:
        if reader.plugin.reads == below.plugin.reads:
            remedy = (
                f"Both read {below.plugin.reads}: let {reader.plugin.product} call the plugin of "
                "the cluster's network itself"
            )
            raise _two(reader, below, remedy)


def _refuse_idle(active: Sequence[ConfiguredMetaPlugin], others: Sequence[Network]) -> None:
    """Raise Refused for a second meta-plugin's file, of another product than the active one."""
    products = {one.plugin.product for one in active}
    for file, document in others if active else ():
        for meta in filter(_is_meta, plugins(document)):
            other = ConfiguredMetaPlugin(META_PLUGINS[type_of(meta)], file.name)
            if other.plugin.product not in products:
                remedy = (
                    "Remove the file of the one that is no longer used, or let the first name the "
                    "other's file as the cluster's network"
                )
                raise _two(active[0], other, remedy)


def _two(first: ConfiguredMetaPlugin, second: ConfiguredMetaPlugin, remedy: str) -> Refused:
    return Refused(
        f"two meta-plugins claim the pods of this node: {first.plugin.product} in {first.file} "
        f"and {second.plugin.product} in {second.file}",
        remedy=remedy,
        where="CNI configuration",
    )


# Files that VKE's component leaves when it is uninstalled.

SAVED = ".kube-rdma-saved"  # the end of a name that no runtime and no Cello reads


def left_by_vke(files: Iterable[cni.ConfFile]) -> tuple[str, ...]:
    """Return the names of files with the network of VKE's own component."""
    rdma = ((file, one) for file, one in documents(files) if one.get("name") == RDMA)
    return tuple(file.name for file, one in rdma if first_type(one) == CELLO_RDMA)


_CAPABILITIES = {cni.ANNOTATIONS: True}
ENTRY: dict[str, Any] = {"type": cni.PLUGIN, cni.CHAINED: True, "capabilities": _CAPABILITIES}

# Names of kube-rdma's own list, the first that sorts before the file it stands in for.
OWN_LISTS = ("00-kube-rdma.conflist", "0-kube-rdma.conflist", "!kube-rdma.conflist")
OWN_FILES = (*OWN_LISTS, RDMA_CONF)

# Who calls kube-rdma, for people.
_SENTENCES = {
    cni.Wiring.CHAIN: "Pods get networks from kube-rdma, which is chained in {}.",
    cni.Wiring.DELEGATE: (
        "Pods get networks from the meta-plugin of {}; kube-rdma is not chained and makes those of "
        "its own type when it is called for them."
    ),
    cni.Wiring.NONE: "This node has no CNI configuration yet, so nothing calls kube-rdma.",
}

# Before this version there were no lists, and no previous result that could be passed on.
OLDEST = (0, 3, 0)


def plan(files: tuple[cni.ConfFile, ...]) -> cni.ConfPlan:
    """Return the changes after which the runtime, or a meta-plugin, calls kube-rdma for pods.

    The runtime calls it once for each pod, a meta-plugin for each network of its type. `files` are
    all of the folder. Raise Refused when the configuration cannot be chained, or two meta-plugins
    claim the pods.
    """
    present = networks(files)
    foreign = [one for one in present if one[0].name not in OWN_FILES]
    if not foreign:
        return _compared(files, {}, cni.ConfPlan(cni.Wiring.NONE))
    wanted = {file.name: without(file.text) for file, _ in foreign}
    default, document = foreign[0]
    if meta := readers(foreign):
        wanted |= _still_called(present)
        goal, more = _behind(meta, default.name, documents(files))
        return _compared(files, wanted | more, goal)
    _refuse_old(default, document)
    name = default.name
    if not is_list(document):
        wanted[_own_name(default)] = _written(_wrapped(document, ENTRY))
    elif "plugins" in decoded(default.text):
        wanted[name] = chained(default.text)
    else:  # what stands in a list comes before its folder, and the entry belongs behind
        wanted[f"{document['name']}/{RDMA_CONF}"] = _written(ENTRY)
    return _compared(files, wanted, cni.ConfPlan(cni.Wiring.CHAIN, name, guard=guard(document)))


def unplan(files: tuple[cni.ConfFile, ...]) -> cni.ConfPlan:
    """Return the changes that take kube-rdma's entry and its own files out of the configuration.

    A list of its own that a meta-plugin calls stays, without the entry.
    """
    present = networks(files)
    # Also of a list that is broken now, for it may be mended.
    wanted = {f.name: without(f.text) for f, _ in documents(files) if f.name not in OWN_FILES}
    stays = _still_called(present)
    why = "without kube-rdma: a meta-plugin calls it for the cluster's network"
    notes = tuple(f"{name} stays, {why}" for name in stays)
    return _compared(files, wanted | stays, cni.ConfPlan(cni.Wiring.NONE, notes=notes))


def named_by_pods(
    files: Iterable[cni.ConfFile], installed: Collection[str]
) -> tuple[tuple[cni.ConfFile, ...], tuple[str, ...]]:
    """Return the files that pods may name as networks, and the names of skipped ones.

    kube-rdma's own `rdma` is left out of both, as the agent knows its content. VKE's component
    may leave a file behind, which is skipped if its plugin is not among the `installed` ones. A pod
    that named it could not start.
    """
    over = () if CELLO_RDMA in installed else left_by_vke(files)
    kept_files = (one for one in files if one.name not in (RDMA_CONF, *over))
    return tuple(kept_files), over


def with_leftovers(made: cni.ConfPlan, over: Collection[str]) -> cni.ConfPlan:
    """Return the plan with a note for each file that named_by_pods skips, in `over`.

    Where Cello reads an annotation, the note says that pods which name its network fail.
    """
    if POD_NETWORKS not in dict(made.readers):
        why = f"for its plugin {CELLO_RDMA} is not there"
        notes = (f"{name} is passed over, {why}" for name in over)
        return replace(made, notes=(*made.notes, *notes))
    wrong = {_answers(name, CELLO_RDMA) for name in over}
    why = f"for its plugin {CELLO_RDMA} is not there; then they go to kube-rdma"
    right = (f"Pods that name {RDMA} fail until {name} is removed, {why}" for name in over)
    return replace(made, notes=(*(note for note in made.notes if note not in wrong), *right))


def name_of(files: tuple[cni.ConfFile, ...], default: str) -> str:
    """Return the name of the cluster's network, whose file is `default`; "" without one."""
    names = [document.get("name") for file, document in networks(files) if file.name == default]
    return str(names[0] or "") if names else ""


def describe_plan(made: cni.ConfPlan) -> str:
    """Return sentences on who calls kube-rdma under this plan."""
    readers = (f"{product} reads {key}." for key, product in made.readers)
    notes = (f"{note}." for note in made.notes)
    return " ".join((_SENTENCES[made.wiring].format(made.default), *readers, *notes))


def chained(text: str) -> str:
    """Return a list's text with kube-rdma's entry in it once, behind another plugin.

    A text that has it so already is returned as it is; where it is only added, all else stays as
    written.
    """
    document = decoded(text)
    listed = document["plugins"]
    places = [place for place, plugin in enumerate(listed) if _is_entry(plugin)]
    if not places:
        return appended(text, json.dumps(ENTRY))
    # Others may stand behind it: one that wants to be last too would be fought endlessly.
    if len(places) == 1 and places[0] > 0:
        if ENTRY.items() <= listed[places[0]].items():
            return text
        listed[places[0]] = ENTRY
    else:
        document["plugins"] = [one for one in listed if not _is_entry(one)] + [ENTRY]
    return _written(document)


def without(text: str) -> str:
    """Return a file's text without kube-rdma's entry, also in lists inside of a meta-plugin.

    Where only the file's own list has the entry, all else stays as written.
    """
    document = decoded(text)
    lists = [plugin_list for plugin_list in (document, *kept(document)) if is_list(plugin_list)]
    left = [(plugin_list, _others(plugin_list["plugins"])) for plugin_list in lists]
    changed = [(one, others) for one, others in left if others != one["plugins"]]
    if len(changed) == 1 and changed[0][0] is document and not _is_marked(document["plugins"][0]):
        listed = document["plugins"]
        for place in reversed([n for n, one in enumerate(listed) if n and _is_entry(one)]):
            text = removed(text, place)
        return text
    for plugin_list, others in changed:
        plugin_list["plugins"] = others
    return _written(document) if changed else text


def _others(listed: Sequence[Any]) -> list[Any]:
    """Return the plugins of a list except kube-rdma's entry.

    An unmarked plugin of kube-rdma's type in the first place is no entry, but a network without
    settings.
    """
    return [one for n, one in enumerate(listed) if not (_is_entry(one) if n else _is_marked(one))]


def _behind(
    meta: Sequence[ConfiguredMetaPlugin], default: str, present: Sequence[Network]
) -> tuple[cni.ConfPlan, dict[str, str]]:
    """Return the plan behind these meta-plugins, and the files of kube-rdma that they need."""
    read = tuple((one.plugin.reads, one.plugin.product) for one in meta)
    goal = cni.ConfPlan(cni.Wiring.DELEGATE, default, readers=read)
    if POD_NETWORKS not in dict(read):
        return goal, {}
    others = [one for one in present if one[1].get("name") == RDMA and one[0].name != RDMA_CONF]
    if not others:
        conf = rdma_conf()
        return goal, {conf.name: conf.text}
    file, document = others[0]
    kind = first_type(document)
    notes = () if kind == cni.PLUGIN else (_answers(file.name, kind),)
    return replace(goal, notes=notes), {}


def _answers(name: str, kind: str) -> str:
    return f"Pods that name {RDMA} go to {kind} until {name} is removed, then to kube-rdma"


def _still_called(present: Sequence[Network]) -> dict[str, str]:
    """Return kube-rdma's list for a lone plugin, renewed, if a meta-plugin calls that list."""
    own = ((file, one) for file, one in present if file.name in OWN_LISTS)
    return {f.name: _plain(f, one, present) for f, one in own if is_called(f.name, present)}


def _plain(own: cni.ConfFile, document: Document, present: Sequence[Network]) -> str:
    """Return kube-rdma's list without its entry, renewed from the file of its only plugin."""
    for file, lone in present:
        stands_in = not is_list(lone) and lone.get("name") == document.get("name")
        if stands_in and file.name not in OWN_FILES and type_of(lone) not in META_PLUGINS:
            return _written(_wrapped(lone))
    return without(own.text)


def _is_entry(plugin: object) -> bool:
    """Return whether a plugin is kube-rdma's entry, by its mark or as older versions wrote it.

    A plugin of this type with further fields is no entry, but a network that somebody wrote.
    """
    return _is_marked(plugin) or plugin == {"type": cni.PLUGIN}


def _is_marked(plugin: object) -> bool:
    if not isinstance(plugin, dict):
        return False
    return type_of(plugin) == cni.PLUGIN and plugin.get(cni.CHAINED) is True


def _refuse_old(default: cni.ConfFile, document: dict[str, Any]) -> None:
    version, every = document.get("cniVersion"), document.get("cniVersions")
    try:  # libcni takes the newest of all
        versions = [version or "0.1.0", *(every if isinstance(every, list) else ())]
        numbers = max(tuple(map(int, str(one).split("."))) for one in versions)
    except ValueError:
        numbers = ()
    if numbers < OLDEST:
        raise Refused(
            f"cniVersion is {version!r}, and a second plugin needs 0.3.0 or newer",
            remedy='Set "cniVersion" to the newest that all its plugins list in supportedVersions '
            "when they are run with CNI_COMMAND=VERSION",
            where=default.name,
        )


def _own_name(default: cni.ConfFile) -> str:
    for name in OWN_LISTS:
        if name.encode() < default.name.encode():
            return name
    raise Refused(
        "no list of kube-rdma can be put before it, its name sorts too early",
        remedy="Give the file a name that begins with a digit, or make it a .conflist",
        where=default.name,
    )


def _wrapped(document: Document, *behind: Document) -> Document:
    """Return a single plugin as a list (ConfListFromConf of libcni), followed by others."""
    head: Document = {key: document[key] for key in ("cniVersion", "name") if key in document}
    return {**head, "plugins": [document, *behind]}


def _written(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _compared(
    files: Iterable[cni.ConfFile], wanted: dict[str, str], goal: cni.ConfPlan
) -> cni.ConfPlan:
    current = {file.name: file.text for file in files}
    changed = ((name, text) for name, text in wanted.items() if current.get(name) != text)
    writes = tuple(cni.ConfFile(name, text) for name, text in changed)
    removes = tuple(name for name in current if _is_own(name) and name not in wanted)
    return replace(goal, writes=writes, removes=removes)


# Who calls kube-rdma: a runtime, a meta-plugin, or the IPAM part of another plugin. One binary by
# two names serves all three, and what distinguishes them is in the configuration that comes along.


class Role(StrEnum):
    """The purpose of a CNI call, which decides who answers it."""

    CHAIN = "chain"  # all networks of a pod, which its annotation names
    DELEGATE = "delegate"  # the one network whose configuration came
    ADDRESSES = "addresses"  # those of the interface that another plugin makes
    UNTOLD = "untold"  # DEL or CHECK; only the agent's records say of which of the first two


def role(call: cni.Call) -> Role:
    """Return what a call is for; raise Refused for an ADD behind another plugin's interface.

    A meta-plugin's ADD has no previous result. With other verbs meta-plugins and the runtime both
    pass one, so it shows nothing. An ADD for eth0 with one comes from an entry of an older version,
    which has no mark.
    """
    if call.plugin != cni.PLUGIN:
        return Role.ADDRESSES
    if call.marked or call.verb in (cni.Verb.GC, cni.Verb.STATUS):
        return Role.CHAIN
    if call.verb is not cni.Verb.ADD:
        return Role.UNTOLD
    if call.previous is None:
        return Role.DELEGATE
    if call.interface == FIRST:
        return Role.CHAIN
    raise Refused(
        "kube-rdma stands behind another plugin that has made the interface",
        remedy='Let {"type": "kube-rdma"} be the first of its plugins, or the only one',
        where=f"network {call.network}",
    )


def stranded(call: cni.Call) -> Unavailable:
    """Return the error for a pod that would get a card as its only network."""
    return Unavailable(
        "No cluster network is configured on this node, so pod "
        f"{call.pod} cannot start yet; the kubelet will retry"
    )


def turned(call: cni.Call) -> Unavailable:
    """Return the error for a pod that started before a meta-plugin became the node's network."""
    return Unavailable(
        f"A meta-plugin has just become this node's network, and pod {call.pod} was started before "
        "that; the kubelet starts it again"
    )


def proven(
    made: cni.ConfPlan, files: tuple[cni.ConfFile, ...], binaries: Collection[str]
) -> cni.ConfPlan:
    """Return the plan with its missing plugins; a chain with one becomes a plan without kube-rdma.

    The agent may not see the folder of CNI binaries in which the runtime looks. `binaries` are the
    names of those that it sees.
    """
    called = [document for file, document in networks(files) if file.name == made.default]
    types = dict.fromkeys(type_of(one) for document in called for one in plugins(document))
    missing = tuple(one for one in types if one not in (cni.PLUGIN, *binaries))
    if not missing or made.wiring is not cni.Wiring.CHAIN:
        return replace(made, missing=missing)
    return replace(unplan(files), default=made.default, missing=missing)
