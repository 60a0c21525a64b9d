"""What a pod has by its claims, in the terms in which shares of a device plugin are held.

    pod's claims ─┐
    journal ──────┴► Holding ─► GrantedShare ─► the same attach, IPAM and settings rules

The kubelet prepares a claim once, however many pods use it, so the pod itself tells which claims it
has (spec.resourceClaims, status.resourceClaimStatuses, status.extendedResourceClaimStatus). A claim
that no container names is the pod's all the same: networks are asked for that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.errors import Unavailable
from kube_rdma.model.attach.attachment import GrantedShare
from kube_rdma.model.claims.prepared import ClaimShare, PreparedClaim
from kube_rdma.model.claims.users import PodClaims
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.pools.pool import Attach, Pool
from kube_rdma.pools.rules.modes import terms

NOBODY = ""  # the container of a share that no container names


def claims_of(pod: PodClaims, prepared: Iterable[PreparedClaim]) -> tuple[PreparedClaim, ...]:
    """The bookings of the pod's claims.

    Of two with one name, whose older one the kubelet has yet to give back, it is the one that was
    reserved for this pod, else the later one.
    """
    names = {claim for _, claim in pod.claims}
    mine: dict[str, PreparedClaim] = {}
    for booking in sorted(prepared, key=lambda claim: (_is_reserved(claim, pod), claim.when)):
        if booking.claim.namespace == pod.namespace and booking.claim.name in names:
            mine[booking.claim.name] = booking
    return tuple(mine[name] for name in sorted(mine))


def holdings(pod: PodClaims, prepared: Iterable[PreparedClaim]) -> tuple[Holding, ...]:
    """What the pod's containers hold by claims, share by share.

    A share that several containers name is held by each of them; that of a request for
    administrators (adminAccess) is held by nobody, for no network is attached to it.
    """
    return tuple(
        Holding(pod.namespace, pod.name, container, share.resource, (share.share,))
        for claim in claims_of(pod, prepared)
        for share in claim.shares
        if not share.admin
        for container in _containers(pod, claim, share)
    )


def node_holdings(
    prepared: Iterable[PreparedClaim], pods: Mapping[str, PodClaims]
) -> tuple[Holding, ...]:
    """What is held on the node by claims; pods are by uid.

    A claim whose pods are not known is held by whom it was reserved for when it was prepared, and
    by a pod of the claim's own name where that says nothing: a card that is booked is not free.
    """
    listed = tuple(prepared)
    held = {one for pod in pods.values() for one in holdings(pod, listed)}
    seen = {(one.resource, share) for one in held for share in one.shares}
    for claim in listed:
        names = [user.name for user in claim.users if user.resource == "pods"] or [claim.claim.name]
        held |= {
            Holding(claim.claim.namespace, name, NOBODY, share.resource, (share.share,))
            for share in claim.shares
            if not share.admin and (share.resource, share.share) not in seen
            for name in names
        }
    return tuple(sorted(held, key=lambda one: (one.namespace, one.pod, one.container, one.shares)))


def granted(
    held: Sequence[Holding], prepared: Iterable[PreparedClaim], pools: Mapping[str, Pool]
) -> tuple[GrantedShare, ...]:
    """The shares among these that are held by claims, each once, with the cards as they are now.

    Raise Unavailable for one whose pool or card is not on this node now: without it a network would
    be attached to another card. Shares of a device plugin are not looked at.
    """
    booked = {(s.resource, s.share): s for claim in prepared for s in claim.shares}
    shares = {
        (one.resource, share): one.container
        for one in reversed(held)
        for share in reversed(one.shares)
        if (one.resource, share) in booked
    }
    return tuple(
        _granted(booked[key], container, pools)
        for key, container in reversed(tuple(shares.items()))
    )


def _granted(share: ClaimShare, container: str, pools: Mapping[str, Pool]) -> GrantedShare:
    pool = pools.get(share.resource)
    if pool is None:
        raise Unavailable(f"{share.resource} is not allocatable on this node now.")
    row = terms(pool.spec)
    by_id = {card.id: card for card in pool.cards}
    lost = [name for name in share.cards if name not in by_id]
    if lost and len(lost) == len(share.cards):
        raise Unavailable(f"{share.resource} has no card {', '.join(lost)} on this node now.")
    early = row.attach is Attach.NONE
    return GrantedShare(
        container=container,
        resource=share.resource,
        share=share.share,
        cards=tuple(by_id[name] for name in share.cards if name in by_id),
        mode=pool.spec.mode,
        bind=row.bind,
        early=early,
        char_paths=share.char_paths if early else (),
        slots=share.slots,
        device_files=pool.spec.device_files,
    )


def _is_reserved(claim: PreparedClaim, pod: PodClaims) -> bool:
    return any(user.uid == pod.uid for user in claim.users)


def _containers(pod: PodClaims, claim: PreparedClaim, share: ClaimShare) -> Iterator[str]:
    """The containers that name the share's request, or NOBODY."""
    own_names = {name for name, real in pod.claims if real == claim.claim.name}
    request = share.request.partition("/")[0]
    users = [
        use.container for use in pod.uses if use.claim in own_names and use.request in ("", request)
    ]
    yield from dict.fromkeys(users) or (NOBODY,)
