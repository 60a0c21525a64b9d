"""A network that is named by a CNI configuration: of the node, or the one that needs none.

The annotation k8s.volcengine.com/pod-networks names networks so. A configuration means what it
means in a NetworkAttachmentDefinition (network_definition), and may have Cello's block ``meta``
besides: to which resource it belongs, and whether its addresses are those of the card.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import replace
from kube_rdma.attach.documents import network_definition
from kube_rdma.attach.documents.network_definition import NetworkDefinition
from kube_rdma.ipam.ip_conf import IpamConf
from kube_rdma.lib.text.document import Document
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.typed import Typed
from kube_rdma.lib.text.words import Resource
from kube_rdma.model.attach.attachment import CardAddresses, Network, NetworkKind
from kube_rdma.model.cni_conf import ConfFile
from kube_rdma.model.ipam import PoolName
from kube_rdma.pools.documents.node_label import RESOURCE

BUILT_IN = "rdma"
"""The network that needs no configuration; an IPPool of this name gives it addresses."""


_EMPTY = BeforeValidator(lambda value: None if value == "" else value)  # as in Go


class Meta(Typed):
    """What Cello's meta plugin is asked to find out before it calls the plugins."""

    resource_name: Annotated[Resource | None, _EMPTY] = None
    ip_ranges_source: Annotated[Literal["netDeviceSelf", "netDeviceSubnet"] | None, _EMPTY] = None


class _Conf(Typed):
    """The part of a configuration that no plugin reads."""

    model_config = ConfigDict(extra="ignore")

    meta: Meta = Meta()


def names(files: Iterable[ConfFile]) -> tuple[str, ...]:
    """The names of all configurations, in the order of the files; what cannot be read has none."""
    return tuple(name for name, _ in _named(files))


def text_of(files: Iterable[ConfFile], name: str) -> bytes | None:
    """The first configuration with this `name` inside, as a runtime looks for it."""
    texts = (file.text.encode() for conf_name, file in _named(files) if conf_name == name)
    return next(texts, None)


def load(namespace: str, name: str, text: bytes) -> NetworkDefinition:
    """What the node's configuration `name` means for a pod in `namespace`.

    One that is for a card and names no resource is for the resource that BUILT_IN is for. Raise
    Refused with all of its faults.
    """
    document = read(text, f"CNI configuration {name}")
    meta = validate(_Conf, document).meta
    of_card = meta.ip_ranges_source == "netDeviceSelf"
    if meta.ip_ranges_source == "netDeviceSubnet":
        _refuse_subnet(document)
    # The card's address is given in place of the ranges, so the block has none.
    plain = json.dumps(_without_ipam(document.value)).encode() if of_card else text
    definition = network_definition.load(namespace, name, b"", meta.resource_name, plain)
    if of_card and definition.network.kind is NetworkKind.OTHER:
        raise Refused(
            f"kube-rdma does not serve {definition.network.plugin} itself, so cannot give it "
            "the card's address",
            remedy='Write "type": "host-device" or "kube-rdma", or ipam in place of ipRangesSource',
            where=document.where(("meta", "ipRangesSource")),
        )
    addresses = CardAddresses.REQUIRED if of_card else CardAddresses.STAY
    network = replace(definition.network, card_addresses=addresses)
    if network.kind is NetworkKind.CARD and network.resource is None:
        network = replace(network, resource=RESOURCE)
    return replace(definition, network=network)


def built_in(namespace: str, *, pool: bool) -> NetworkDefinition:
    """The network that is meant where nobody configured one: a share of a card, as its mode says.

    `pool`: there is an IPPool of this name. Without one, or where it has no range for the card's
    rail, a card that moves takes its own addresses along (attach/rules/addresses); any other
    interface needs an address of its entry, or is refused.
    """
    pools = (PoolName(BUILT_IN),) if pool else ()
    network = Network(
        name=f"{namespace}/{BUILT_IN}",
        kind=NetworkKind.CARD,
        source=f"the network {BUILT_IN} of kube-rdma",
        resource=RESOURCE,
        pools=pools,
        card_addresses=CardAddresses.MOVE,
    )
    return NetworkDefinition(network, IpamConf(pools=tuple((None, one) for one in pools)))


def _named(files: Iterable[ConfFile]) -> Iterator[tuple[str, ConfFile]]:
    for file in sorted(files, key=lambda one: one.name.encode()):
        try:
            conf = decoded(file.text)
        except Undecodable:
            continue
        if isinstance(conf, dict) and isinstance(name := conf.get("name"), str):
            yield name, file


def _refuse_subnet(document: Document) -> None:
    raise Refused(
        "the subnet of a card has addresses of other machines, which kube-rdma does not know",
        remedy='Remove it, make an IPPool with what is free, and write "ipam": {"type": '
        '"kube-rdma-ipam", "pool": NAME} into the plugin',
        where=document.where(("meta", "ipRangesSource")),
    )


def _without_ipam(conf: Any) -> Any:
    """The configuration with no ipam, in a lone plugin or in those of a list."""
    bare = {key: value for key, value in conf.items() if key != "ipam"}
    if isinstance(plugins := conf.get("plugins"), list):
        bare["plugins"] = [_without_ipam(one) if isinstance(one, dict) else one for one in plugins]
    return bare
