"""Reads the parameters for kube-rdma's driver that stand in claims, templates and classes.

    configuration of an allocation ─► parameters_by_request ─► claims/prepared_claims books them
    objects in files               ─► places, judged        ─► admission reports their faults

What class and claim say together is merged and judged by claims/rules/parameters. The API server
judges the form of a claim at most, so whatever JSON stands in it is judged here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from kube_base.errors import Refused, refuse_all
from kube_base.frozen import Frozen
from kube_rdma.attach.documents.network_definition import Mtu
from kube_rdma.attach.documents.networks import AskedIp, Guid, Mac, PodInterface
from kube_rdma.claims.rules.parameters import (
    clashes,
    contradictions,
    covers,
    gaps,
    merged,
    unbacked,
)
from kube_rdma.lib.text.document import Document, Path, Section, Value, of_json, section, shown
from kube_rdma.lib.text.faults import Slip, near, raise_slips, slips, validate
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.lib.text.words import Cidr, IpAddress, Label, TextForm
from kube_rdma.model.attach.attachment import AskedAddress, NetworkKind, NetworkRoute
from kube_rdma.model.claims import claim as model
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.ipam import InterfaceName, PoolName

# One document, as people write it.

API_VERSION = "kube-rdma.io/v1alpha1"
KIND = "ClaimParameters"

MOST_LISTED = 16
"""The most addresses, and the most routes: a status takes 16 (NetworkDeviceDataMaxIPs)."""

_OBJECT = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_TAKEN = ("lo", "eth0")  # what every pod has before its first further interface

NETWORK = TextForm(
    rf"([a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?/)?(?=[^/]{{1,253}}$){_OBJECT}",
    "the name of a network, with its namespace or without",
    "team-a/rdma-net",
    longest=63 + 1 + 253,
)
NetworkText: TypeAlias = Annotated[str, NETWORK]
_Few = Field(max_length=MOST_LISTED)


class ClaimRoute(Typed):
    """A route through the interface."""

    dst: Cidr = Field(examples=["10.0.0.0/8"])
    """dst is the subnet that the route leads to. Example: 10.0.0.0/8."""
    gw: IpAddress | None = None
    """gw is the address of the next router. Left out: the gateway of the interface's address.
    Example: 10.0.0.1.
    """

    @model_validator(mode="after")
    def _one_family(self) -> ClaimRoute:
        if self.gw is not None and self.gw.version != self.dst.version:
            problem = (
                f"{self.gw} is IPv{self.gw.version}, the destination {self.dst} "
                f"IPv{self.dst.version}"
            )
            raise slips(Slip(problem, "Write a gateway of the same family", ("gw",)))
        return self


class ClaimParametersObject(Typed):
    """ClaimParameters say what a device of a ResourceClaim becomes in the pod. ClaimParameters
    stand below opaque.parameters in the config of a ResourceClaim, a ResourceClaimTemplate or a
    DeviceClass. A field of the claim wins over the same field of the class.
    """

    api_version: Literal["kube-rdma.io/v1alpha1"]
    """apiVersion is kube-rdma.io/v1alpha1."""
    kind: Literal["ClaimParameters"]
    """kind is ClaimParameters."""
    network: NetworkText | None = None
    """network is the NetworkAttachmentDefinition that the interface belongs to, with or without its
    namespace. If no namespace is written, the network is in that of the claim. Left out: no
    network; type, mode and pool describe the interface. Example: team-a/rdma-net.
    """
    type: Literal["kube-rdma", "macvlan", "ipvlan", "ipoib", "host-device"] | None = None
    """type is how the device comes into the pod, as in a CNI configuration. kube-rdma follows the
    mode of the pool that the device is from. type cannot stand beside network. Left out: kube-rdma.
    """
    mode: Literal["bridge", "private", "vepa", "l2"] | None = None
    """mode is that of the virtual interface: bridge, private or vepa of type macvlan, l2 of type
    ipvlan. mode cannot stand beside network. Left out: bridge, or l2.
    """
    interface: PodInterface | None = None
    """interface is the name of the interface in the pod, of 1 to 15 characters. Left out: net1,
    net2 and so on. Example: rdma0.
    """
    mtu: Mtu | None = None
    """mtu is the largest packet of the interface in bytes, at most that of the card. 0 is that of
    the card. Left out: that of the network, else that of the card. Example: 9000.
    """
    pool: Label | None = None
    """pool is the IPPool that the interface gets its addresses from. pool cannot stand beside
    network. Left out: the network's pool, if any. Example: rail-0.
    """
    addresses: Annotated[Many[AskedIp], _Few] | None = None
    """addresses are the addresses that the interface gets, at most 16. With pool they are addresses
    of that pool. In a claim, addresses need pool or network. In a DeviceClass with neither, each
    address needs its prefix length. Left out: those that the pool chooses. Example: 10.0.0.10/24.
    """
    routes: Annotated[Many[ClaimRoute], _Few] | None = None
    """routes lead through the interface, at most 16, and win over those of the network and the pool
    to the same subnet. A default route is in the table of the interface alone. In a claim, routes
    need pool or network. Left out: no further routes.
    """
    default_route: bool | None = None
    """defaultRoute is true if the pod's default route leads to the gateway of this interface. In a
    claim, defaultRoute needs pool or network. Left out: false.
    """
    mac: Mac | None = None
    """mac is the MAC address of the interface. In a claim, mac needs network. Left out: that of the
    network, or of a card that moves into the pod, else the kernel chooses it. Example:
    02:00:0a:00:00:01.
    """
    guid: Guid | None = None
    """guid is the GUID of an InfiniBand interface, eight octets. In a claim, guid needs network.
    Left out: that of the network, else that of the device. Example: 02:00:0a:00:00:00:00:01.
    """

    @field_validator("interface")
    @classmethod
    def _is_free(cls, interface: str | None) -> str | None:
        if interface in _TAKEN:
            problem = f"every pod has an interface {interface} already"
            raise slips(Slip(problem, "Write another name, such as rdma0"))
        return interface

    @field_validator("addresses")
    @classmethod
    def _differ(cls, addresses: tuple[AskedAddress, ...] | None) -> tuple[AskedAddress, ...] | None:
        written = [one.address for one in addresses or ()]
        twice = (n for n, one in enumerate(written) if one in written[:n])
        problem = "the address stands here twice"
        raise_slips(Slip(problem, "Remove one of the two", (n,)) for n in twice)
        return addresses

    def value(self) -> model.ClaimParameters:
        """Return the parameters as the model's ClaimParameters."""
        namespace, _, network = (self.network or "").rpartition("/")
        routes = self.routes
        return model.ClaimParameters(
            network=model.NetworkReference(network, namespace or None) if network else None,
            kind=NetworkKind(self.type) if self.type else None,
            mode=self.mode,
            interface=InterfaceName(self.interface) if self.interface else None,
            mtu=self.mtu,
            pool=PoolName(self.pool) if self.pool else None,
            addresses=self.addresses,
            routes=None if routes is None else tuple(NetworkRoute(r.dst, r.gw) for r in routes),
            default_route=self.default_route,
            mac=self.mac.lower() if self.mac else None,
            guid=self.guid.lower() if self.guid else None,
        )


