"""CNI plugins that read a pod's annotation and call others for it: what each reads, whom it calls.

Beside attach/rules/cni_conf/conflist, which decides by it who calls kube-rdma. One may stand on
another, as Multus does that calls Cello for the cluster's network: then each annotation still has
one reader. Two readers of one annotation would give a pod each of its interfaces twice.

Not among them are plugins that stand in the way of meta-plugins only by name, and behind which
kube-rdma is chained as behind any other: Spiderpool's coordinator sets routes of interfaces that
are there already, DANM makes the interfaces of an annotation of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.attach.rules.cni_conf.files import Document, Network, plugins, type_of
from kube_rdma.attach.rules.requests import (
    ANNOTATION,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
    RESOURCE,
)
from kube_rdma.lib.phrases import listed
from kube_rdma.model.cni_conf import BUILT_IN, PLUGIN, ConfFile
from kube_rdma.model.pod import PodState


class MetaPlugin(Frozen):
    """A product, and the annotation of a pod that it reads."""

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
    """A meta-plugin that is called for each pod, and the file that it stands in."""

    plugin: MetaPlugin
    file: str


def readers(foreign: Sequence[Network]) -> tuple[ConfiguredMetaPlugin, ...]:
    """The meta-plugins that are called for each pod, the outermost first; none: there is none.

    `foreign` are the files of others, of which the runtime takes the first. Raise Refused for two
    of which only one can serve the pods.
    """
    here, *others = foreign
    stacked: list[ConfiguredMetaPlugin] = []
    while metas := [one for one in plugins(here[1]) if _is_meta(one)]:
        own = [ConfiguredMetaPlugin(META_PLUGINS[type_of(one)], here[0].name) for one in metas]
        _refuse_beside((*own, *_beside(here)))
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
    """The networks that meta-plugins of this file have in it, instead of naming their files."""
    lists = [one.get("delegates") for one in plugins(document) if _is_meta(one)]
    delegates = [each for one in lists if isinstance(one, list) for each in one]
    return [one for one in delegates if isinstance(one, dict)]


def is_called(name: str, networks: Sequence[Network]) -> bool:
    """Whether a meta-plugin names just this file as the cluster's network."""
    metas = (one for _, document in networks for one in plugins(document) if _is_meta(one))
    return any(_cluster(one).rpartition("/")[2] == name for one in metas)


def unread(pod: PodState, read: Mapping[str, str]) -> Refused | None:
    """Why a pod gets no networks here: nobody reads the annotation that names them.

    `read` are the annotations that are read, with the product that does so.
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


def rdma_conf() -> ConfFile:
    """The configuration by which Cello calls kube-rdma for blocks of a pod that name ``rdma``."""
    document = {
        "cniVersion": "1.0.0",
        "name": RDMA,
        "type": PLUGIN,
        BUILT_IN: True,
        "capabilities": {"deviceID": True, "ips": True, "mac": True},
        "meta": {"resourceName": RESOURCE},
    }
    return ConfFile(RDMA_CONF, json.dumps(document, indent=2) + "\n")


def _is_meta(plugin: object) -> bool:
    return type_of(plugin) in META_PLUGINS


def _cluster(meta: Document) -> str:
    """What a meta-plugin calls for the cluster's network: a path, or the name of a network."""
    network = meta.get("clusterNetwork")
    if META_PLUGINS[type_of(meta)].reads == POD_NETWORKS:
        network = meta.get("defaultCni") or CHAINER
    return network if isinstance(network, str) else ""


def _below(here: Network, meta: Document, others: Sequence[Network]) -> Network | None:
    """The cluster's network as this meta-plugin has it: in another file, or in its own."""
    wanted = _cluster(meta)
    if not wanted:
        inner = kept(here[1])
        return (here[0], inner[0]) if inner else None
    name = wanted.rpartition("/")[2]
    if "/" in wanted:
        return next((one for one in others if one[0].name == name), None)
    return next((one for one in others if one[1].get("name") == name), None)


def _beside(here: Network) -> Iterator[ConfiguredMetaPlugin]:
    """Meta-plugins that one has in its own file to call for each pod, besides the first network."""
    for document in kept(here[1])[1:]:
        for meta in filter(_is_meta, plugins(document)):
            yield ConfiguredMetaPlugin(META_PLUGINS[type_of(meta)], here[0].name)


def _refuse_beside(claimants: Sequence[ConfiguredMetaPlugin]) -> None:
    if len(claimants) > 1:
        remedy = "Keep one of them, or let one call the other as the cluster's network"
        raise _two(claimants[0], claimants[1], remedy)


def _refuse_twice(above: Sequence[ConfiguredMetaPlugin], below: ConfiguredMetaPlugin) -> None:
    for reader in above:
        if reader.plugin.reads == below.plugin.reads:
            remedy = (
                f"Both read {below.plugin.reads}: let {reader.plugin.product} call the plugin of "
                "the cluster's network itself"
            )
            raise _two(reader, below, remedy)


def _refuse_idle(active: Sequence[ConfiguredMetaPlugin], others: Sequence[Network]) -> None:
    """Files that the runtime does not take and nobody names: one of two products is left over."""
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
