"""Reads CNI configurations: of the node by name, the built-in one, and that of one CNI call.

The annotation k8s.volcengine.com/pod-networks names networks by the node's configurations. A
configuration means what it means in a NetworkAttachmentDefinition (network_definition). It may also
have Cello's block ``meta``, which says its resource, and whether its addresses are the card's. A
call brings its network's document and what the caller put into it.
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
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import (
    AskedAddress,
    CardAddresses,
    InterfaceAddress,
    NetworkAsk,
)
from kube_rdma.model.attach.cni import BUILT_IN, Call, ConfFile
from kube_rdma.model.ipam import Address, PoolName
from kube_rdma.pools.documents.config import LABEL_RESOURCE

DEFAULT_NETWORK = "rdma"
"""The network that needs no configuration; an IPPool of this name gives it addresses."""


_EMPTY = BeforeValidator(lambda value: None if value == "" else value)  # as in Go


class Meta(Typed):
    """The block `meta` of a CNI configuration, which Cello's meta plugin reads."""

    resource_name: Annotated[Resource | None, _EMPTY] = None
    ip_ranges_source: Annotated[Literal["netDeviceSelf", "netDeviceSubnet"] | None, _EMPTY] = None


class _Conf(Typed):
    """A CNI configuration, of which only the block `meta` is read: it is not for plugins."""

    model_config = ConfigDict(extra="ignore")

    meta: Meta = Meta()


def names(files: Iterable[ConfFile]) -> tuple[str, ...]:
    """Return the names in readable CNI configurations, in the order of the files' names."""
    return tuple(name for name, _ in _named(files))


def text_of(files: Iterable[ConfFile], name: str) -> bytes | None:
    """Return the first CNI configuration whose field `name` has this value; None without one."""
    texts = (file.text.encode() for conf_name, file in _named(files) if conf_name == name)
    return next(texts, None)


def load(namespace: str, name: str, text: bytes) -> NetworkDefinition:
    """Return the network in the node's CNI configuration `name`, for a pod in `namespace`.

    A network of type kube-rdma that names no resource is for LABEL_RESOURCE, as the built-in one
    is. Raise Refused with all of its faults.
    """
    document = read(text, f"CNI configuration {name}")
    meta = validate(_Conf, document).meta
    of_card = meta.ip_ranges_source == "netDeviceSelf"
    if meta.ip_ranges_source == "netDeviceSubnet":
        raise Refused(
            "the subnet of a card has addresses of other machines, which kube-rdma does not know",
            remedy='Remove it, make an IPPool with what is free, and write "ipam": {"type": '
            '"kube-rdma-ipam", "pool": NAME} into the plugin',
            where=document.where(("meta", "ipRangesSource")),
        )
    # The card's address is given in place of the ranges, so the block has none.
    plain = json.dumps(_without_ipam(document.value)).encode() if of_card else text
    definition = network_definition.load(namespace, name, b"", meta.resource_name, plain)
    if of_card and isinstance(definition.network, kinds.ForeignNetwork):
        raise Refused(
            f"kube-rdma does not serve {definition.network.plugin} itself, so cannot give it "
            "the card's address",
            remedy='Write "type": "host-device" or "kube-rdma", or ipam in place of ipRangesSource',
            where=document.where(("meta", "ipRangesSource")),
        )
    addresses = CardAddresses.REQUIRED if of_card else CardAddresses.STAY
    network = replace(definition.network, card_addresses=addresses)
    if isinstance(network, kinds.CardNetwork) and network.resource is None:
        network = replace(network, resource=LABEL_RESOURCE)
    return replace(definition, network=network)


def built_in(namespace: str, *, pool: bool) -> NetworkDefinition:
    """Return the network that needs no configuration: a share's card, used as its mode says.

    `pool`: an IPPool named `rdma` exists. Without a range for the card's rail in it, a card that
    moves brings its own addresses (attach/rules/addresses). Any other interface for RoCE needs an
    address of its entry, or is refused.
    """
    pools = (PoolName(DEFAULT_NETWORK),) if pool else ()
    network = kinds.CardNetwork(
        name=f"{namespace}/{DEFAULT_NETWORK}",
        source=f"the network {DEFAULT_NETWORK} of kube-rdma",
        resource=LABEL_RESOURCE,
        pools=pools,
        card_addresses=CardAddresses.MOVE,
    )
    return NetworkDefinition(network, IpamConf(pools=tuple((None, one) for one in pools)))


def _named(files: Iterable[ConfFile]) -> Iterator[tuple[str, ConfFile]]:
    here = (one for one in files if "/" not in one.name)  # the rest are parts of a list
    for file in sorted(here, key=lambda one: one.name.encode()):
        try:
            conf = decoded(file.text)
        except Undecodable:
            continue
        if isinstance(conf, dict) and isinstance(name := conf.get("name"), str):
            yield name, file


def _without_ipam(conf: Any) -> Any:
    """Return a configuration, single or list, without the field ipam."""
    bare = {key: value for key, value in conf.items() if key != "ipam"}
    if isinstance(plugins := conf.get("plugins"), list):
        bare["plugins"] = [_without_ipam(one) if isinstance(one, dict) else one for one in plugins]
    return bare


# The configuration of one CNI call.

_FIRST_TABLE = 100  # of Cello: the interface at place n of its list has routing table 100 + n
_FOR_OTHERS = ("portMappings", "bandwidth")


class _PartialConf(GoTyped):
    """The fields of a caller's configuration that kube-rdma reads."""

    model_config = ConfigDict(extra="ignore")