def of_document(document: Document) -> model.ClaimParameters:
    """Return the claim parameters of a document; raise Refused for faults."""
    text = json.dumps(document.value, separators=(",", ":"), ensure_ascii=False)
    _refuse_long(len(text.encode(errors="surrogatepass")), document.where(()))
    return validate(ClaimParametersObject, document).value()


def of_bytes(data: bytes, source: str) -> model.ClaimParameters:
    """Return the claim parameters of a JSON text; raise Refused for faults.

    `source` names the text in messages.
    """
    _refuse_long(len(data), source)
    return validate(ClaimParametersObject, of_json(data, source)).value()


def _refuse_long(size: int, where: str) -> None:
    if size > model.MOST_PARAMETERS:
        problem = f"the parameters have {size} bytes, and Kubernetes takes {model.MOST_PARAMETERS}"
        raise Refused(problem, remedy="Write fewer addresses and routes", where=where)


# The configuration of an allocation: all documents of class and claim, together.

_WRITERS = {model.ConfigOrigin.CLASS: "its DeviceClass", model.ConfigOrigin.CLAIM: "the claim"}


def parameters_by_request(claim: model.ResourceClaim) -> dict[str, model.ClaimParameters]:
    """Return by request the parameters that class and claim give; raise Refused for faults.

    A device that is only looked at (adminAccess) gets no interface, so nothing of it clashes.
    """
    where = f"claim {claim.claim}"
    mine = [one for one in claim.devices if one.driver == DRIVER]
    requests = dict.fromkeys(one.request for one in mine)
    made = {name: parameters_of(claim.configs, name, where) for name in requests}
    given = [one.request for one in mine if not one.admin]
    asked = [
        model.AskedDevices(name, given.count(name), made[name]) for name in dict.fromkeys(given)
    ]
    refuse_all(
        Refused(fault.problem, remedy=fault.remedy, where=f"{where}: request {name}: {fault.field}")
        for name, fault in clashes(asked)
    )
    return made


