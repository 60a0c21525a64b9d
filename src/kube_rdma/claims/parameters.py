"""The parameters of an allocated device: what a driver asks before it prepares a claim.

    configuration of the allocation ─► claims/parameter_document ─► claims/rules/parameters ─►
    merged

The API server judges the form of a claim at most, so whatever JSON stands in it is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube_base.errors import Refused
from kube_rdma.claims import parameter_document as parameters
from kube_rdma.claims.rules.parameters import (
    clashes,
    contradictions,
    covers,
    gaps,
    merged,
    unbacked,
)
from kube_rdma.model.claims.device import DRIVER
from kube_rdma.model.claims.parameters import (
    AskedDevices,
    ClaimParameters,
    ConfigOrigin,
    OpaqueConfig,
)
from kube_rdma.model.claims.prepared import AllocatedClaim

_WRITERS = {ConfigOrigin.CLASS: "its DeviceClass", ConfigOrigin.CLAIM: "the claim"}


def parameters_by_request(claim: AllocatedClaim) -> dict[str, ClaimParameters]:
    """By request what class and claim say of its devices; raise Refused with all faults.

    A device that is only looked at (adminAccess) gets no interface, so nothing of it clashes.
    """
    where = f"claim {claim.claim}"
    mine = [one for one in claim.devices if one.driver == DRIVER]
    requests = dict.fromkeys(one.request for one in mine)
    made = {name: parameters_of(claim.configs, name, where) for name in requests}
    given = [one.request for one in mine if not one.admin]
    asked = [AskedDevices(name, given.count(name), made[name]) for name in dict.fromkeys(given)]
    faults = [
        Refused(fault.problem, remedy=fault.remedy, where=f"{where}: request {name}: {fault.field}")
        for name, fault in clashes(asked)
    ]
    if faults:
        raise Refused.all(faults)
    return made


def parameters_of(configs: Iterable[OpaqueConfig], request: str, claim: str) -> ClaimParameters:
    """What class and claim say together of a device that answers `request`.

    `configs` are those of the allocation, of any driver; `claim` names it in messages. Raise
    Refused with all faults.
    """
    parts: dict[ConfigOrigin, list[ClaimParameters]] = {origin: [] for origin in ConfigOrigin}
    faults: list[Refused] = []
    for number, config in enumerate(configs):
        if config.driver != DRIVER or not covers(config.requests, request):
            continue
        where = f"{claim}: parameters of {_WRITERS[config.origin]}, config[{number}]"
        try:
            parts[config.origin].append(parameters.of_bytes(config.parameters, where))
        except Refused as refused:
            faults.append(refused)
    own = merged(parts[ConfigOrigin.CLAIM])
    whole = merged((*parts[ConfigOrigin.CLASS], own))
    if not faults:
        place = f"{claim}: request {request}"
        faults += (
            Refused(fault.problem, remedy=fault.remedy, where=f"{place}: {fault.field}")
            for fault in (*contradictions(whole), *gaps(whole), *unbacked(own, whole))
        )
    if faults:
        raise Refused.all(faults)
    return whole