class _CalledRuntime(_PartialConf):
    ips: Many[str] = ()
    mac: Mac | None = None
    guid: Guid | None = Field(None, alias="infinibandGUID")
    device_id: str = Field("", alias="deviceID")
    device_info: str = Field("", alias="CNIDeviceInfoFile")


class _OldArgs(_PartialConf):
    mac: Mac | None = Field(None, alias="MAC")


class _CalledCniArgs(_PartialConf):
    ips: Many[str] = ()
    guid: str = ""
    configured: str = Field("", alias="mellanox.infiniband.app")


class _CalledArgs(_PartialConf):
    cni: _CalledCniArgs = _CalledCniArgs.model_construct()


class _Called(_PartialConf):
    runtime_config: _CalledRuntime = _CalledRuntime.model_construct()
    args: _CalledArgs = _CalledArgs()
    device_id: str = Field("", alias="deviceID")
    master: str = ""


class PodNetworksBlock(Frozen):
    """A block of ``k8s.volcengine.com/pod-networks``, as Cello calls for it."""

    network: str
    interface: str
    table: int


def network(call: Call, name: str, resource: str | None) -> tuple[NetworkDefinition, NetworkAsk]:
    """Return the network `namespace/name` of a meta-plugin's call, and the pod's request for it.

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
    others = decoded(call.config).get("runtimeConfig") or {}
    # The MAC that Multus passes on to plugins that declare no capability.
    arguments: Value = {key: value for key, value in call.args if key == "MAC"}
    place = f"CNI_ARGS of network {call.network}"
    old = Document(place, arguments, {(): TextPosition(1, 1)}, {})
    return definition, NetworkAsk(
        namespace=namespace,
        network=own_name,
        interface=call.interface,
        source=definition.network.source,
        addresses=addresses,
        passed_on=passed_on,
        mac=runtime.mac or validate(_OldArgs, old).mac,
        guid=runtime.guid,
        argued_guid=with_colons(conf.args.cni.guid).lower() or None,
        configured=conf.args.cni.configured == "configured",
        device_id=runtime.device_id or conf.device_id or None,
        capabilities=tuple(
            (key, json.dumps(others[key]).encode()) for key in _FOR_OTHERS if key in others
        ),
    )


def addresses(call: Call) -> tuple[IpamConf, tuple[Address, ...], str | None]:
    """Return another plugin's ipam block, the addresses that the pod asks for, and the device.

    The device is the card or interface of the node that the plugin works on, where it names one.
    Raise Refused with all faults.
    """
    document = read(call.config, f"network {call.network}")
    conf = validate(_Called, document)
    where = document.where(("runtimeConfig", "ips"))
    wanted = ip_conf.requested_addresses((), _texts(call, conf), where)
    device = conf.runtime_config.device_id or conf.device_id or conf.master
    return ip_conf.load(document), wanted, device or None


def device_info_file(call: Call) -> str:
    """Return the path for the device info file that the caller asks for; empty for none."""
    document = read(call.config, f"network {call.network}")
    return validate(_Called, document).runtime_config.device_info


def ipam_plugin(call: Call) -> str:
    """Return the IPAM plugin of others that a call's configuration names; empty for none."""
    return ip_conf.foreign(read(call.config, f"network {call.network}"))


def plugin_type(config: bytes) -> str:
    """Return the type of a configuration's first plugin, which makes the interface; or empty."""
    document = _object(config)
    plugins = document.get("plugins", [document])
    first = plugins[0] if isinstance(plugins, list) and plugins else None
    return str(first.get("type", "")) if isinstance(first, dict) else ""


def network_name(config: bytes) -> str:
    """Return the field `name` of a configuration; empty without one."""
    return _text(_object(config).get("name"))


def resource(config: bytes) -> str | None:
    """Return the resource in a configuration's block ``meta`` (Cello's); None without one."""
    meta = _object(config).get("meta")
    return _text(meta.get("resourceName")) or None if isinstance(meta, dict) else None


def is_built_in(config: bytes) -> bool:
    """Return whether a configuration is `rdma`, which kube-rdma installs."""
    return _object(config).get(BUILT_IN) is True


def blocks(text: str) -> tuple[PodNetworksBlock, ...]:
    """Return the blocks of a pod-networks annotation as Cello calls for them, in its order.

    Return nothing for a text that is no list. The cluster's own network is at place 0, whether a
    block names it or not.
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
    """Return all addresses that a call asks for, each once."""
    args = (text for key, value in call.args if key == "IP" for text in value.split(","))
    texts: Iterable[str] = (*args, *conf.args.cni.ips, *conf.runtime_config.ips)
    return tuple(dict.fromkeys(text.strip() for text in texts))


def _of_static(
    call: Call, definition: NetworkDefinition, document: Document, conf: _Called
) -> tuple[NetworkDefinition, tuple[AskedAddress, ...]]:
    """Return the network and the requested addresses, by the rules of the CNI plugin static.

    runtimeConfig overrides args, and either overrides the document and CNI_ARGS. CNI_ARGS add
    addresses, and the gateway of those in whose subnet it is.
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


def _asked(texts: Iterable[str], document: Document) -> tuple[AskedAddress, ...]:
    where = document.where(("runtimeConfig", "ips"))
    asked = []
    for text in dict.fromkeys(text.strip() for text in texts):
        (address,) = ip_conf.requested_addresses((), (text,), where)
        length = ip_interface(text).network.prefixlen if "/" in text else None
        asked.append(AskedAddress(address, length))
    return tuple(asked)