def parameters_of(
    configs: Iterable[model.OpaqueConfig], request: str, claim: str
) -> model.ClaimParameters:
    """Return the parameters that class and claim give for a device of this request.

    `configs` has the configurations of the allocation, of any driver; `claim` stands in messages.
    Raise Refused for faults.
    """
    parts: dict[model.ConfigOrigin, list[model.ClaimParameters]] = {
        origin: [] for origin in model.ConfigOrigin
    }
    faults: list[Refused] = []
    for number, config in enumerate(configs):
        if config.driver != DRIVER or not covers(config.requests, request):
            continue
        where = f"{claim}: parameters of {_WRITERS[config.origin]}, config[{number}]"
        try:
            parts[config.origin].append(of_bytes(config.parameters, where))
        except Refused as refused:
            faults.append(refused)
    own = merged(parts[model.ConfigOrigin.CLAIM])
    whole = merged((*parts[model.ConfigOrigin.CLASS], own))
    if not faults:
        place = f"{claim}: request {request}"
        faults += (
            Refused(fault.problem, remedy=fault.remedy, where=f"{place}: {fault.field}")
            for fault in (*contradictions(whole), *gaps(whole), *unbacked(own, whole))
        )
    refuse_all(faults)
    return whole


# Objects that have parameters, judged before anybody allocates their devices.

GROUP = "resource.k8s.io"
PLACES: Mapping[str, Path] = {
    "ResourceClaim": ("spec", "devices"),
    "ResourceClaimTemplate": ("spec", "spec", "devices"),
    "DeviceClass": ("spec",),
}
"""The path to the fields requests and config in an object, by its kind."""

_OWN = "kube-rdma.io/"


class WrittenConfig(Frozen):
    """A config entry for kube-rdma's driver in an object, with its place in the text."""

    requests: tuple[str, ...]  # that it is for; none: all
    parameters: model.ClaimParameters
    section: Section  # of the parameters


class WrittenRequest(Frozen):
    """A request or subrequest of a claim in an object, with its class."""

    name: str  # of a subrequest main/sub
    count: int | None = 1  # None: all devices
    device_class: str = ""


class WrittenClaim(Frozen):
    """A claim in an object of a file: its requests and configs; a DeviceClass has no requests."""

    requests: tuple[WrittenRequest, ...]
    configs: tuple[WrittenConfig, ...]


def places(document: Document, group: str, kind: str) -> tuple[Path, ...]:
    """Return the paths in an object below which requests and config of claims or classes stand."""
    if group == GROUP:
        return (PLACES[kind],) if kind in PLACES else ()
    return tuple(_search(document.value, ()))


def load(document: Document, place: Path) -> WrittenClaim:
    """Return the claim at this path; raise Refused for faults of its configs for kube-rdma."""
    devices = _fields(section(document, place).value)
    requests = tuple(_requests(devices))
    configs: list[WrittenConfig] = []
    faults: list[Refused] = []
    for number, entry in enumerate(_list(devices.get("config"))):
        base = (*place, "config", number)
        try:
            config = _config(document, base, _fields(entry), requests)
        except Refused as refused:
            faults.append(refused)
        else:
            configs += (config,) if config else ()
    refuse_all(faults)
    return WrittenClaim(requests, tuple(configs))


def _config(
    document: Document, base: Path, entry: Mapping[str, Value], requests: Sequence[WrittenRequest]
) -> WrittenConfig | None:
    """Return a config entry for kube-rdma, None for another driver's; raise Refused for faults."""
    opaque = _fields(entry.get("opaque"))
    driver, value = opaque.get("driver"), _fields(opaque.get("parameters"))
    version = value.get("apiVersion")
    own = isinstance(version, str) and version.startswith(_OWN)
    if driver != DRIVER:
        if own and value.get("kind") == KIND:
            problem = f"the driver is {shown(driver)}, and these parameters are of {DRIVER}"
            where = document.where((*base, "opaque", "driver"))
            raise Refused(problem, remedy=f"Write driver: {DRIVER}", where=where)
        return None
    names = tuple(one for one in _list(entry.get("requests")) if isinstance(one, str))
    faults = list(_strangers(document, (*base, "requests"), names, requests))
    part = section(document, (*base, "opaque", "parameters"))
    try:
        meant = of_document(part)
    except Refused as refused:
        raise Refused.all([*faults, refused]) from None
    refuse_all(faults)
    return WrittenConfig(names, meant, part)


