"""Expresses a pod's claims as shares that it holds, and as entries of an annotation.

    pod's claims ─┐
    journal ──────┴► Holding ─► GrantedShare ─► the same attach, IPAM and settings rules

The kubelet prepares a claim once, however many pods use it, so the pod itself says which claims it
has (spec.resourceClaims, status.resourceClaimStatuses, status.extendedResourceClaimStatus). A claim
that no container names is the pod's all the same: it may be there for a network alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import GrantedShare, Network, NetworkAsk, NetworkKind
from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.card import Card
from kube_rdma.model.claims.claim import (
    ClaimDevice,
    ClaimShare,
    NetworkReference,
    PodClaims,
    PreparedClaim,
)
from kube_rdma.model.holdings import Holding
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pools import Attach, Pool, ShareId
from kube_rdma.pools.rules.modes import terms

NOBODY = ""  # the container of a share that no container names


def claims_of(pod: PodClaims, prepared: Iterable[PreparedClaim]) -> tuple[PreparedClaim, ...]:
    """Return the prepared claims of the pod.

    Two may have one name, when the kubelet has yet to give the older one back. Then the claim that
    was reserved for this pod counts, else the later one.
    """
    names = {claim for _, claim in pod.claims}
    mine: dict[str, PreparedClaim] = {}
    for booking in sorted(
        prepared, key=lambda claim: (any(user.uid == pod.uid for user in claim.users), claim.when)
    ):
        if booking.claim.namespace == pod.namespace and booking.claim.name in names:
            mine[booking.claim.name] = booking
    return tuple(mine[name] for name in sorted(mine))


def holdings(pod: PodClaims, prepared: Iterable[PreparedClaim]) -> tuple[Holding, ...]:
    """Return the shares that each container of the pod holds by claims.

    A share that several containers name is held by each of them. One with adminAccess is left out,
    for no network is attached to it.
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
    """Return the shares that claims hold on the node, without adminAccess; `pods` are by uid.

    A claim whose pods are unknown is held by those for whom it was reserved when it was prepared.
    Without any it is held by a pod of the claim's own name: a booked card is not free.
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
    """Return the shares that are held by claims, each once, with their present cards.

    Raise Unavailable for one whose pool, or all of whose cards, are not on this node now. Without
    it a network would be attached to another card. Shares of a device plugin are left out.
    """
    booked = {(s.resource, s.share): s for claim in prepared for s in claim.shares}
    shares = {
        (one.resource, share): one.container
        for one in reversed(held)
        for share in reversed(one.shares)
        if (one.resource, share) in booked
    }
    in_order = reversed(tuple(shares.items()))
    return tuple(_granted(booked[key], container, pools) for key, container in in_order)


def _granted(share: ClaimShare, container: str, pools: Mapping[str, Pool]) -> GrantedShare:
    pool = pools.get(share.resource)
    if pool is None:
        raise Unavailable(f"{share.resource} is not allocatable on this node now.")
    by_id = {card.id: card for card in pool.cards}
    lost = [name for name in share.cards if name not in by_id]
    if lost and len(lost) == len(share.cards):
        raise Unavailable(f"{share.resource} has no card {', '.join(lost)} on this node now.")
    cards = tuple(by_id[name] for name in share.cards if name in by_id)
    whole = granted_share(container, pool, share.share, cards)
    paths = share.char_paths if whole.early else ()
    return replace(whole, char_paths=paths, slots=share.slots)


def granted_share(
    container: str, pool: Pool, share: ShareId, cards: tuple[Card, ...]
) -> GrantedShare:
    """Return a share of the pool as a grant, with the settings that all of its shares have."""
    row = terms(pool.spec)
    return GrantedShare(
        container=container,
        resource=pool.spec.resource,
        share=share,
        cards=cards,
        mode=pool.spec.mode,
        bind=row.bind,
        early=row.attach is Attach.NONE,
        device_files=pool.spec.device_files,
    )


def _containers(pod: PodClaims, claim: PreparedClaim, share: ClaimShare) -> Iterator[str]:
    """Yield the containers that name the share's request; NOBODY if none does."""
    own_names = {name for name, real in pod.claims if real == claim.claim.name}
    request = share.request.partition("/")[0]
    uses = (use for use in pod.uses if use.claim in own_names)
    users = [use.container for use in uses if use.request in ("", request)]
    yield from dict.fromkeys(users) or (NOBODY,)


# Interfaces by the parameters of claims, beside those of the annotation.

_UNNAMED = InterfaceName("")


def interfaces(pod: PodClaims, prepared: Iterable[PreparedClaim]) -> tuple[ClaimDevice, ...]:
    """Return the devices of the pod's claims for which it gets interfaces, in the pod's order."""
    by_name = {one.claim.name: one for one in claims_of(pod, prepared)}
    names = dict.fromkeys(name for _, name in pod.claims if name in by_name)
    shares = ((by_name[name].claim, share) for name in names for share in by_name[name].shares)
    return tuple(ClaimDevice(claim, share) for claim, share in shares if share.makes_interface)


