"""The configuration of one CNI call: a network's document, and what the caller put into it.

A meta-plugin has read the pod's annotation already. What the pod asked for comes in
``runtimeConfig``, ``args.cni`` and ``CNI_ARGS`` (the CNI project's conventions), and for a granted
card in ``deviceID`` (the Network Plumbing Working Group's specification, version 1.3). Here it
becomes the NetworkAsk that an entry of the annotation would be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from ipaddress import ip_interface, ip_network
from typing import Any

from pydantic import ConfigDict, Field

from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.attach.documents import network_definition
from kube_rdma.attach.documents.network_definition import NetworkDefinition
from kube_rdma.attach.documents.networks import Guid, Mac, with_colons
from kube_rdma.ipam import ip_conf
from kube_rdma.ipam.ip_conf import IpamConf
from kube_rdma.lib.text.document import Document, TextPosition, Value
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.go_typed import GoTyped
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.typed import Many
from kube_rdma.model.attach.attachment import AskedAddress, InterfaceAddress, NetworkAsk
from kube_rdma.model.attach.cni import Call
from kube_rdma.model.cni_conf import BUILT_IN
from kube_rdma.model.ipam import Address

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