def _strangers(
    document: Document, base: Path, names: Sequence[str], requests: Sequence[WrittenRequest]
) -> Iterator[Refused]:
    """Yield a fault for each name in a config that is none of the claim's requests."""
    whole = [one.name for one in requests]
    every = dict.fromkeys(name for one in whole for name in (one.partition("/")[0], one))
    for number, name in enumerate(names):
        if name in every:
            continue
        meant = near(name, list(every))
        guess = f"Did you mean {shown(meant)}? " if meant else ""
        remedy = f"{guess}Known: {', '.join(every)}" if every else "Remove it"
        where = document.where((*base, number))
        yield Refused(f"{shown(name)} is no request here", remedy=remedy, where=where)


def _requests(devices: Mapping[str, Value]) -> Iterator[WrittenRequest]:
    """Yield the named requests of a claim; for one with firstAvailable, its subrequests."""
    for entry in map(_fields, _list(devices.get("requests"))):
        name = entry.get("name")
        if not isinstance(name, str):
            continue
        subrequests = [_fields(one) for one in _list(entry.get("firstAvailable"))]
        if not subrequests:
            yield _request(name, _fields(entry.get("exactly")) or entry)
        for part in subrequests:
            if isinstance(sub := part.get("name"), str):
                yield _request(f"{name}/{sub}", part)


def _request(name: str, fields: Mapping[str, Value]) -> WrittenRequest:
    count, device_class = fields.get("count"), fields.get("deviceClassName")
    number = count if isinstance(count, int) and count > 0 else 1
    every = fields.get("allocationMode") == "All"
    named = device_class if isinstance(device_class, str) else ""
    return WrittenRequest(name, None if every else number, named)


def selectors(document: Document, place: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield class ("" if none is named), CEL expression and path of each selector."""
    yield from _selectors(section(document, place).value, place, "")


def _selectors(value: Value, path: Path, device_class: str) -> Iterator[tuple[str, str, Path]]:
    for number, entry in enumerate(_list(value)):
        yield from _selectors(entry, (*path, number), device_class)
    fields = _fields(value)
    named = str(fields.get("deviceClassName", device_class))
    if isinstance(expression := _fields(fields.get("cel")).get("expression"), str):
        yield named, expression, (*path, "cel", "expression")
    for field, inner in fields.items():
        yield from _selectors(inner, (*path, field), named)


def _search(value: Value, path: Path) -> Iterator[Path]:
    """Yield the paths of objects that have a `config` with `opaque` entries, in text order."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _search(entry, (*path, number))
    if not isinstance(value, dict):
        return
    if any(isinstance(_fields(one).get("opaque"), dict) for one in _list(value.get("config"))):
        yield path
        return
    for field, inner in value.items():
        yield from _search(inner, (*path, field))


def _fields(value: Value) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}


def _list(value: Value) -> Sequence[Value]:
    return value if isinstance(value, list) else ()


def judged(document: Document, place: Path) -> WrittenClaim:
    """Return the claim at this path; raise Refused for faults of its parameters."""
    claim = load(document, place)
    faults = dict.fromkeys(_faults(claim))
    refuse_all(Refused(problem, remedy=remedy, where=where) for where, problem, remedy in faults)
    return claim


def _faults(claim: WrittenClaim) -> Iterator[tuple[str, str, str]]:
    """Yield place, problem and remedy of contradictions and clashes in a claim; some repeat."""
    if not claim.requests:
        for config in claim.configs:
            for fault in contradictions(config.parameters):
                yield _placed([config], fault)
        return
    devices = []
    by_request: dict[str, list[WrittenConfig]] = {}
    for request in claim.requests:
        configs = [one for one in claim.configs if covers(one.requests, request.name)]
        whole = merged(one.parameters for one in configs)
        by_request[request.name] = configs
        devices.append(model.AskedDevices(request.name, request.count, whole))
        for fault in contradictions(whole):
            yield _placed(configs, fault)
    for name, fault in clashes(devices):
        yield _placed(by_request[name], fault)


def _placed(configs: list[WrittenConfig], fault: model.ParameterFault) -> tuple[str, str, str]:
    """Return a fault with its place: the last config that sets the field."""
    section = next(
        config.section
        for config in reversed(configs)
        if (config.section.value or {}).get(fault.field) is not None  # type: ignore[union-attr]
    )
    return section.where((fault.field,)), fault.problem, fault.remedy
