"""Merges what class and claim say of a device, and finds what contradicts itself in it.

It stands between claims/parameters, which reads one document, and the attachment of a pod.
Kubernetes lists the configuration of the class before that of the claim; the later document wins,
field by field. A check of files sees one document of several, so it looks for contradictions and
clashes alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import NetworkKind
from kube_rdma.model.claims.claim import AskedDevices, ClaimParameters, ParameterFault

_MODES: Mapping[NetworkKind, tuple[str, ...]] = {
    NetworkKind.MACVLAN: ("bridge", "private", "vepa"),
    NetworkKind.IPVLAN: ("l2",),  # in l3 it answers no neighbour, so no RDMA peer finds it
}
_VIRTUAL = (NetworkKind.MACVLAN, NetworkKind.IPVLAN, NetworkKind.IPOIB)
_HARDWARE: Mapping[str, tuple[NetworkKind, ...]] = {
    "mac": (NetworkKind.IPVLAN, NetworkKind.IPOIB),
    "guid": _VIRTUAL,
}
"""Addresses that links of a type have of the card below them (attach/rules/requests)."""

_FIELDS = {"kind": "type", "default_route": "defaultRoute"}
_OF_NETWORKS = ("kind", "mode", "pool")
"""Fields of which a network has its own."""

_BACKED: Mapping[str, tuple[str, ...]] = {
    "addresses": ("network", "pool"),
    "routes": ("network", "pool"),
    "default_route": ("network", "pool"),
    "mac": ("network",),
    "guid": ("network",),
}
"""What a tenant may choose in a claim, and the fields of which one has to be set beside it. A pool
or network is for namespaces, and an IPPool knows addresses, but neither MACs nor GUIDs."""

_OF_ONE_DEVICE = ("interface", "addresses", "mac", "guid")


def field_name(attribute: str) -> str:
    """Return the name that documents use for a field of ClaimParameters."""
    return _FIELDS.get(attribute, attribute)


def merged(parts: Iterable[ClaimParameters]) -> ClaimParameters:
    """Return parameters merged of several documents; a later one overrides single fields."""
    fields: dict[str, object] = {}
    for part in parts:
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if value is not None:
                fields[name] = value
    return ClaimParameters(**fields)  # type: ignore[arg-type]


def covers(requests: Sequence[str], request: str) -> bool:
    """Return whether a config for `requests` applies to the request ``main`` or ``main/sub``.

    ``main`` stands for all its subrequests, and empty `requests` for every request (isMatch,
    k8s.io/dynamic-resource-allocation@v0.36.3 resourceclaim/resourceclaim.go).
    """
    main, _, _ = request.partition("/")
    return not requests or request in requests or main in requests


def contradictions(parameters: ClaimParameters) -> Iterator[ParameterFault]:
    """Yield a fault for each field of the parameters that excludes another of their fields."""
    network, kind, mode = parameters.network, parameters.kind, parameters.mode
    if network is not None:
        for attribute in _OF_NETWORKS:
            if getattr(parameters, attribute) is not None:
                field = field_name(attribute)
                problem = f"the network {network} has its own {field}"
                yield ParameterFault(field, problem, f"Remove {field}, or network")
    elif mode is not None and kind is not None and mode not in _MODES.get(kind, ()):
        modes = _MODES.get(kind)
        problem = f"{mode} is not a mode of type {kind.value}"
        remedy = f"Allowed: {', '.join(modes)}" if modes else "Remove mode"
        yield ParameterFault("mode", problem, remedy)
    for field, kinds in _HARDWARE.items():
        if kind in kinds and getattr(parameters, field) is not None:
            problem = f"links of type {kind} have the {field} of the card below them"
            yield ParameterFault(field, problem, f"Remove {field}, or write another type")


def gaps(parameters: ClaimParameters) -> Iterator[ParameterFault]:
    """Yield a fault for what is missing after all documents are merged."""
    if parameters.network is not None:
        return
    if parameters.mode is not None and parameters.kind is None:
        kind = next(kind for kind, modes in _MODES.items() if parameters.mode in modes)
        problem = f"{parameters.mode} is a mode of type {kind.value}, and no type is given"
        yield ParameterFault("mode", problem, f"Add type: {kind.value}")
    bare = [one.address for one in parameters.addresses or () if one.prefix is None]
    if bare and parameters.pool is None:
        problem = f"the address {bare[0]} has no length, and no pool says it"
        length = 24 if bare[0].version == 4 else 64
        yield ParameterFault("addresses", problem, f'Write "{bare[0]}/{length}", or add a pool')


def unbacked(claim: ClaimParameters, whole: ClaimParameters) -> Iterator[ParameterFault]:
    """Yield a fault for each field of a claim that lacks the network or pool that it needs.

    A DeviceClass may set such fields, as an administrator writes it. `whole` is class and claim
    together.
    """
    for attribute, backers in _BACKED.items():
        if not getattr(claim, attribute) or any(getattr(whole, one) for one in backers):
            continue
        field, names = field_name(attribute), " or ".join(backers)
        problem = f"a claim can say {field} only beside {names}"
        remedy = f"Add {names}, or have the administrator write {field} into the DeviceClass"
        yield ParameterFault(field, problem, remedy)


def clashes(devices: Sequence[AskedDevices]) -> Iterator[tuple[str, ParameterFault]]:
    """Yield faults for names and addresses that two devices of a claim would get.

    Of the subrequests of a request one is allocated, so they share a name without harm.
    """
    for attribute in _OF_ONE_DEVICE:
        takers: dict[str, list[AskedDevices]] = defaultdict(list)
        for asked in devices:
            for text in _texts(getattr(asked.parameters, attribute)):
                takers[text].append(asked)
        for text, asking in takers.items():
            mains = tuple(dict.fromkeys(one.request.partition("/")[0] for one in asking))
            several = next((one for one in asking if one.count != 1), None)
            what = f"{field_name(attribute)} {text}"
            if several is not None:
                count = f"{several.count} devices" if several.count else "all devices"
                problem = f"request {several.request} asks for {count}, and {what} is for one"
                remedy = "Write a request for each device, or leave the field out"
                yield several.request, ParameterFault(field_name(attribute), problem, remedy)
            elif len(mains) > 1:
                problem = f"the requests {listed(mains)} would all get {what}"
                remedy = "Write a config for each request, and name it in requests"
                yield asking[-1].request, ParameterFault(field_name(attribute), problem, remedy)


def _texts(value: object) -> Iterator[str]:
    """Yield a field's values, of which each belongs to one device only, such as addresses."""
    if isinstance(value, tuple):
        yield from (str(one.address) for one in value)
    elif value is not None:
        yield str(value)
