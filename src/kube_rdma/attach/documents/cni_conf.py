"""A network that is named by a CNI configuration: of the node, or the one that needs none.

The annotation k8s.volcengine.com/pod-networks names networks so. A configuration means what it
means in a NetworkAttachmentDefinition (network_definition), and may have Cello's block ``meta``
besides: to which resource it belongs, and whether its addresses are those of the card.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from ipaddress import ip_interface, ip_network
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from kube_base.errors import Refused
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.attach.documents import network_definition
from kube_rdma.attach.documents.network_definition import NetworkDefinition
from kube_rdma.attach.documents.networks import Guid, Mac, with_colons
from kube_rdma.ipam import ip_conf
from kube_rdma.ipam.ip_conf import IpamConf
from kube_rdma.lib.text.document import Document, TextPosition, Value
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.typed import GoTyped, Many, Typed
from kube_rdma.lib.text.words import Resource
from kube_rdma.model.attach.attachment import (
    AskedAddress,
    CardAddresses,
    InterfaceAddress,
    Network,
    NetworkAsk,
    NetworkKind,
)
from kube_rdma.model.attach.cni import BUILT_IN, Call, ConfFile
from kube_rdma.model.ipam import Address, PoolName
from kube_rdma.pools.documents.config import LABEL_RESOURCE

DEFAULT_NETWORK = "rdma"
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
        network = replace(network, resource=LABEL_RESOURCE)
    return replace(definition, network=network)


def built_in(namespace: str, *, pool: bool) -> NetworkDefinition:
    """The network that is meant where nobody configured one: a share of a card, as its mode says.

    `pool`: there is an IPPool of this name. Without one, or where it has no range for the card's
    rail, a card that moves takes its own addresses along (attach/rules/addresses); any other
    interface needs an address of its entry, or is refused.
    """
    pools = (PoolName(DEFAULT_NETWORK),) if pool else ()
    network = Network(
        name=f"{namespace}/{DEFAULT_NETWORK}",
        kind=NetworkKind.CARD,
        source=f"the network {DEFAULT_NETWORK} of kube-rdma",
        resource=LABEL_RESOURCE,
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


# The configuration of one CNI call: a network's document, and what the caller put into it.

_FIRST_TABLE = 100  # of Cello: the interface at place n of its list has routing table 100 + n
_FOR_OTHERS = ("portMappings", "bandwidth")


class _Loose(GoTyped):
    """What the caller's part has besides is for other plugins."""

    model_config = ConfigDict(extra="ignore")


class _CalledRuntime(_Loose):
    ips: Many[str] = ()
    mac: Mac | None = None
    guid: Guid | None = Field(None, alias="infinibandGUID")
    device_id: str = Field("", alias="deviceID")
    device_info: str = Field("", alias="CNIDeviceInfoFile")


class _OldArgs(_Loose):
    mac: Mac | None = Field(None, alias="MAC")


class _CalledCniArgs(_Loose):
    ips: Many[str] = ()
    guid: str = ""
    configured: str = Field("", alias="mellanox.infiniband.app")


class _CalledArgs(_Loose):
    cni: _CalledCniArgs = _CalledCniArgs.model_construct()


class _Called(_Loose):
    runtime_config: _CalledRuntime = _CalledRuntime.model_construct()
    args: _CalledArgs = _CalledArgs()
    device_id: str = Field("", alias="deviceID")
    master: str = ""


class PodNetworksBlock(Frozen):
    """A block of ``k8s.volcengine.com/pod-networks``: its network, and what Cello makes of it."""

    network: str
    interface: str
    table: int


def network(call: Call, name: str, resource: str | None) -> tuple[NetworkDefinition, NetworkAsk]:
    """The network `namespace/name` that kube-rdma is called for, and what the pod asks of it.

    `resource` is that of its document. Raise Refused with all faults of the configuration.
    """
    namespace, _, own_name = name.partition("/")
    definition = network_definition.load(namespace, own_name, call.config, resource)
    document = read(call.config, definition.network.source)
    conf = validate(_Called, document)
    runtime = conf.runtime_config
    addresses = passed_on = _asked(_texts(call, conf), document)
    if definition.ipam.yields:
        definition, addresses = _of_static(call, definition, document, conf)
    return definition, NetworkAsk(
        namespace=namespace,
        network=own_name,
        interface=call.interface,
        source=definition.network.source,
        addresses=addresses,
        passed_on=passed_on,
        mac=runtime.mac or _mac(call),
        guid=runtime.guid,
        argued_guid=with_colons(conf.args.cni.guid).lower() or None,
        configured=conf.args.cni.configured == "configured",
        device_id=runtime.device_id or conf.device_id or None,
        capabilities=_for_others(call.config),
    )


def addresses(call: Call) -> tuple[IpamConf, tuple[Address, ...], str | None]:
    """What another plugin asks for: the meaning of its ipam block, the addresses that the pod asks

    for, and the card or interface of the node that the plugin works on, where it says one. Raise
    Refused with all faults.
    """
    document = read(call.config, f"network {call.network}")
    conf = validate(_Called, document)
    wanted = ip_conf.requested_addresses(
        (), _texts(call, conf), document.where(("runtimeConfig", "ips"))
    )
    device = conf.runtime_config.device_id or conf.device_id or conf.master
    return ip_conf.load(document), wanted, device or None


