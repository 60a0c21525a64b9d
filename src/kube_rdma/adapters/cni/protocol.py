"""Encodes and decodes what shim and agent exchange on a socket; shim/agent.c is the other half.

    request   "krq1" zero, length of environment, length of input; environment; input
    answer    "kra1" exit code, length of output; output

Numbers have 32 bits and are big-endian. The pod's network namespace comes as a descriptor beside
the first byte. The shim closes nothing before it has the answer or gives up. Environment and input,
the configuration, become a Call; results and errors become JSON.

socket.py carries the bytes. A fault of a call is Refused, and the tables PLACES and CODES have the
code of the specification (1.1.0, "Error") that a runtime gets.
"""

from __future__ import annotations

import json
import re
import struct
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import msgspec

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen
from kube_base.plain_text import ended
from kube_rdma.model.attach import cni
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName

MAX_INPUT = 2 << 20  # a pod's annotations are in it, up to 256 KiB with much to escape
MAX_ENVIRONMENT = 1 << 16
MAX_ANSWER = 1 << 20

_REQUEST = struct.Struct(">4sIII")
_ANSWER = struct.Struct(">4sII")
REQUEST_HEADER = _REQUEST.size
ANSWER_HEADER = _ANSWER.size

# Who has to act -> code. A refusal of the call's own form has a code for each place it is found in.
CODES: tuple[tuple[type[KubeError], cni.Code], ...] = (
    (Refused, cni.Code.CONFIGURATION),
    (Unavailable, cni.Code.TRY_AGAIN),
    (Broken, cni.Code.CONTRADICTION),
)
ENVIRONMENT, DOCUMENT, VERSION = "CNI environment", "CNI configuration", "cniVersion"
PLACES = {ENVIRONMENT: cni.Code.ENVIRONMENT, DOCUMENT: cni.Code.DECODE, VERSION: cni.Code.VERSION}

_MOST_MESSAGE, _MOST_DETAILS = 1000, 4000  # characters; with them an error stays below 64 KiB
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_INTERFACE = re.compile(r"(?!\.\.?$)[^/:\s]{1,15}")  # what the kernel takes (dev_valid_name)
_NEEDS = {  # specification 1.1.0, "Parameters"
    cni.Verb.ADD: ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"),
    cni.Verb.CHECK: ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"),
    cni.Verb.DEL: ("CNI_CONTAINERID", "CNI_IFNAME"),
}
_ASK_RUNTIME = "The container runtime has to say it as the CNI specification does"


# The result of an ADD, in the forms of 0.3.0 to 1.1.0. Addresses of both families and Go's nulls
# keep the values of the model from being decoded directly.


class WireInterface(msgspec.Struct):
    """An interface in a CNI result's JSON; all but the first three fields came with 1.1.0."""

    name: str = ""
    mac: str = ""
    sandbox: str = ""
    mtu: int = 0
    socketPath: str = ""  # noqa: N815  names of the wire
    pciID: str = ""  # noqa: N815


class WireIp(msgspec.Struct):
    """An address in a CNI result's JSON; its `version` is not read."""

    address: str
    gateway: str | None = None
    interface: int | None = None


class WireRoute(msgspec.Struct):
    """A route in a CNI result's JSON; all but the first two fields came with 1.1.0."""

    dst: str
    gw: str | None = None
    mtu: int | None = None
    advmss: int | None = None
    priority: int | None = None
    table: int | None = None
    scope: int | None = None


class WireDns(msgspec.Struct):
    """The DNS settings in a CNI result's JSON."""

    nameservers: list[str] | None = None
    domain: str = ""
    search: list[str] | None = None
    options: list[str] | None = None


class WireResult(msgspec.Struct):
    """The JSON of a CNI result, without keys that kube-rdma does not read."""

    interfaces: list[WireInterface] | None = None
    ips: list[WireIp] | None = None
    routes: list[WireRoute] | None = None
    dns: WireDns | None = None


class _OnlyDns(msgspec.Struct):
    dns: WireDns | None = None


def result(wire: WireResult) -> cni.CniResult:
    """Return the CNI result in a JSON value; raise ValueError for malformed addresses."""
    return cni.CniResult(
        tuple(cni.CniInterface(*msgspec.structs.astuple(one)) for one in wire.interfaces or ()),
        tuple(
            cni.LinkAddress(ip_interface(one.address), _gateway(one.gateway), one.interface)
            for one in wire.ips or ()
        ),
        tuple(
            cni.LinkRoute(ip_network(dst, strict=False), _gateway(gw), *others)
            for dst, gw, *others in map(msgspec.structs.astuple, wire.routes or ())
        ),
        _dns(wire.dns),
    )


def decoded_result(document: bytes) -> cni.CniResult:
    """Return a plugin's CNI result, of version 0.3.0 or later; raise ValueError if unreadable.

    A result of an earlier version comes out without interfaces, addresses and routes.
    """
    try:
        return result(decoded(document, WireResult))
    except Undecodable as error:
        raise ValueError(error.why) from error


