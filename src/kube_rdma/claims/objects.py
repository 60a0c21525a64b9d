"""Objects with parameters for kube-rdma's driver, judged before anybody allocates their devices.

    object ─► claims/claim_configs ─► claims/rules/parameters ─► faults, each at its field

`kube-rdma config check` comes here. What a class and a claim say together is known when a claim is
allocated, so a field that another document may add is not missed.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_base.errors import Refused
from kube_rdma.claims import claim_configs
from kube_rdma.claims.claim_configs import WrittenClaim, WrittenConfig
from kube_rdma.claims.rules.parameters import clashes, contradictions, covers, merged
from kube_rdma.lib.text.document import Document, Path
from kube_rdma.model.claims.parameters import AskedDevices, ParameterFault


def judged(document: Document, place: Path) -> WrittenClaim:
    """The claim at a place of an object; raise Refused with all faults of its parameters."""
    claim = claim_configs.load(document, place)
    faults = dict.fromkeys(_faults(claim))
    if faults:
        raise Refused.all(
            [Refused(problem, remedy=remedy, where=where) for where, problem, remedy in faults]
        )
    return claim


def _faults(claim: WrittenClaim) -> Iterator[tuple[str, str, str]]:
    """Place, problem and remedy of each; requests with the same fault bring it once."""
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
        devices.append(AskedDevices(request.name, request.count, whole))
        for fault in contradictions(whole):
            yield _placed(configs, fault)
    for name, fault in clashes(devices):
        yield _placed(by_request[name], fault)


def _placed(configs: list[WrittenConfig], fault: ParameterFault) -> tuple[str, str, str]:
    """The fault at the last of the documents that say the field."""
    section = next(
        config.section
        for config in reversed(configs)
        if (config.section.value or {}).get(fault.field) is not None  # type: ignore[union-attr]
    )
    return section.where((fault.field,)), fault.problem, fault.remedy
