"""Reads the annotation ``k8s.v1.cni.cncf.io/networks``: the further networks that a pod asks for.

It has two forms: names with commas (``ns/net@ifname, other``), and a JSON list of objects. Both
become one Document, so that both are checked by the same rules and every fault has its place. Form
and meaning follow the Network Plumbing Working Group's specification, version 1.3, and Multus. What
only other plugins can do with an entry is kept for them; attach/rules/requests refuses it for
networks of kube-rdma. Programs in Go write such lists too (lib/text/typed.GoTyped). They ignore an
unknown key. So does this reader, with a warning; it refuses a key that is nearly a field's name.

A list becomes a Document with one field, so that a fault reads like ``networks[2].ips[0]``. In
attach/documents/pod_networks it is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_interface
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from kube_base.errors import MOST_FAULTS, Refused, refuse_all
from kube_base.frozen import Frozen, replace
from kube_rdma.lib.text.document import Document, Path, TextPosition, Value, name, shown
from kube_rdma.lib.text.faults import Slip, near, raise_slips, validate
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.typed import GoTyped, Many, Typed, fields_of
from kube_rdma.lib.text.words import IpAddress, Label, TextForm, address
from kube_rdma.model.attach.attachment import AskedAddress, NetworkAsk
from kube_rdma.model.ipam import InterfaceName

ANNOTATION = "k8s.v1.cni.cncf.io/networks"

MOST = 128
"""The most networks of a pod: each has a routing table from 101 on, the kernel's begin at 253."""

LONGEST = 64 << 10
"""The most bytes of a networks annotation, 512 for each network; the API server takes 256 KiB."""

MOST_VALUES = 1280
"""The most values in the annotation, 10 for each network: each costs microseconds at every ADD."""

MOST_LISTED = 256
"""The most entries in its lists (addresses, ports), two for each network: each costs 20 µs."""

_IN_BRACKETS = (",", "[", "{")  # what values follow in JSON
_IN_LINES = (*_IN_BRACKETS, "\n", "- ", "? ")  # and in YAML without brackets

_IB_KUBERNETES = "mellanox.infiniband.app"
"""What ib-kubernetes writes into the cni-args of an entry when its GUID is known to the fabric."""

_FIELD = "networks"  # what an entry is called in messages: networks[2].ips[0]
_TAKEN = ("lo", "eth0")  # what every pod has before its first further network
_OCTET = "[0-9a-fA-F]{2}"
_HARDWARE = re.compile(f"{_OCTET}(-{_OCTET})*|{_OCTET * 2}([.]{_OCTET * 2})*")
_MOST_GUESSED = 16  # different keys that are compared with those that could be meant
_NEVER_READ = {"ipRequest": "ips", "macRequest": "mac"}
"""Keys that look as if they meant something and name no field, each with the field to write."""


def with_colons(text: str) -> str:
    """Return a MAC or GUID with colons in place of dashes or dots: Go reads all three."""
    if not _HARDWARE.fullmatch(text):
        return text
    digits = text.replace("-", "").replace(".", "")
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


_COLONS = BeforeValidator(lambda value: with_colons(value) if isinstance(value, str) else value)


def _asked(text: str) -> AskedAddress:
    """Return an address with an optional prefix length; raise ValueError for another form."""
    if "/" not in text:
        return AskedAddress(address(text))
    interface = ip_interface(text)
    return AskedAddress(address(str(interface.ip)), interface.network.prefixlen)


OBJECT_NAME = TextForm(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    "the name of an object: lower-case letters, digits, dashes and dots",
    "rdma-net",
)
ObjectName: TypeAlias = Annotated[str, OBJECT_NAME]
PodInterface: TypeAlias = Annotated[
    str,
    TextForm(
        r"(?!\.\.?$)[^\s/:%@]{1,15}",
        "the name of an interface: 1 to 15 characters, none of them a blank or one of / : % @",
        "net1",
    ),
]
Mac: TypeAlias = Annotated[
    str,
    _COLONS,
    TextForm(
        rf"(?!00(:00){{5}}$)[0-9a-fA-F][02468aceACE](:{_OCTET}){{5}}",
        "the MAC address of one interface",
        "02:00:0a:00:00:01",
    ),
]
Guid: TypeAlias = Annotated[
    str,
    _COLONS,
    TextForm(f"{_OCTET}(:{_OCTET}){{7}}", "a GUID of eight octets", "02:00:0a:00:00:00:00:01"),
]
AskedIp: TypeAlias = Annotated[
    AskedAddress, TextForm(_asked, "an IP address, with its length or without", "10.0.0.10/24")
]
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
Rate: TypeAlias = Annotated[int, Field(ge=0)]


