"""Plans the Steps that the agent would take for a pod, by its rules.

What a running pod has already is taken from its status. The plan goes through the stages of
attach/rules/procedure, as the agent does. Stand-ins take the place of values that are decided
later: the first free share, the first address of a pool. A rule that refuses here refuses in the
words of the agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.attach.rules import procedure
from kube_rdma.attach.rules.claim_networks import granted_share
from kube_rdma.attach.rules.placement import link_of
from kube_rdma.attach.rules.requests import match_entries
from kube_rdma.explain.rules.addresses import Words, addresses
from kube_rdma.explain.rules.claims import claimed_shares
from kube_rdma.explain.rules.node import WIDEST
from kube_rdma.lib.phrases import listed
from kube_rdma.model.admission import ContainerRole, PodTemplate
from kube_rdma.model.attach import attachment, kinds
from kube_rdma.model.attach.steps import MakeRdma
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import LinkLayer, PlannedHostLink
from kube_rdma.model.explain import NodeBasis, PodEvidence, StandIn
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import FunctionPlace, Pool, PoolSpec, ShareId
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.allocation import granted_cards
from kube_rdma.pools.rules.modes import MODES, Takes, terms
from kube_rdma.pools.rules.preference import prefer

_ANEW = "Wait until the card is back, or create the pod again"


class PodPlan(Frozen):
    """The plan of a pod's networks, as far as it could be made, with its shares and refusals."""

    entries: tuple[attachment.MatchedEntry, ...] = ()  # the networks that it asks for
    granted: tuple[attachment.GrantedShare, ...] = ()
    claimed: tuple[attachment.GrantedShare, ...] = ()  # the part of `granted` that claims hold
    nics: tuple[attachment.PodNic, ...] = ()
    plans: tuple[attachment.Plan, ...] = ()
    stand_ins: Words = ()
    refused: Refused | None = None  # why it got no further
    short: Refused | None = None  # the node has too few shares


def planned(evidence: PodEvidence, basis: NodeBasis) -> PodPlan:
    """Plan all networks of the pod on a node; errors are in the plan, none is raised."""
    granted, short = _granted(evidence, basis)
    if granted is None:
        return replace(judged(evidence), short=short)
    try:
        claimed = claimed_shares(evidence, basis)
    except Unavailable as error:
        return replace(judged(evidence), short=Refused(str(error).removesuffix("."), remedy=_ANEW))
    asked = {ask.resource for one in evidence.template.containers for ask in one.asks}
    if any(one.resource in asked.difference(basis.by_resource) for one in evidence.networks):
        return replace(judged(evidence), short=short)  # which cards it would get nobody knows
    # What the pod asks for by a resource's name may have come by a claim (KEP-5004).
    by_claims = {one.resource for one in claimed}
    granted = (*(one for one in granted if one.resource not in by_claims), *claimed)
    so_far = PodPlan(granted=granted, claimed=claimed, short=short)
    try:
        request = procedure.NetworkRequest(
            evidence.asks, evidence.networks, evidence.other_networks
        )
        matched = procedure.match(request, granted)
        so_far = replace(so_far, entries=matched.entries)
        host = basis.host if basis.exact else _with_unreported(basis.host, matched.entries)
        is_function = is_unplannable(evidence, basis)
        located = procedure.locate(matched, _as_functions(host) if is_function else host)
        if is_function:  # the type of its network fits its card, whatever it is set to
            return so_far
        so_far = replace(so_far, nics=located.nics)
        placed = procedure.settle(located)
        leased, stand_ins = addresses(evidence, placed.nics)
        pod = PodName(evidence.template.namespace, evidence.template.name)
        # It only goes into names, as a stand-in.
        sandbox = attachment.Sandbox(ContainerId("none"), pod, "", "", 0)
        addressed = procedure.address(placed, sandbox, leased, evidence.ip_pools.values())
        plan = procedure.plan(addressed)
    except Refused as error:
        return replace(so_far, refused=error)
    words = (*stand_ins, *_soft_names(plan.plans, evidence.attached))
    return replace(so_far, nics=plan.nics, plans=plan.plans, stand_ins=words)


def _granted(
    evidence: PodEvidence, basis: NodeBasis
) -> tuple[tuple[attachment.GrantedShare, ...] | None, Refused | None]:
    """Return the shares that the pod's containers would get, and why they cannot be had now.

    With too few free shares, the shares are planned as if the node had no other pods. Shares are
    None if there are too few even so.
    """
    short = None
    for node in (basis, replace(basis, used_cards=())):
        try:
            return tuple(assumed_shares(evidence.template, node, evidence.attached)), short
        except Refused as error:
            short = short or error
    return None, short


def judged(evidence: PodEvidence) -> PodPlan:
    """Return the plan of a pod without a node: it only has the requested networks, or a refusal."""
    try:
        others = evidence.other_networks
        return PodPlan(match_entries(evidence.asks, evidence.networks, others=others))
    except Refused as error:
        return PodPlan(refused=error)


def is_unplannable(evidence: PodEvidence, basis: NodeBasis) -> bool:
    """Return whether planning needs settings of virtual functions, which no NodeReport has."""
    devices = [one for one in evidence.networks if isinstance(one, kinds.DeviceNetwork)]
    return not basis.exact and any(one.function for one in devices)


def unreported(
    host: attachment.HostNetwork, entries: Sequence[attachment.MatchedEntry]
) -> tuple[str, ...]:
    """Return interfaces that networks name and the NodeReport lacks, as they have no RDMA card."""
    names = (entry.network.device for entry in entries)
    reported = {link.name for link in host.links}
    return tuple(
        dict.fromkeys(name for name in names if name and ":" not in name and name not in reported)
    )