def refuse_uncalled(prepared: PreparedClaim, wiring: Wiring) -> None:
    """Raise an error for a claim with an interface that nobody calls the agent to make.

    It is Refused behind a meta-plugin, which calls the agent for the networks of the annotation
    alone. It is Unavailable while nobody calls the agent.
    """
    share = next((one for one in prepared.shares if one.makes_interface), None)
    if share is None or wiring is Wiring.CHAIN:
        return
    where = ClaimDevice(prepared.claim, share).source
    if wiring is Wiring.NONE:
        raise Unavailable(
            f"{where}: its parameters ask for an interface, and kube-rdma is not in the CNI "
            "configuration of this node yet. Wait until it is; the kubelet tries again."
        )
    raise Refused(
        "its parameters ask for an interface, and on this node a meta-plugin (Multus) calls "
        "kube-rdma only for networks that the pod's annotation names",
        remedy="Remove the parameters from class and claim, and name the network in "
        "k8s.v1.cni.cncf.io/networks",
        where=where,
    )


def ask_of(device: ClaimDevice) -> NetworkAsk:
    """Return the network entry that a claim's device stands for, as if it were annotated.

    An interface without a name gets one later.
    """
    wanted, share = device.share.parameters, device.share
    network = wanted.network or NetworkReference(_own_name(device))
    return NetworkAsk(
        namespace=network.namespace or device.claim.namespace,
        network=network.name,
        interface=wanted.interface or _UNNAMED,
        source=device.source,
        addresses=wanted.addresses or (),
        mac=wanted.mac,
        guid=wanted.guid,
        routes=wanted.routes or (),
        default=bool(wanted.default_route),
        held=(share.resource, share.share),
        mtu=wanted.mtu,
    )


def own_network(device: ClaimDevice) -> Network | None:
    """Return the network that a claim's parameters describe; None if they refer to one by name."""
    wanted = device.share.parameters
    if wanted.network is not None:
        return None
    # Only kinds with a mode have one: claims/rules/parameters refuses it for all others.
    mode: dict[str, Any] = {"mode": wanted.mode} if wanted.mode else {}
    return kinds.NETWORKS[wanted.kind or NetworkKind.CARD](
        name=f"{device.claim.namespace}/{_own_name(device)}",
        source=device.source,
        resource=device.share.resource,
        pools=(wanted.pool,) if wanted.pool else (),
        **mode,
    )


def with_claims(
    annotated: Sequence[NetworkAsk], claimed: Sequence[NetworkAsk]
) -> tuple[NetworkAsk, ...]:
    """Return the entries of annotation and claims, each with an interface name of its own.

    A claim's entry completes one of the annotation for the same network, unless that one names a
    device. Raise Refused for a name that two of them have.
    """
    entries = list(annotated)
    open_entries = [n for n, entry in enumerate(entries) if entry.device_id is None]
    for ask in claimed:
        same = (n for n in open_entries if _network(entries[n]) == _network(ask))
        if (place := next(same, None)) is None:
            entries.append(ask)
        else:
            open_entries.remove(place)
            entries[place] = _together(entries[place], ask)
    return _numbered(entries)


def _together(entry: NetworkAsk, ask: NetworkAsk) -> NetworkAsk:
    """Return an entry of the annotation, completed with a claim's parameters."""
    return replace(
        entry,
        addresses=entry.addresses or ask.addresses,
        mac=entry.mac or ask.mac,
        guid=entry.guid or ask.guid,
        routes=entry.routes or ask.routes,
        default=entry.default or (ask.default and not entry.default_routes),
        held=ask.held,
        mtu=ask.mtu,
    )


def _numbered(entries: Sequence[NetworkAsk]) -> tuple[NetworkAsk, ...]:
    """Return the entries with unused names net1, net2 … for those without a name.

    Raise Refused for a name that two entries have.
    """
    first: dict[str, NetworkAsk] = {}
    for entry in entries:
        if entry.interface and first.setdefault(entry.interface, entry) is not entry:
            problem = f"the interface {entry.interface} is that of {first[entry.interface].source}"
            remedy = "Write another name, or leave interface out"
            raise Refused(f"{problem} too", remedy=remedy, where=entry.source)
    named: list[NetworkAsk] = []
    for place, entry in enumerate(entries, 1):
        if entry.interface:
            named.append(entry)
            continue
        free = next(name for n in count(place) if (name := InterfaceName(f"net{n}")) not in first)
        first[free] = entry
        named.append(replace(entry, interface=free))
    return tuple(named)


def _network(ask: NetworkAsk) -> tuple[str, str]:
    return ask.namespace, ask.network


def _own_name(device: ClaimDevice) -> str:
    """Return a network name for a claim's device that no Kubernetes object can have."""
    request = device.share.request.replace("/", ".")
    return f"{device.claim.name}:{request}"
