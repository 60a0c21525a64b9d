"""Places and answers one network of a pod at a time, as meta-plugins call for them.

A meta-plugin such as Multus calls once for each network of its type. All calls together must have
the outcome of one for all networks: the same cards, and a routing table for each interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_interface
from itertools import count

from kube_base.frozen import replace
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import FIRST_TABLE
from kube_rdma.attach.rules.requests import refused
from kube_rdma.model.attach import attachment
from kube_rdma.model.attach.cni import CniInterface, CniResult, LinkAddress, LinkRoute
from kube_rdma.model.attach.steps import AddRoute, AddRule, MakeRdma
from kube_rdma.model.pools import Bind


def nic(
    entry: attachment.MatchedEntry,
    granted: Sequence[attachment.GrantedShare],
    before: Sequence[attachment.Plan],
    node: attachment.HostNetwork,
    table: int | None = None,
) -> attachment.PodNic:
    """Return the NIC for the network of one call, as if all networks were placed at once.

    `before` are the plans of the pod's other interfaces, `table` is the caller's own choice of a
    routing table. Raise Refused if shares, cards or links do not fit.
    """
    device, resource = entry.ask.device_id, entry.network.resource
    tied = [one for one in granted if resource in (None, one.resource)]
    # Cello cuts ids of shares off at the @.
    shares = [one for one in tied if device in (one.share, one.share.partition("@")[0])]
    if len(resources := sorted({one.resource for one in shares})) > 1:
        problem = f"{device} is a share of {' and of '.join(resources)}"
        remedy = "Tie the network to one of them by the annotation k8s.v1.cni.cncf.io/resourceName"
        raise refused(entry, "deviceID", problem, remedy)
    if shares:
        # Of a pool that is bound as a whole any share stands for all of its cards.
        pooled = {one.resource for one in shares if one.bind is Bind.POOL}
        # Meta-plugins give the n-th network the n-th share, and know no rails.
        rails, wanted = dict(node.rails), entry.network.rails
        chosen = (rails.get(card.id) for share in shares for card in share.cards)
        anywhere = bool(wanted and rails) and not any(rail in wanted for rail in chosen)
        shares = [one for one in tied if anywhere or one in shares or one.resource in pooled]
        entry = replace(entry, ask=replace(entry.ask, device_id=None))
    (placed,) = pod_nics((entry,), tuple(_left(shares or granted, before)), node)
    if table is None:
        every = (step for plan in before for step in plan.steps)
        used = {step.table for step in every if isinstance(step, AddRule | AddRoute)}
        table = next(number for number in count(FIRST_TABLE + 1) if number not in used)
    return replace(placed, number=table - FIRST_TABLE)


def without_rules(plan: attachment.Plan) -> attachment.Plan:
    """Return the plan without routing rules, for a caller that makes these itself."""
    return replace(plan, steps=tuple(one for one in plan.steps if not isinstance(one, AddRule)))


def device_names(
    plan: attachment.Plan, granted: Sequence[attachment.GrantedShare]
) -> tuple[str, ...]:
    """Return the RDMA devices of an interface that was attached earlier, from its plan."""
    made = tuple(step.name for step in plan.steps if isinstance(step, MakeRdma))
    cards = (card for one in granted if one.held == plan.held for card in one.cards)
    devices = (device for card in cards if card.id == plan.card for device in card.devices)
    return made or tuple(device.name for device in devices if not device.is_soft)


def result(plan: attachment.Plan, attached: attachment.AttachedInterface, netns: str) -> CniResult:
    """Return the answer to ADD: an interface of the pod, its addresses and main routes."""
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


def _left(
    granted: Sequence[attachment.GrantedShare], before: Sequence[attachment.Plan]
) -> Iterator[attachment.GrantedShare]:
    """Yield the shares that have cards left, without cards that an interface uses already."""
    taken = {(plan.held, plan.card) for plan in before}
    for share in granted:
        cards = tuple(card for card in share.cards if (share.held, card.id) not in taken)
        if cards:
            yield replace(share, cards=cards)