def _with_unreported(
    host: attachment.HostNetwork, entries: Sequence[attachment.MatchedEntry]
) -> attachment.HostNetwork:
    """Add interfaces that networks name and the NodeReport lacks, as if they could be used."""
    links = list(host.links)
    for name in unreported(host, entries):
        networks = (entry.network for entry in entries if entry.network.device == name)
        on_ib = any(isinstance(one, kinds.IpoibNetwork) for one in networks)
        layer = "infiniband" if on_ib else "ether"
        links.append(attachment.HostLink(len(links) + 1, name, WIDEST, "", True, None, layer))
    return replace(host, links=tuple(links))


def _as_functions(host: attachment.HostNetwork) -> attachment.HostNetwork:
    """Return the node as if each link of a card were a virtual function's, in mode exclusive.

    No NodeReport says which links are virtual functions.
    """
    links = (
        replace(one, virtual=FunctionPlace(PlannedHostLink(one.index, one.name), one.pci, 0))
        for one in host.links
        if one.pci
    )
    return replace(host, links=tuple(links), namespace_mode=NamespaceMode.EXCLUSIVE)


def assumed_shares(
    template: PodTemplate, basis: NodeBasis, attached: Sequence[attachment.AttachedInterface] = ()
) -> Iterator[attachment.GrantedShare]:
    """Yield shares of the cards in the pod's status annotation, then those preferred now.

    Shares that other pods use are left out. Raise Refused where there are too few.
    """
    taken = {pool.spec.resource: set(_of_others(pool, basis)) for pool in basis.pools}
    cards = tuple(one.card for one in attached if one.card)
    pools = basis.by_resource
    lasting = [one for one in template.containers if one.role is not ContainerRole.INIT]
    holding = [one for one in lasting if one.asks]  # while the pod runs
    for container in holding or template.containers:
        for ask in container.asks:
            pool = pools.get(ask.resource)
            if pool is None or not ask.count:
                continue
            used = taken[ask.resource]
            free = [one for one in _at_hand(pool, basis, cards) if one not in used]
            must = _must(pool, free, cards)[: ask.count]
            usable = {*must, *(one for one in free if pool.index[one].healthy)}
            if ask.count > len(usable):
                raise _too_few(pool, ask.count, len(usable), len(used), len(free))
            chosen = prefer(pool, free, must, ask.count)
            used.update(chosen)
            for share in chosen:
                own = granted_cards(pool, [pool.index[share]])
                yield granted_share(container.name, pool, share, own)


def _of_others(pool: Pool, basis: NodeBasis) -> Iterator[ShareId]:
    """Yield a share for each use of a pool's card by an interface of another pod."""
    counts = Counter(basis.used_cards)
    for share in pool.shares:
        if share.card and counts[share.card] > 0:
            counts[share.card] -= 1
            yield share.id


def _at_hand(pool: Pool, basis: NodeBasis, own: Collection[CardId]) -> list[ShareId]:
    """Return the pool's shares whose card is not inside another pod.

    Cards in `own` are the pod's. A card that has left the node is inside some pod.
    """
    away = {
        one.id
        for one in pool.cards
        if terms(pool.spec).owns and one.id not in own and _has_left(one, pool.spec, basis)
    }
    return [one.id for one in pool.shares if one.card not in away]


def _has_left(card: Card, spec: PoolSpec, basis: NodeBasis) -> bool:
    """Return whether a card is inside some pod, because the node lacks its device or interface.

    A card that is on the node has an RDMA device, and on Ethernet an interface. Functions for user
    space have neither, and InfiniBand has an interface only where IPoIB is loaded.
    """
    if link_of(card, basis.host) is not None:
        return False
    if card.devices:
        return any(p.link_layer is LinkLayer.ETHERNET for d in card.devices for p in d.ports)
    chosen = bool(spec.selectors) and all(one.rdma for one in spec.selectors)
    return chosen or MODES[spec.mode].takes is Takes.MOVABLE


def _too_few(pool: Pool, count: int, usable: int, used: int, free: int) -> Refused:
    """Return the error for a container that asks for more shares than it can have.

    Its sentence says why the other shares are not available.
    """
    every = len(pool.shares)
    lost = ((used, "in use"), (every - used - free, "in other pods"), (free - usable, "unhealthy"))
    parts = listed([f"{number} {state}" for number, state in lost if number > 0])
    has = f"the node has {usable} of {every} available" + (f" ({parts})" if parts else "")
    remedy = f"Ask for at most {usable}, or name another node"
    if not usable:
        remedy = "Wait until pods end, repair cards (kube-rdma doctor), or name another node"
    return Refused(f"{count} are asked for, and {has}", remedy=remedy, where=pool.spec.resource)


def _must(pool: Pool, free: Sequence[ShareId], cards: Collection[CardId]) -> tuple[ShareId, ...]:
    """Return one free share of each of these cards, in their order."""
    left = list(free)
    chosen = []
    for card in cards:
        share = next((one for one in left if pool.index[one].card == card), None)
        if share is not None:
            left.remove(share)
            chosen.append(share)
    return tuple(chosen)


def _soft_names(
    whole: Sequence[attachment.Plan], attached: Sequence[attachment.AttachedInterface]
) -> Iterator[tuple[InterfaceName, StandIn]]:
    """Yield stand-ins for the names of soft RDMA devices, which are known when the pod starts."""
    names = {one.interface: one.rdma_device for one in attached}
    for plan in whole:
        for step in plan.steps:
            if isinstance(step, MakeRdma):
                real = names.get(plan.interface)
                meaning = "" if real else "DEVICE gets its name when the pod starts"
                yield plan.interface, StandIn(step.name, real or "DEVICE", meaning)
