"""The result of a CNI ADD on the wire, in the forms of 0.3.0 to 1.1.0: read and written here alone.

Between the callers' documents (protocol), what other plugins answer (exec/protocol) and the values
of model/attach/cni. From 0.3.0 to 0.4.0 a result has one form, in which each address says its
family; 1.0.0 took that away, and 1.1.0 added the keys that no older reader gets.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import msgspec

from kube_base.foreign_json import Undecodable
from kube_base.foreign_json import decoded as decoded_json
from kube_rdma.model.attach import cni


class WireInterface(msgspec.Struct):
    """An interface; all but the first three are of 1.1.0."""

    name: str = ""
    mac: str = ""
    sandbox: str = ""
    mtu: int = 0
    socketPath: str = ""  # noqa: N815  names of the wire
    pciID: str = ""  # noqa: N815


class WireIp(msgspec.Struct):
    """An address. Its `version` is not read: the address says it too."""

    address: str
    gateway: str | None = None
    interface: int | None = None


class WireRoute(msgspec.Struct):
    """A route; all but the first two are of 1.1.0."""

    dst: str
    gw: str | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


class WireDns(msgspec.Struct):
    """How names are resolved."""

    nameservers: list[str] | None = None
    domain: str = ""
    search: list[str] | None = None
    options: list[str] | None = None


class WireResult(msgspec.Struct):
    """A result, without the keys that nobody here reads."""

    interfaces: list[WireInterface] | None = None
    ips: list[WireIp] | None = None
    routes: list[WireRoute] | None = None
    dns: WireDns | None = None


class _OnlyDns(msgspec.Struct):
    dns: WireDns | None = None


def result(wire: WireResult) -> cni.CniResult:
    """The value; raise ValueError for addresses that are none."""
    return cni.CniResult(
        tuple(
            cni.CniInterface(one.name, one.mac, one.sandbox, one.mtu, one.socketPath, one.pciID)
            for one in wire.interfaces or ()
        ),
        tuple(
            cni.LinkAddress(ip_interface(one.address), _gateway(one.gateway), one.interface)
            for one in wire.ips or ()
        ),
        tuple(
            cni.LinkRoute(
                ip_network(one.dst, strict=False),
                _gateway(one.gw),
                one.mtu,
                one.advmss,
                one.priority,
                one.table,
                one.scope,
            )
            for one in wire.routes or ()
        ),
        _dns(wire.dns),
    )


def decoded(document: bytes) -> cni.CniResult:
    """What a plugin answered, in a form from 0.3.0 on; raise ValueError for anything else."""
    try:
        return result(decoded_json(document, WireResult))
    except Undecodable as error:
        raise ValueError(error.why) from error


def dns_of(document: bytes) -> cni.Dns | None:
    """How a plugin's answer wants names to be resolved, whatever else is in it; None: unsaid."""
    try:
        return _dns(decoded_json(document, _OnlyDns).dns)
    except Undecodable:
        return None  # a form older than 0.3.0


def append(document: dict[str, Any], made: cni.CniResult, version: str) -> None:
    """Put what was made behind what is in a result, which becomes one of this version.

    Addresses that are in it keep all that they say.
    """
    place = cni.VERSIONS.index(version)
    before = len(document.get("interfaces") or ())
    document["cniVersion"] = version
    added = {
        "interfaces": [_interface(link, place) for link in made.links],
        "ips": [_ip(address, before) for address in made.addresses],
        "routes": [_route(route, place) for route in made.routes],
    }
    for key, values in added.items():
        if values:
            document[key] = [*(document.get(key) or ()), *values]
    if place < cni.VERSIONS.index("1.0.0") and document.get("ips"):
        document["ips"] = [{"version": _family(one), **one} for one in document["ips"]]
    if made.dns:
        document["dns"] = omit_empty(
            nameservers=list(made.dns.nameservers),
            domain=made.dns.domain,
            search=list(made.dns.search),
            options=list(made.dns.options),
        )


def omit_empty(**values: object) -> dict[str, object]:
    """Those that say anything, as Go's omitempty has it."""
    return {key: value for key, value in values.items() if value not in (None, "", [], 0)}


def _dns(wire: WireDns | None) -> cni.Dns | None:
    if wire is None or wire == WireDns():
        return None
    lists = (wire.nameservers, wire.search, wire.options)
    nameservers, search, options = (tuple(one or ()) for one in lists)
    return cni.Dns(nameservers, wire.domain, search, options)


def _gateway(text: str | None) -> Any:
    return ip_address(text) if text else None


def _interface(link: cni.CniInterface, place: int) -> dict[str, object]:
    newer = {"mtu": link.mtu, "socketPath": link.socket_path, "pciID": link.pci}
    return {
        "name": link.name,
        **omit_empty(mac=link.mac, sandbox=link.sandbox),
        **(omit_empty(**newer) if place >= cni.VERSIONS.index("1.1.0") else {}),
    }


def _ip(address: cni.LinkAddress, before: int) -> dict[str, object]:
    out: dict[str, object] = {"address": str(address.address)}
    if address.gateway:
        out["gateway"] = str(address.gateway)
    if address.link is not None:
        out["interface"] = before + address.link
    return out


def _family(ip: dict[str, Any]) -> str:
    """What `version` of an address has to say before 1.0.0."""
    return str(ip_interface(ip["address"]).version)


def _route(route: cni.LinkRoute, place: int) -> dict[str, object]:
    out: dict[str, object] = {"dst": str(route.to)}
    if route.via:
        out["gw"] = str(route.via)
    if place >= cni.VERSIONS.index("1.1.0"):
        for key in ("mtu", "advmss", "priority", "table", "scope"):
            if (value := getattr(route, key)) is not None:
                out[key] = value
    return out