def dns_of(document: bytes) -> cni.Dns | None:
    """Return the DNS settings of a plugin's answer; None where it has none or cannot be read."""
    try:
        return _dns(decoded(document, _OnlyDns).dns)
    except Undecodable:
        return None  # not in the form of a result


def append(document: dict[str, Any], made: cni.CniResult, version: str) -> None:
    """Add links, addresses and routes to a CNI result, in place, and set its version.

    Its DNS settings are replaced if `made` has some. Addresses that the result has already keep all
    of their fields.
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
        document["ips"] = [
            {"version": str(ip_interface(one["address"]).version), **one} for one in document["ips"]
        ]
    if made.dns:
        document["dns"] = omit_empty(
            nameservers=list(made.dns.nameservers),
            domain=made.dns.domain,
            search=list(made.dns.search),
            options=list(made.dns.options),
        )


def omit_empty(**values: object) -> dict[str, object]:
    """Return the values that are not empty, as Go's omitempty selects them."""
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


def _route(route: cni.LinkRoute, place: int) -> dict[str, object]:
    given: dict[str, object] = {"dst": str(route.to), "gw": str(route.via) if route.via else None}
    if place >= cni.VERSIONS.index("1.1.0"):
        newer = ("mtu", "advmss", "priority", "table", "scope")
        given |= {key: getattr(route, key) for key in newer}
    return {key: value for key, value in given.items() if value is not None}


# The frames of a request and an answer.


class RequestHead(Frozen):
    """The header of the shim's request to the agent: lengths of its parts in bytes."""

    environment: int
    input: int


def request(environment: bytes, input_: bytes) -> bytes:
    """Return the bytes of the shim's request to the agent."""
    head = _REQUEST.pack(b"krq1", 0, len(environment), len(input_))
    return head + environment + input_


def request_head(head: bytes) -> RequestHead | None:
    """Return the header of a shim's request.

    Return None if the bytes are no header, or announce a longer request than is allowed.
    """
    magic, zero, environment, input_ = _REQUEST.unpack(head)
    if magic != b"krq1" or zero:
        return None
    if environment > MAX_ENVIRONMENT or input_ > MAX_INPUT:
        return None
    return RequestHead(environment, input_)


def answer(exit_code: int, output: bytes) -> bytes:
    """Return the bytes of the agent's answer to the shim."""
    return _ANSWER.pack(b"kra1", exit_code, len(output)) + output


def answer_head(head: bytes) -> tuple[int, int] | None:
    """Return exit code and length of the output; None for bytes that no agent sends."""
    magic, exit_code, length = _ANSWER.unpack(head)
    if magic != b"kra1" or exit_code > 255 or length > MAX_ANSWER:
        return None
    return exit_code, length


# The environment and the configuration of a call.


class _Attachment(msgspec.Struct):
    containerID: str = ""  # noqa: N815
    ifname: str = ""


class _Runtime(msgspec.Struct):
    annotations: dict[str, str] | msgspec.UnsetType | None = msgspec.field(
        default=msgspec.UNSET, name=cni.ANNOTATIONS
    )


class _OnlyVersion(msgspec.Struct):
    cniVersion: str = ""  # noqa: N815


class _Config(msgspec.Struct):
    cniVersion: str = ""  # noqa: N815
    name: str = ""
    type: str = cni.PLUGIN
    chain: object = msgspec.field(default=None, name=cni.CHAINED)
    runtimeConfig: _Runtime | None = None  # noqa: N815
    prevResult: WireResult | None = None  # noqa: N815
    valid: list[_Attachment] | None = msgspec.field(default=None, name="cni.dev/valid-attachments")


def decode(environment: bytes, config: bytes, netns: int | None) -> cni.Call:
    """Return the CNI call in a shim's request; `netns` is the descriptor passed with it.

    Raise Refused for what the specification does not allow.
    """
    variables = _variables(environment)
    try:
        verb = cni.Verb(variables.get("CNI_COMMAND", ""))
    except ValueError as error:
        raise _refused("CNI_COMMAND is not one of ADD, DEL, CHECK, GC, STATUS") from error
    try:
        document = decoded(config, _Config)
    except Undecodable as error:
        raise _refused(f"it cannot be read ({error.why})", DOCUMENT) from error
    if document.cniVersion not in cni.VERSIONS:
        raise Refused(
            f"version {document.cniVersion[:20]!r} is not supported",
            remedy=f"Set one of {', '.join(cni.VERSIONS)} in the CNI configuration",
            where=VERSION,
        )
    container, interface = _names(verb, variables)
    if "CNI_NETNS" in _NEEDS.get(verb, ()) and netns is None:
        raise _refused("CNI_NETNS names no file that can be opened")
    pairs = [entry.partition("=") for entry in variables.get("CNI_ARGS", "").split(";") if entry]
    if not all(key and equals for key, equals, _ in pairs):
        raise _refused("CNI_ARGS is not made of NAME=value, with ; between them")
    args = tuple((key, value) for key, _, value in pairs)
    of_pod = dict(args)
    namespace, pod = of_pod.get("K8S_POD_NAMESPACE"), of_pod.get("K8S_POD_NAME")
    try:
        previous = result(document.prevResult) if document.prevResult else None
    except ValueError as error:  # of ipaddress
        raise _refused(f"prevResult cannot be read ({error})", DOCUMENT) from error
    return cni.Call(
        verb=verb,
        version=document.cniVersion,
        network=document.name,
        config=_lean(config, document),
        container=container,
        interface=interface,
        netns=netns,
        netns_path=variables.get("CNI_NETNS", ""),
        pod=PodName(namespace, pod) if namespace and pod else None,
        uid=of_pod.get("K8S_POD_UID", ""),
        args=args,
        previous=previous,
        valid=tuple(
            cni.CniAttachment(ContainerId(one.containerID), InterfaceName(one.ifname))
            for one in document.valid or ()
        ),
        plugin=document.type,
        marked=document.chain is True,
        annotations=_annotations(document),
    )