class PortMapping(GoTyped):
    """A port mapping: a port of the node leads to a port of the pod."""

    host_port: Port = Field(examples=[8080])
    container_port: Port = Field(examples=[80])
    protocol: str = ""
    host_ip: str = Field("", alias="hostIP")


class Bandwidth(GoTyped):
    """The capability bandwidth of CNI: rates in bits per second, bursts in bits."""

    ingress_rate: Rate = 0
    ingress_burst: Rate = 0
    egress_rate: Rate = 0
    egress_burst: Rate = 0


class NetworkEntry(GoTyped):
    """One entry of a pod's networks annotation."""

    name: ObjectName = Field(examples=["rdma-net"])
    namespace: Label | None = None
    ips: Many[AskedIp] = ()
    mac: Mac | None = None
    guid: Guid | None = Field(None, alias="infiniband-guid")
    interface: PodInterface | None = None
    interface_request: PodInterface | None = None  # the older name of `interface`
    port_mappings: Many[PortMapping] = ()
    bandwidth: Bandwidth | None = None
    device_id: str | None = Field(None, alias="deviceID")
    cni_args: dict[str, Any] = Field({}, alias="cni-args")
    default_route: Many[IpAddress] = Field((), alias="default-route")
    ipam_claim: str = Field("", alias="ipam-claim-reference")

    @property
    def called(self) -> str | None:
        """Return the requested name of the interface; None without one."""
        return self.interface or self.interface_request


_INNER: Mapping[str, type[BaseModel]] = {
    _FIELD: NetworkEntry,
    "portMappings": PortMapping,
    "bandwidth": Bandwidth,
}


class NetworkList(Typed):
    """A pod's networks annotation, as a list in a field, so that entries have a path."""

    networks: Many[NetworkEntry] = Field(examples=[[{"name": "rdma-net"}]])

    @field_validator("networks")
    @classmethod
    def _fit(cls, networks: tuple[NetworkEntry, ...]) -> tuple[NetworkEntry, ...]:
        raise_slips(_clashes(networks))
        return networks


class AnnotationAsks(Frozen):
    """The networks that a pod's annotation asks for, with warnings as sentences."""

    asks: tuple[NetworkAsk, ...] = ()
    warnings: tuple[str, ...] = ()


def asks(text: str, namespace: str, source: str = ANNOTATION) -> tuple[NetworkAsk, ...]:
    """Return the networks that an annotation asks for, without warnings."""
    return load(text, namespace, source).asks


def load(text: str, namespace: str, source: str = ANNOTATION) -> AnnotationAsks:
    """Return the networks and warnings of the annotation of a pod in `namespace`.

    Raise Refused with all faults of it. A text of blanks asks for nothing.
    """
    if not text.strip():
        return AnnotationAsks()
    _refuse_long(text, source)
    # What Multus looks for too: no name has one of these.
    is_json = any(each in text for each in '[{"')
    if not is_json:
        _refuse_many(text.count(",") + 1, source)
    document = entries(text, source, _FIELD) if is_json else _of_names(text, source)
    strays = _Strays()
    filtered = replace(document, value=_filtered(document.value, NetworkList, (), strays))
    networks = validate(NetworkList, filtered).networks
    warnings = list(strays.warnings(document))
    for number, entry in enumerate(networks):
        if entry.ipam_claim:
            where = document.where((_FIELD, number, "ipam-claim-reference"), key=True)
            warnings.append(f"{where}: only plugins that read it themselves heed it")
    asked = tuple(_ask(number, entry, namespace) for number, entry in enumerate(networks))
    return AnnotationAsks(asked, tuple(warnings))


