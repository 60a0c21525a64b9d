"""Where kube-rdma stands in a node's CNI configuration: files in, changed files out.

A runtime takes the first file that is a network, in the order of the names (libcni ConfFiles,
containerd go-cni loadFromConfDir, CRI-O ocicni). Into that one its entry is put behind the others,
once, and everything else in it stays as it is. A file with a lone plugin has no room for a second
one: a list of its own is then put before it, with both plugins, and removed to undo it. Where a
meta-plugin (meta_plugins) comes first it is the one that calls kube-rdma; nothing is chained: the
entry is also taken out of the copy of the cluster's list that such a plugin may keep in its own
file, and an own list that it calls for the cluster's network stays, without it. The entry bears
a mark, by which the agent tells its calls from those for a network of its type.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kube_base.errors import Refused
from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_rdma.attach.rules.cni_conf.edit import appended, removed
from kube_rdma.attach.rules.cni_conf.exclusive import guard
from kube_rdma.attach.rules.cni_conf.files import (
    Document,
    Network,
    documents,
    first_type,
    is_list,
    networks,
    type_of,
)
from kube_rdma.attach.rules.cni_conf.leftovers import left_by_vke
from kube_rdma.attach.rules.cni_conf.meta_plugins import (
    CELLO_RDMA,
    META_PLUGINS,
    RDMA,
    RDMA_CONF,
    ConfiguredMetaPlugin,
    is_called,
    kept,
    rdma_conf,
    readers,
)
from kube_rdma.attach.rules.requests import POD_NETWORKS
from kube_rdma.model.cni_conf import ANNOTATIONS, CHAINED, PLUGIN, ConfFile, ConfPlan, Wiring

ENTRY: dict[str, Any] = {"type": PLUGIN, CHAINED: True, "capabilities": {ANNOTATIONS: True}}

# Names of kube-rdma's own list, the first that sorts before the file it stands in for.
OWN_LISTS = ("00-kube-rdma.conflist", "0-kube-rdma.conflist", "!kube-rdma.conflist")
OWN_FILES = (*OWN_LISTS, RDMA_CONF)

# Who calls kube-rdma, for people.
_SENTENCES = {
    Wiring.CHAIN: "Pods get networks from kube-rdma, which is chained in {}.",
    Wiring.DELEGATE: (
        "Pods get networks from the meta-plugin of {}; kube-rdma is not chained and makes those of "
        "its own type when it is called for them."
    ),
    Wiring.NONE: "This node has no CNI configuration yet, so nothing calls kube-rdma.",
}

# Before this version there were no lists, and no previous result that could be passed on.
OLDEST = (0, 3, 0)


def plan(files: tuple[ConfFile, ...]) -> ConfPlan:
    """What to change so that kube-rdma is called once for each pod; `files` are all of the folder.

    Raise Refused when the configuration cannot be chained, or two meta-plugins claim the pods.
    """
    present = networks(files)
    foreign = [one for one in present if not _is_ours(one)]
    if not foreign:
        return _compared(files, {}, ConfPlan(Wiring.NONE))
    wanted = {file.name: without(file.text) for file, _ in foreign}
    default, document = foreign[0]
    if meta := readers(foreign):
        wanted |= _still_called(present)
        goal, more = _behind(meta, default.name, documents(files))
        return _compared(files, wanted | more, goal)
    _refuse_old(default, document)
    name = default.name
    if is_list(document):
        wanted[name] = chained(default.text)
    else:
        wanted[_own_name(default)] = _written(_wrapped(document, ENTRY))
    return _compared(files, wanted, ConfPlan(Wiring.CHAIN, name, guard=guard(document)))


def unplan(files: tuple[ConfFile, ...]) -> ConfPlan:
    """What to change so that nothing calls kube-rdma any more."""
    present = networks(files)
    wanted = {file.name: without(file.text) for file, _ in present if file.name not in OWN_FILES}
    stays = _still_called(present)
    notes = tuple(
        f"{name} stays, without kube-rdma: a meta-plugin calls it for the cluster's network"
        for name in stays
    )
    return _compared(files, wanted | stays, ConfPlan(Wiring.NONE, notes=notes))


def named_by_pods(
    files: Iterable[ConfFile], installed: Collection[str]
) -> tuple[tuple[ConfFile, ...], tuple[str, ...]]:
    """The files that a pod may mean by a name, and the names of those that are passed over.

    kube-rdma's own `rdma` says nothing that the agent does not know. That of VKE's own component
    outlives it; without its plugin (`installed` are the node's) it would block every pod.
    """
    over = () if CELLO_RDMA in installed else left_by_vke(files)
    kept_files = (one for one in files if one.name not in (RDMA_CONF, *over))
    return tuple(kept_files), over


def with_leftovers(made: ConfPlan, over: Collection[str]) -> ConfPlan:
    """The plan with a sentence for each file that named_by_pods passes over, as its pods fare.

    Cello passes over nothing: it calls the plugin that is gone, and the pod does not start.
    """
    if POD_NETWORKS not in dict(made.readers):
        notes = (
            f"{name} is passed over, for its plugin {CELLO_RDMA} is not there" for name in over
        )
        return replace(made, notes=(*made.notes, *notes))
    wrong = {_answers(name, CELLO_RDMA) for name in over}
    right = (
        f"Pods that name {RDMA} fail until {name} is removed, for its plugin {CELLO_RDMA} is not "
        "there; then they go to kube-rdma"
        for name in over
    )
    return replace(made, notes=(*(note for note in made.notes if note not in wrong), *right))


def name_of(files: tuple[ConfFile, ...], default: str) -> str:
    """The name of the network in the file `default`, which is that of the cluster; "" for none."""
    names = [document.get("name") for file, document in networks(files) if file.name == default]
    return str(names[0] or "") if names else ""


def describe_plan(made: ConfPlan) -> str:
    """Who calls kube-rdma by this plan, as a sentence."""
    readers = (f"{product} reads {key}." for key, product in made.readers)
    notes = (f"{note}." for note in made.notes)
    return " ".join((_SENTENCES[made.wiring].format(made.default), *readers, *notes))


def chained(text: str) -> str:
    """A list with the entry in it once, behind another; the very same text if it is so already.

    Where it is just to be put in, all else stays as it is written.
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
    """A file without the entry, also in the lists that a meta-plugin keeps; else the same text.

    Where it stands in the file's own list alone, all else stays as it is written.
    """
    document = decoded(text)
    lists = [plugin_list for plugin_list in (document, *kept(document)) if is_list(plugin_list)]
    left = [(plugin_list, _others(plugin_list["plugins"])) for plugin_list in lists]
    changed = [
        (plugin_list, others) for plugin_list, others in left if others != plugin_list["plugins"]
    ]
    if len(changed) == 1 and changed[0][0] is document and not _is_marked(document["plugins"][0]):
        listed = document["plugins"]
        for place in reversed([n for n, one in enumerate(listed) if n and _is_entry(one)]):
            text = removed(text, place)
        return text
    for plugin_list, others in changed:
        plugin_list["plugins"] = others
    return _written(document) if changed else text


def _others(listed: Sequence[Any]) -> list[Any]:
    """The plugins of a list without the entry, which was always put behind another plugin.

    What has no mark and comes first is a network of kube-rdma's type that has nothing to say.
    """
    return [
        one
        for place, one in enumerate(listed)
        if not (_is_entry(one) if place else _is_marked(one))
    ]


def _behind(
    meta: Sequence[ConfiguredMetaPlugin], default: str, present: Sequence[Network]
) -> tuple[ConfPlan, dict[str, str]]:
    """What holds behind these meta-plugins, and kube-rdma's file there, by its name."""
    read = tuple((one.plugin.reads, one.plugin.product) for one in meta)
    goal = ConfPlan(Wiring.DELEGATE, default, readers=read)
    if POD_NETWORKS not in dict(read):
        return goal, {}
    others = [one for one in present if one[1].get("name") == RDMA and one[0].name != RDMA_CONF]
    if not others:
        conf = rdma_conf()
        return goal, {conf.name: conf.text}
    file, document = others[0]
    kind = first_type(document)
    notes = () if kind == PLUGIN else (_answers(file.name, kind),)
    return replace(goal, notes=notes), {}


def _answers(name: str, kind: str) -> str:
    return f"Pods that name {RDMA} go to {kind} until {name} is removed, then to kube-rdma"


def _still_called(present: Sequence[Network]) -> dict[str, str]:
    """An own list that a meta-plugin has found and calls, as its lone plugin is now."""
    return {
        file.name: _plain(file, document, present)
        for file, document in present
        if file.name in OWN_LISTS and is_called(file.name, present)
    }


def _plain(own: ConfFile, document: Document, present: Sequence[Network]) -> str:
    """An own list without the entry; the file that it stands in for may have changed since."""
    for file, lone in present:
        stands_in = not is_list(lone) and lone.get("name") == document.get("name")
        if stands_in and file.name not in OWN_FILES and type_of(lone) not in META_PLUGINS:
            return _written(_wrapped(lone))
    return without(own.text)


def _is_ours(network: Network) -> bool:
    return network[0].name in OWN_FILES


def _is_entry(plugin: object) -> bool:
    """Whether it is kube-rdma's entry, with its mark or as written before there was one.

    A plugin of this type with anything to say is a network of its own, and somebody else's.
    """
    return _is_marked(plugin) or plugin == {"type": PLUGIN}


def _is_marked(plugin: object) -> bool:
    if not isinstance(plugin, dict):
        return False
    return type_of(plugin) == PLUGIN and plugin.get(CHAINED) is True


def _refuse_old(default: ConfFile, document: dict[str, Any]) -> None:
    version = document.get("cniVersion")
    try:
        numbers = tuple(int(part) for part in str(version or "0.1.0").split("."))
    except ValueError:
        numbers = ()
    if numbers < OLDEST:
        raise Refused(
            f"cniVersion is {version!r}, and a second plugin needs 0.3.0 or newer",
            remedy='Set "cniVersion" to the newest that all its plugins list in supportedVersions '
            "when they are run with CNI_COMMAND=VERSION",
            where=default.name,
        )


def _own_name(default: ConfFile) -> str:
    for name in OWN_LISTS:
        if name.encode() < default.name.encode():
            return name
    raise Refused(
        "no list of kube-rdma can be put before it, its name sorts too early",
        remedy="Give the file a name that begins with a digit, or make it a .conflist",
        where=default.name,
    )


def _wrapped(document: Document, *behind: Document) -> Document:
    """The list that libcni itself makes of a lone plugin (ConfListFromConf), with others in it."""
    head: Document = {key: document[key] for key in ("cniVersion", "name") if key in document}
    return {**head, "plugins": [document, *behind]}


def _written(document: Document) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _compared(files: Iterable[ConfFile], wanted: dict[str, str], goal: ConfPlan) -> ConfPlan:
    current = {file.name: file.text for file in files}
    writes = tuple(
        ConfFile(name, text) for name, text in wanted.items() if current.get(name) != text
    )
    removes = tuple(name for name in current if name in OWN_FILES and name not in wanted)
    return replace(goal, writes=writes, removes=removes)