def encode(call: cni.Call, result: cni.CniResult) -> bytes:
    """Return the result of an ADD in the call's version: its previous result and kube-rdma's.

    A call of kube-rdma's IPAM plugin gets kube-rdma's result alone.
    """
    of_us = call.plugin == cni.PLUGIN
    document: dict[str, Any] = (decoded(call.config).get("prevResult") if of_us else None) or {}
    append(document, result, call.version)
    return json.dumps(document).encode()


def failure(error: KubeError | None, version: str, verb: cni.Verb | None = None) -> bytes:
    """Return an error as CNI's JSON; None stands for an internal error, which the log explains."""
    if error is None:
        code, message = cni.Code.FAULT, "kube-rdma's agent failed with an internal error"
        details = "Look at the log of kube-rdma's pod on this node, and report it."
    elif isinstance(error, Refused):
        code = PLACES.get(error.where, cni.Code.CONFIGURATION)
        message = f"{error.where}: {error.problem}" if error.where else error.problem
        details = "\n".join([ended(error.remedy), *map(str, error.more)])
    else:
        code = next(code for kind, code in CODES if isinstance(error, kind))
        message, details = str(error), ""
        if verb is cni.Verb.STATUS and code is cni.Code.TRY_AGAIN:
            code = cni.Code.NOT_AVAILABLE
    document = {
        "cniVersion": version if version in cni.VERSIONS else "1.0.0",
        "code": int(code),
        "msg": _cut(message, _MOST_MESSAGE),
        **omit_empty(details=_cut(details, _MOST_DETAILS)),
    }
    return json.dumps(document).encode()


def _cut(text: str, most: int) -> str:
    """Return the first `most` characters of a text, with a note on how many were cut, if any."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… (the next {len(text) - most} characters are cut)"


def version_of(config: bytes) -> str:
    """Return the CNI version of a configuration; empty where it cannot be read."""
    try:
        return decoded(config, _OnlyVersion).cniVersion
    except Undecodable:
        return ""


def _refused(problem: str, where: str = ENVIRONMENT) -> Refused:
    return Refused(problem, remedy=_ASK_RUNTIME, where=where)


def _variables(environment: bytes) -> dict[str, str]:
    try:
        entries = environment.decode().split("\0")
    except UnicodeDecodeError as error:
        raise _refused("it is not UTF-8") from error
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _names(verb: cni.Verb, variables: dict[str, str]) -> tuple[ContainerId, InterfaceName]:
    for name in _NEEDS.get(verb, ()):
        if not variables.get(name):
            raise _refused(f"{verb} comes without {name}")
    container, interface = variables.get("CNI_CONTAINERID", ""), variables.get("CNI_IFNAME", "")
    if container and not _CONTAINER.fullmatch(container):
        raise _refused("CNI_CONTAINERID is not made of up to 128 letters, digits and . _ -")
    if interface and not _INTERFACE.fullmatch(interface):
        raise _refused("CNI_IFNAME is not a name that the kernel takes")
    return ContainerId(container), InterfaceName(interface)


def _lean(config: bytes, document: _Config) -> bytes:
    """Return the configuration without the pod's annotations, which the call keeps in a field.

    A pod's author can make only its annotations long, and a call keeps its configuration.
    """
    if _annotations(document) is None:
        return config
    parts = decoded(config, dict[str, msgspec.Raw])
    runtime = decoded(parts["runtimeConfig"], dict[str, msgspec.Raw])
    del runtime[cni.ANNOTATIONS]
    parts["runtimeConfig"] = msgspec.Raw(msgspec.json.encode(runtime))
    return msgspec.json.encode(parts)


def _annotations(document: _Config) -> tuple[tuple[str, str], ...] | None:
    """Return the pod's annotations that kube-rdma's chained entry is passed; None without them."""
    if document.chain is not True or document.runtimeConfig is None:
        return None
    annotations = document.runtimeConfig.annotations
    if isinstance(annotations, msgspec.UnsetType):
        return None
    return tuple(sorted((annotations or {}).items()))