class _Entries(Document):
    """A document with one list, in a field whose name messages show unquoted, even with dashes."""

    field: str

    def where(self, path: Path, *, key: bool = False) -> str:
        place = self.place(path, key=key)
        at = f"{self.source}:{place.line}:{place.column}"
        return f"{at}: {self.field}{name(path[1:])}" if path else at


def entries(text: str, source: str, field: str) -> Document:
    """Return the list in an annotation as a document; raise Refused if malformed or too long."""
    _refuse_long(text, source)
    try:
        document = read(text.encode(), source)
    except Refused as error:
        faults = []
        for fault in (error, *error.more):
            place, path, entry = fault.where.removeprefix(source).partition(": [")
            where = f"{source}{place}: {field}[{entry}" if path else fault.where
            faults.append(Refused(fault.problem, remedy=fault.remedy, where=where))
        raise Refused.all(faults) from None
    if isinstance(document.value, list):
        _refuse_many(len(document.value), source)
        if (count := sum(map(_listed, document.value))) > MOST_LISTED:
            problem = f"its lists have {count} entries, of which {MOST_LISTED} are read"
            raise Refused(problem, remedy="Ask for fewer addresses and routes", where=source)
    places = {(): TextPosition(1, 1), **_below(field, document.values)}
    return _Entries(source, {field: document.value}, places, _below(field, document.keys), field)


def _refuse_long(text: str, source: str) -> None:
    """Raise Refused for a text with too many bytes or values, before it is read."""
    if (size := len(text.encode())) > LONGEST:
        problem = f"the annotation has {size} bytes, of which {LONGEST} are read"
        raise Refused(problem, remedy="Say less in each network", where=source)
    signs = _IN_BRACKETS if text.lstrip()[:1] in {"[", "{"} else _IN_LINES
    if (count := sum(map(text.count, signs))) > MOST_VALUES:
        problem = f"the annotation has {count} values, of which {MOST_VALUES} are read"
        raise Refused(problem, remedy="Say less in each network", where=source)


def _refuse_many(count: int, source: str) -> None:
    """Raise Refused for too many networks, before each of them is checked."""
    if count > MOST:
        remedy = f"Ask for {MOST} or fewer"
        raise Refused(f"these are {count} networks", remedy=remedy, where=source)


def _listed(value: Value) -> int:
    """Return how many entries all nested lists have together."""
    own = len(value) if isinstance(value, list) else 0
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return own + sum(map(_listed, inside))


def _below(field: str, places: dict[Path, TextPosition]) -> dict[Path, TextPosition]:
    return {(field, *path): place for path, place in places.items()}


class _Strays:
    """Keys of entries that are no field's, nor nearly: they are ignored, with a warning.

    Of very many different keys only the first are compared with the names of fields.
    """

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self._judged: dict[tuple[type[BaseModel], str], bool] = {}
        self._guessed = 0

    def has(self, key: str, model: type[BaseModel], names: Sequence[str]) -> bool:
        """Return whether a key is a stray, which names no field of the model, nor nearly one."""
        if (model, key) not in self._judged:
            is_meant = key in names and key not in _NEVER_READ
            if not is_meant and key not in _NEVER_READ:
                self._guessed += 1
                is_meant = self._guessed <= _MOST_GUESSED and bool(near(key, names))
            self._judged[model, key] = not is_meant
        return self._judged[model, key]

    def warnings(self, document: Document) -> Iterator[str]:
        """Yield a sentence for each stray key; beyond the first ones only their number."""
        for path in self.paths[:MOST_FAULTS]:
            name = _NEVER_READ.get(str(path[-1]))
            where, meant = document.where(path, key=True), f"; write {name}" if name else ""
            yield f"{where}: there is no such field, it is ignored{meant}"
        if (count := len(self.paths) - MOST_FAULTS) > 0:
            yield f"{document.source}: {count} more fields are ignored"


