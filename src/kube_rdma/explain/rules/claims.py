"""Follows a pod's ResourceClaims, for `kube-rdma explain`: from the claim to the interface.

    pod ─► claim ─► allocation ─► device ─► card ─► booking ─► interface ─► the same Steps

Devices of kube-rdma's own driver are booked by the agent's rules, as if no other claim had any. So
a refusal is in the agent's own words. Of devices of other drivers only the name is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_rdma.attach.rules.claim_networks import granted, holdings, interfaces
from kube_rdma.claims.rules.prepare import NO_PARAMETERS, BookingNode, book, devices_of
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import GrantedShare
from kube_rdma.model.claims.claim import AllocationResult, ClaimDevice, PreparedClaim, ResourceClaim
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.explain import ClaimsEvidence, ExplainedClaim, NodeBasis, PodEvidence
from kube_rdma.model.finding import Finding, Severity, Stage


class PodBookings(Frozen):
    """The claims of a pod that were booked, and why others were refused."""

    prepared: tuple[PreparedClaim, ...] = ()
    refusals: tuple[Finding, ...] = ()


def bookings(seen: ClaimsEvidence, basis: NodeBasis | None) -> PodBookings:
    """Book the pod's allocated claims alone, by the agent's rules; keep refusals.

    Without a node, or without a report of its cards, nothing is booked.
    """
    if basis is None or not basis.reported:
        return PodBookings()
    node = BookingNode(basis.name, "", devices_of(basis.pools))
    prepared: list[PreparedClaim] = []
    refusals: list[Finding] = []
    for claim in seen.allocated:
        if not _own(claim) or claim.claim.uid in seen.misread:
            continue
        parameters = seen.parameters.get(claim.claim.uid, NO_PARAMETERS)
        try:
            prepared.append(book(claim.claim, claim, node, 0.0, parameters))
        except Refused as error:
            refusals += Finding.of_refused(error, Stage.AGENT)
        except KubeError as error:
            text = str(error).removesuffix(".")
            refusals.append(Finding(f"claim {claim.claim}", text, stage=Stage.AGENT))
    return PodBookings(tuple(prepared), tuple(refusals))


def claimed_devices(evidence: PodEvidence) -> tuple[ClaimDevice, ...]:
    """Return the claimed devices that become interfaces of the pod."""
    seen = evidence.claims
    return interfaces(seen.pod, bookings(seen, evidence.basis).prepared) if seen else ()


def claimed_shares(evidence: PodEvidence, basis: NodeBasis) -> tuple[GrantedShare, ...]:
    """Return the shares that the pod holds by its claims."""
    seen = evidence.claims
    if seen is None:
        return ()
    prepared = bookings(seen, basis).prepared
    return granted(holdings(seen.pod, prepared), prepared, basis.by_resource)


def claim_findings(evidence: PodEvidence) -> Iterator[Finding]:
    """Yield Findings about what keeps the pod's claims from being served, missing claims first."""
    seen = evidence.claims
    if seen is None:
        return
    namespace = seen.pod.namespace
    for name in seen.missing:
        yield Finding(
            f"claim {namespace}/{name}",
            "there is no such ResourceClaim",
            remedy="Create it, or name another one in spec.resourceClaims of the pod",
            severity=Severity.WARNING,
            stage=Stage.SCHEDULER,
        )
    for claim in seen.allocated:
        if not claim.devices:
            yield Finding(
                f"claim {claim.claim}",
                "the scheduler has allocated nothing to it yet",
                remedy=f"kube-rdma explain {quote(f'claim/{namespace}/{claim.claim.name}')} "
                "says why",
                severity=Severity.WARNING,
                stage=Stage.SCHEDULER,
            )
    yield from (finding for faults in seen.misread.values() for finding in faults)
    yield from bookings(seen, evidence.basis).refusals


def explained_claims(evidence: PodEvidence) -> Iterator[ExplainedClaim]:
    """Yield each claim of the pod with the devices allocated to it, and the cards behind them."""
    seen = evidence.claims
    if seen is None:
        return
    booked = {one.claim.uid: one for one in bookings(seen, evidence.basis).prepared}
    by_name = {one.claim.name: one for one in seen.allocated}
    made = {ask.held: ask.interface for ask in evidence.asks if ask.held}
    cards = evidence.basis.card_names if evidence.basis else {}
    for word, name in seen.pod.claims:
        claim = by_name.get(name)
        if claim is None:
            yield ExplainedClaim(word, name, "there is no such ResourceClaim")
            continue
        means = [
            f"{one.request}: {one.device} of {one.driver}"
            for one in claim.devices
            if one.driver != DRIVER
        ]
        if prepared := booked.get(claim.claim.uid):
            for share in prepared.shares:
                called = [(card, cards.get(card, card) or card) for card in share.cards]
                names = listed([c if name == c else f"{name} ({c})" for c, name in called])
                interface = made.get((share.resource, share.share))
                more = f", interface {interface} of the pod" if interface else ""
                text = f"{share.request}: {share.device} of {DRIVER}, {names or 'no card'}{more}"
                means.append(text)
        else:
            means += [f"{one.request}: {one.device} of {DRIVER}" for one in _own(claim)]
        yield ExplainedClaim(word, name, "; ".join(means) or "not allocated")


def _own(claim: ResourceClaim) -> list[AllocationResult]:
    return [one for one in claim.devices if one.driver == DRIVER]
