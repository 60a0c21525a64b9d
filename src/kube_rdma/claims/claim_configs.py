"""Where in an object a claim or a class gives parameters to kube-rdma's driver.

Between admission/documents/manifests and claims/objects. ResourceClaims, their templates and
DeviceClasses have their places; in an object of another kind, such as one of an operator that makes
templates, a claim is recognized by its list ``config`` with entries ``opaque``. These fields are
the same in resource.k8s.io/v1, v1beta2 and v1beta1 (k8s.io/api@v0.36.3, resource/*/types.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.claims import parameter_document as parameters
from kube_rdma.lib.text.document import Document, Path, Section, Value, section, shown
from kube_rdma.lib.text.faults import near
from kube_rdma.model.claims.device import DRIVER
from kube_rdma.model.claims.parameters import ClaimParameters

GROUP = "resource.k8s.io"
PLACES: Mapping[str, Path] = {
    "ResourceClaim": ("spec", "devices"),
    "ResourceClaimTemplate": ("spec", "spec", "devices"),
    "DeviceClass": ("spec",),
}
"""Where config stands, by kind."""

_OWN = "kube-rdma.io/"


class WrittenConfig(Frozen):
    """An entry for kube-rdma: the requests that it is for, all if it names none."""

    requests: tuple[str, ...]
    parameters: ClaimParameters
    section: Section  # of the parameters


class WrittenRequest(Frozen):
    """A request, or a subrequest (``main/sub``). `count` is None for all devices."""

    name: str
    count: int | None = 1
    device_class: str = ""


class WrittenClaim(Frozen):
    """What an object asks for; a DeviceClass has no requests."""

    requests: tuple[WrittenRequest, ...]
    configs: tuple[WrittenConfig, ...]


def places(document: Document, group: str, kind: str) -> tuple[Path, ...]:
    """Where claims are described in an object, or in a class their configuration."""
    if group == GROUP:
        return (PLACES[kind],) if kind in PLACES else ()
    return tuple(_search(document.value, ()))


def load(document: Document, place: Path) -> WrittenClaim:
    """The claim at a place; raise Refused with all faults of what is for kube-rdma."""
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
    if faults:
        raise Refused.all(faults)
    return WrittenClaim(requests, tuple(configs))


def _config(
    document: Document, base: Path, entry: Mapping[str, Value], requests: Sequence[WrittenRequest]
) -> WrittenConfig | None:
    """An entry, None for one of another driver."""
    opaque = _fields(entry.get("opaque"))
    driver, value = opaque.get("driver"), _fields(opaque.get("parameters"))
    version = value.get("apiVersion")
    own = isinstance(version, str) and version.startswith(_OWN)
    if driver != DRIVER:
        if own and value.get("kind") == parameters.KIND:
            problem = f"the driver is {shown(driver)}, and these parameters are of {DRIVER}"
            where = document.where((*base, "opaque", "driver"))
            raise Refused(problem, remedy=f"Write driver: {DRIVER}", where=where)
        return None
    names = tuple(one for one in _list(entry.get("requests")) if isinstance(one, str))
    faults = list(_strangers(document, (*base, "requests"), names, requests))
    part = section(document, (*base, "opaque", "parameters"))
    try:
        meant = parameters.of_document(part)
    except Refused as refused:
        raise Refused.all([*faults, refused]) from None
    if faults:
        raise Refused.all(faults)
    return WrittenConfig(names, meant, part)


def _strangers(
    document: Document, base: Path, names: Sequence[str], requests: Sequence[WrittenRequest]
) -> Iterator[Refused]:
    """A fault for each name that is no request."""
    every = dict.fromkeys(
        name for one in requests for name in (one.name.partition("/")[0], one.name)
    )
    for number, name in enumerate(names):
        if name in every:
            continue
        meant = near(name, list(every))
        guess = f"Did you mean {shown(meant)}? " if meant else ""
        remedy = f"{guess}Known: {', '.join(every)}" if every else "Remove it"
        where = document.where((*base, number))
        yield Refused(f"{shown(name)} is no request here", remedy=remedy, where=where)


def _requests(devices: Mapping[str, Value]) -> Iterator[WrittenRequest]:
    """The requests of every version: v1beta1 has the fields of ``exactly`` beside the name."""
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


def _search(value: Value, path: Path) -> Iterator[Path]:
    """The places of lists `config` with entries `opaque`, in the order of the text."""
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
