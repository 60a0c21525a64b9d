"""One network of a pod at a time, as meta-plugins call for them: which card, and what is answered.

Beside attach/rules/seats, which sees all networks of a pod at once. Here those that came before are
in the journal as plans, and what they took is left out of what the pod holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_interface
from itertools import count

from kube_base.frozen import replace
from kube_rdma.attach.rules.plan import FIRST_TABLE
from kube_rdma.attach.rules.requests import refused
from kube_rdma.attach.rules.seats import seats, soft_links
from kube_rdma.model.attach.attachment import (
    Attached,
    GrantedShare,
    HostNetwork,
    NetworkSeat,
    Plan,
    Wish,
)
from kube_rdma.model.attach.cni import CniInterface, CniResult, LinkAddress, LinkRoute
from kube_rdma.model.attach.steps import AddRoute, AddRule, MakeRdma
from kube_rdma.model.card import Card
from kube_rdma.model.pools.pool import Bind


def seat(
    wish: Wish,
    granted: Sequence[GrantedShare],
    before: Sequence[Plan],
    node: HostNetwork,
    table: int | None = None,
) -> NetworkSeat:
    """Where the network goes, so that many calls come to what one for all of them would.

    `before` are the pod's other interfaces. `table` is the caller's own choice of a routing table.
    Raise Refused as attach_cards.seats does.
    """
    device, resource = wish.ask.device_id, wish.network.resource
    tied = [one for one in granted if resource in (None, one.resource)]
    shares = [one for one in tied if device and _is(one, device)]
    if len(resources := sorted({one.resource for one in shares})) > 1:
        problem = f"{device} is a share of {' and of '.join(resources)}"
        remedy = "Tie the network to one of them by the annotation k8s.v1.cni.cncf.io/resourceName"
        raise refused(wish, "deviceID", problem, remedy)
    if shares:
        # Of a pool that is bound as a whole any share stands for all of its cards.
        pooled = {one.resource for one in shares if one.bind is Bind.POOL}
        anywhere = _off_rails(wish, shares, node)
        shares = [one for one in tied if anywhere or one in shares or one.resource in pooled]
        wish = replace(wish, ask=replace(wish.ask, device_id=None))
    (placed,) = seats((wish,), tuple(_left(shares or granted, before)), node)
    return replace(placed, number=_number(before) if table is None else table - FIRST_TABLE)


def _off_rails(wish: Wish, shares: Sequence[GrantedShare], node: HostNetwork) -> bool:
    """Whether none of these cards is on a rail of the network.

    Meta-plugins give the n-th network the n-th share, and know no rails.
    """
    rails, wanted = dict(node.rails), wish.network.rails
    cards = (card for share in shares for card in share.cards)
    return bool(wanted and rails) and not any(rails.get(card.id) in wanted for card in cards)


def without_rules(plan: Plan) -> Plan:
    """For a caller that makes the rules to its tables itself, and fails where one is there."""
    return replace(plan, steps=tuple(one for one in plan.steps if not isinstance(one, AddRule)))


def device_names(plan: Plan, granted: Sequence[GrantedShare]) -> tuple[str, ...]:
    """The RDMA devices of an interface that was attached in an earlier call."""
    made = tuple(step.name for step in plan.steps if isinstance(step, MakeRdma))
    cards = (card for one in granted if one.held == plan.held for card in one.cards)
    return made or tuple(name for card in cards if card.id == plan.card for name in _own(card))


def result(plan: Plan, attached: Attached, netns: str) -> CniResult:
    """The answer to ADD: an interface of the pod, its addresses, and its routes in the main table.

    Default routes are the caller's to set.
    """
    routes = (step for step in plan.steps if isinstance(step, AddRoute) and step.table is None)
    return CniResult(
        links=(
            CniInterface(
                attached.interface, attached.mac, netns, attached.mtu, pci=attached.pci or ""
            ),
        ),
        addresses=tuple(
            LinkAddress(ip_interface((one.address, one.prefix)), one.gateway, 0)
            for one in plan.addresses
        ),
        routes=tuple(LinkRoute(step.to, step.via) for step in routes),
        dns=attached.dns,
    )


def _left(granted: Sequence[GrantedShare], before: Sequence[Plan]) -> Iterator[GrantedShare]:
    """The shares with those of their cards that no interface has yet."""
    taken = {(plan.held, plan.card) for plan in before}
    for share in granted:
        cards = tuple(card for card in share.cards if (share.held, card.id) not in taken)
        if cards:
            yield replace(share, cards=cards)


def _own(card: Card) -> Iterator[str]:
    soft = dict(soft_links(card))
    return (device.name for device in card.devices if device.name not in soft)


def _is(share: GrantedShare, device: str) -> bool:
    """Whether a caller means this share; Cello cuts ids off at the @."""
    return device in (share.share, share.share.partition("@")[0])


def _number(before: Sequence[Plan]) -> int:
    """The first place whose routing table nobody has."""
    steps = (step for plan in before for step in plan.steps)
    used = {step.table for step in steps if isinstance(step, AddRule | AddRoute)}
    return next(number for number in count(1) if FIRST_TABLE + number not in used)