def device_info_file(call: Call) -> str:
    """Where the caller wants to hear of the device (CNIDeviceInfoFile); empty for nowhere."""
    document = read(call.config, f"network {call.network}")
    return validate(_Called, document).runtime_config.device_info


def ipam_plugin(call: Call) -> str:
    """The IPAM plugin of others that a configuration names; empty for none."""
    return ip_conf.foreign(read(call.config, f"network {call.network}"))


def plugin_type(config: bytes) -> str:
    """The type of the plugin that makes the interface; empty for what is not a configuration."""
    document = _object(config)
    plugins = document.get("plugins", [document])
    first = plugins[0] if isinstance(plugins, list) and plugins else None
    return str(first.get("type", "")) if isinstance(first, dict) else ""


def network_name(config: bytes) -> str:
    """The name inside of a configuration; empty for none."""
    return _text(_object(config).get("name"))


def resource(config: bytes) -> str | None:
    """The resource that Cello's block ``meta`` of a configuration names."""
    meta = _object(config).get("meta")
    return _text(meta.get("resourceName")) or None if isinstance(meta, dict) else None


def is_built_in(config: bytes) -> bool:
    """Whether it is the configuration `rdma` that kube-rdma installs, with its own meaning."""
    return _object(config).get(BUILT_IN) is True


def blocks(text: str) -> tuple[PodNetworksBlock, ...]:
    """What Cello calls for this annotation, in its order; nothing for what it does not understand.

    The cluster's own network is at place 0, whether a block names it or not.
    """
    try:
        listed = decoded(text)
    except Undecodable:
        return ()
    entries = listed if isinstance(listed, list) else []
    first = 0 if entries and _dict(entries[0]).get("master") is True else 1
    return tuple(
        PodNetworksBlock(
            _text(_dict(_dict(one).get("cniConf")).get("name")),
            _text(_dict(_dict(one).get("deviceConf")).get("ifName")) or f"eth{place}",
            _FIRST_TABLE + place,
        )
        for place, one in enumerate(entries, first)
    )


def _object(config: bytes) -> dict[str, Any]:
    try:
        return _dict(decoded(config))
    except Undecodable:
        return {}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(call: Call, conf: _Called) -> tuple[str, ...]:
    """Every address that is asked for, from all of the places where it may stand, each once."""
    args = (text for key, value in call.args if key == "IP" for text in value.split(","))
    texts: Iterable[str] = (*args, *conf.args.cni.ips, *conf.runtime_config.ips)
    return tuple(dict.fromkeys(text.strip() for text in texts))


def _of_static(
    call: Call, definition: NetworkDefinition, document: Document, conf: _Called
) -> tuple[NetworkDefinition, tuple[AskedAddress, ...]]:
    """The network, and what is asked of it, by the rules of static.

    runtimeConfig comes in place of args, and each of them in place of what the document and
    CNI_ARGS say. CNI_ARGS add addresses, and tell the gateway of those in whose subnet it is.
    """
    network = definition.network
    if in_place := conf.runtime_config.ips or conf.args.cni.ips:
        asked = _asked(in_place, document)
        return replace(definition, network=replace(network, static=())), asked
    asked = _asked(_texts(call, conf), document)
    added = (InterfaceAddress(one.address, one.prefix) for one in asked if one.prefix is not None)
    static = tuple(_with_gateway(one, call) for one in (*network.static, *added))
    without_length = tuple(one for one in asked if one.prefix is None)
    return replace(definition, network=replace(network, static=static)), without_length


def _with_gateway(address: InterfaceAddress, call: Call) -> InterfaceAddress:
    texts = [text for key, value in call.args if key == "GATEWAY" for text in value.split(",")]
    gateways = ip_conf.requested_addresses((), texts, f"CNI_ARGS of network {call.network}")
    subnet = ip_network((address.address, address.prefix), strict=False)
    inside = [gateway for gateway in gateways if gateway in subnet]
    return replace(address, gateway=inside[-1]) if inside else address


def _mac(call: Call) -> str | None:
    """As Multus passes it on to plugins that declare no capability."""
    arguments: Value = {key: value for key, value in call.args if key == "MAC"}
    document = Document(
        f"CNI_ARGS of network {call.network}", arguments, {(): TextPosition(1, 1)}, {}
    )
    return validate(_OldArgs, document).mac


def _asked(texts: Iterable[str], document: Document) -> tuple[AskedAddress, ...]:
    where = document.where(("runtimeConfig", "ips"))
    asked = []
    for text in dict.fromkeys(text.strip() for text in texts):
        (address,) = ip_conf.requested_addresses((), (text,), where)
        length = ip_interface(text).network.prefixlen if "/" in text else None
        asked.append(AskedAddress(address, length))
    return tuple(asked)


def _for_others(config: bytes) -> tuple[tuple[str, bytes], ...]:
    runtime = decoded(config).get("runtimeConfig") or {}
    return tuple((key, json.dumps(runtime[key]).encode()) for key in _FOR_OTHERS if key in runtime)