def _filtered(value: Value, model: type[BaseModel], path: Path, strays: _Strays) -> Value:
    """Return an object without stray keys, whose paths are added to `strays`."""
    if not isinstance(value, dict):
        return value
    names = [one.alias or name for name, one in model.model_fields.items()]
    fields: dict[str, Value] = {}
    for key, field_value in fields_of(model, value).items():
        if strays.has(key, model, names):
            strays.paths.append((*path, key))
            continue
        inner = _INNER.get(key)
        if inner and isinstance(field_value, list):
            parts = enumerate(field_value)
            fields[key] = [_filtered(one, inner, (*path, key, at), strays) for at, one in parts]
        elif inner:
            fields[key] = _filtered(field_value, inner, (*path, key), strays)
        else:
            fields[key] = field_value
    return fields


def _of_names(text: str, source: str) -> Document:
    """Return names separated by commas as a document: the list that they stand for."""
    entries: list[Value] = []
    places: dict[Path, TextPosition] = {(): TextPosition(1, 1), (_FIELD,): TextPosition(1, 1)}
    faults = []
    at = 0
    for number, part in enumerate(text.split(",")):
        begin = at + len(part) - len(part.lstrip())
        line = text.count("\n", 0, begin) + 1
        place = TextPosition(line, begin - text.rfind("\n", 0, begin))
        places[(_FIELD, number)] = place
        name, sign, interface = (piece.strip() for piece in part.partition("@"))
        space, slash, object_name = (piece.strip() for piece in name.rpartition("/"))
        entry: dict[str, Value] = {"name": object_name}
        entry |= {"namespace": space} if slash else {}
        entry |= {"interface": interface} if sign else {}
        entries.append(entry)
        if not object_name:
            where = f"{source}:{place.line}:{place.column}: {_FIELD}[{number}]"
            problem = f"{shown(part.strip())} names no network"
            remedy = "Write names with commas between: rdma-net, other/net@net5"
            faults.append(Refused(problem, remedy=remedy, where=where))
        at += len(part) + 1
    refuse_all(faults)
    return Document(source, {_FIELD: entries}, places, {})


def _clashes(networks: tuple[NetworkEntry, ...]) -> Iterator[Slip]:
    first: dict[str, int] = {}
    for number, entry in enumerate(networks):
        old, new = entry.interface_request, entry.interface
        if old and new and old != new:
            problem = f"interface says {shown(new)}, interfaceRequest {shown(old)}"
            yield Slip(problem, "Keep interface", (number, "interfaceRequest"))
        name = _interface(number, entry)
        if name in _TAKEN:
            problem = f"every pod has an interface {name} already"
            remedy = f"Write another name, or none for net{number + 1}"
            yield Slip(problem, remedy, (number, "interface"))
        if (other := first.setdefault(name, number)) != number:
            problem = f"{_FIELD}[{other}] has the interface {name} too"
            yield Slip(problem, "Give each its own name", (number, "interface"))


def _interface(number: int, entry: NetworkEntry) -> InterfaceName:
    return InterfaceName(entry.called or f"net{number + 1}")


def _ask(number: int, entry: NetworkEntry, namespace: str) -> NetworkAsk:
    ports = [each.model_dump(by_alias=True, exclude_unset=True) for each in entry.port_mappings]
    rates = entry.bandwidth.model_dump(by_alias=True, exclude_unset=True) if entry.bandwidth else {}
    capabilities = {"portMappings": ports, "bandwidth": rates}
    guid = entry.cni_args.get("guid")
    return NetworkAsk(
        namespace=entry.namespace or namespace,
        network=entry.name,
        interface=_interface(number, entry),
        source=f"{_FIELD}[{number}]",
        addresses=entry.ips,
        mac=entry.mac.lower() if entry.mac else None,
        guid=entry.guid.lower() if entry.guid else None,
        default_routes=entry.default_route,
        device_id=entry.device_id or None,
        argued_guid=with_colons(guid).lower() if isinstance(guid, str) and guid else None,
        configured=entry.cni_args.get(_IB_KUBERNETES) == "configured",
        arguments=json.dumps(entry.cni_args).encode(),
        capabilities=tuple(
            (key, json.dumps(each).encode()) for key, each in capabilities.items() if each
        ),
    )
