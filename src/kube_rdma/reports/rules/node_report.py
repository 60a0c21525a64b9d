"""Makes a node's report out of one look of its agent, and the grid of all nodes' cards.

The loop of role plugin hands in what a look came to (pools/rules/node_health and condition).
agent/node/report writes the report when it differs from the object, and renews it. Counters and
times are left out, for they differ at each look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen
from kube_base.natural import natural
from kube_rdma.attach.rules.plan import leads_pod
from kube_rdma.lib.phrases import listed
from kube_rdma.model import pools as pool_model
from kube_rdma.model import reports as model
from kube_rdma.model.attach.attachment import Attachment
from kube_rdma.model.card import Card, CardId, Netdev
from kube_rdma.model.device import PortState
from kube_rdma.model.measures import figure_text
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.condition import CardsState
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.node_health import NodeFacts, NodeVerdict, evaluate, node_cards
from kube_rdma.pools.rules.rails import physical
from kube_rdma.pools.rules.selection import interfaces
from kube_rdma.pools.rules.staging import PendingPool
from kube_rdma.reports.rules.policies import at_node

MOST_CARDS = 256  # of a report: a node of a thousand functions would fill its object with them
_REJECTED = 64
_UNKNOWN = model.KnownNeighbour()


class AgentLook(Frozen):
    """All facts of one look of an agent at its node, for its report and other keepers."""

    version: str
    survey: Survey  # with what the node uses its interfaces for
    verdict: NodeVerdict
    cards: CardsState
    pending: Sequence[PendingPool] = ()
    refusals: Sequence[str] = ()
    overlaps: Sequence[str] = ()  # of policies
    policies: Sequence[pool_model.ClusterNodePolicy] = ()  # that this look was to meet
    plan: pool_model.FunctionsPlan = pool_model.FunctionsPlan()
    rails: Mapping[CardId, int] = {}
    # Held ones; None: nobody can tell.
    plugin_shares: Mapping[str, Collection[pool_model.ShareId]] | None = None
    attachments: Sequence[Attachment] = ()
    # The pools as they are offered to the kubelet; None: as the verdict has them.
    served: tuple[pool_model.Pool, ...] | None = None
    metrics: str = ""  # why nobody gets this agent's metrics
    neighbours: Mapping[model.PortKey, model.KnownNeighbour] = {}  # of ports of pools
    degraded: Mapping[CardId, str] = {}  # why cards of pools are

    @property
    def listed(self) -> tuple[pool_model.Pool, ...]:
        """Return the pools as they are offered to the kubelet."""
        return self.verdict.pools if self.served is None else self.served


def node_report(look: AgentLook) -> model.NodeReport:
    """Return the report on a survey of a node.

    Of more than MOST_CARDS cards, those without a fault are left out first.
    """
    resources = _resources(look.verdict.pools)
    members = {card.id: card for pool in look.verdict.pools for card in pool.cards}
    reported = [
        _reported(look, card, resources[card.id], _reasons(card, look.cards))
        for card in members.values()
    ]
    reported += [  # cards that pools had and that are gone
        model.ReportedCard(name, look.cards.cards[name].name, reasons=(why,), gone=True)
        for name, why in look.cards.wrong.items()
        if name not in members
    ]
    left_out = look.verdict.left_out
    free = [card for card in look.verdict.cards if card.devices and card.id not in resources]
    usable = [
        _reported(look, card, (), [left_out[card.id]] if card.id in left_out else ())
        for card in free
        if not card.reasons
    ]
    rejected = [_reported(look, card, (), card.reasons) for card in free if card.reasons]
    important = sorted((*reported, *usable), key=lambda c: (not (c.reasons or c.degraded), c.id))
    kept = sorted(important[:MOST_CARDS], key=lambda card: card.id)
    return model.NodeReport(
        version=look.version,
        cards=tuple(kept),
        rejected=tuple(rejected[:_REJECTED]),
        pools=tuple(_pool(pool) for pool in look.listed),
        pending=tuple(
            model.PendingMode(each.wanted.resource, each.wanted.mode, str(each))
            for each in look.pending
        ),
        refusals=tuple(sorted(look.refusals)),
        troubles=tuple(
            sorted((*look.overlaps, *map(str, look.verdict.clashes), *look.verdict.beyond))
        ),
        rerouted=tuple(
            sorted(
                f"{one.sandbox.pod} by {plan.interface}"
                for one in look.attachments
                for plan in one.plans
                if leads_pod(plan)
            )
        ),
        omitted=len(important) + len(rejected) - len(kept) - len(rejected[:_REJECTED]),
        policies=_policies(look),
        metrics=look.metrics,
    )


def first_report(
    version: str, survey: Survey, specs: Sequence[pool_model.PoolSpec] = ()
) -> model.NodeReport:
    """Return what an agent of this version with these pools would report of a node at first."""
    verdict = evaluate(NodeFacts(survey, node_cards(survey), specs))
    return node_report(AgentLook(version, survey, verdict, CardsState()))


def _policies(look: AgentLook) -> tuple[pool_model.PolicyAtNode, ...]:
    """Return the outcome of each policy on this node; a pool's source tells whose pool it is."""
    verdict, plan = look.verdict, look.plan
    taken = {pool.spec.resource: pool.spec.source for pool in verdict.pools}
    taken |= {each.wanted.resource: each.wanted.source for each in look.pending}
    refused = [(each.where, str(each)) for each in plan.refusals]
    refused += [(each.second.source, str(each)) for each in verdict.clashes if each.fatal]
    waits = [(each.wanted.source, str(each)) for each in look.pending]
    return at_node(look.policies, taken, refused, (*waits, *plan.waiting))


def _resources(pools: Sequence[pool_model.Pool]) -> Mapping[CardId, tuple[str, ...]]:
    """Return by card the resources of the pools that it is in."""
    names: dict[CardId, tuple[str, ...]] = {}
    for pool in pools:
        for card in pool.cards:
            names[card.id] = (*names.get(card.id, ()), pool.spec.resource)
    return names


def _reasons(card: Card, state: CardsState) -> tuple[str, ...]:
    """Return why a pool's card is unhealthy; a card held back keeps the reason it had before."""
    why = state.wrong.get(card.id)
    return card.reasons if why is None else (why,)


def _reported(
    look: AgentLook, card: Card, resources: tuple[str, ...], reasons: Sequence[str]
) -> model.ReportedCard:
    ports = (
        model.ReportedPort(
            device.name,
            port.number,
            port.state.value,
            port.link_layer.value,
            figure_text(port.rate_gbps, latency=False),
            netdev=port.netdev,
            bond=port.bond,
            neighbour=known.neighbour,
            unheard=known.unheard,
        )
        for device in card.devices
        for port in device.own_ports
        for known in [look.neighbours.get((card.id, device.name, port.number), _UNKNOWN)]
    )
    netdevs = interfaces(card, look.survey.functions)
    above = physical(card)
    uses = [netdev.use for netdev in netdevs if netdev.use]
    return model.ReportedCard(
        card.id,
        card.name,
        resources,
        card.numa_node,
        tuple(ports),
        tuple(reasons),
        carries=tuple(what for netdev in netdevs for what in _carried(netdev)),
        addresses=tuple(address.partition("/")[0] for use in uses for address in use.addresses),
        rail=look.rails.get(card.id),
        driver=(card.function and card.function.driver) or "",
        firmware=next((one.firmware for one in card.devices if one.firmware), ""),
        part_of="" if above == card.id else above,
        degraded=look.degraded.get(card.id, ""),
    )


def _carried(netdev: Netdev) -> Iterator[str]:
    """Yield why the node needs an interface, apart from an address on it."""
    if netdev.fast_path:
        yield f"{netdev.name} carries the traffic of {netdev.master}"
    if netdev.default_route:
        yield f"the default route leads through {netdev.name}"
    if netdev.use and netdev.use.storage:
        yield f"{netdev.name} leads to storage, {listed(netdev.use.storage)}"
    if netdev.use and netdev.use.beyond and not netdev.default_route:
        yield f"routes to {listed(netdev.use.beyond)} lead through {netdev.name}"


def _pool(pool: pool_model.Pool) -> model.ReportedPool:
    spec, healthy = pool.spec, sum(share.healthy for share in pool.shares)
    counts = (len(pool.shares), healthy, len(pool.cards))
    serve = spec.serve.value if spec.serve is pool_model.Serving.CLAIMS else ""
    bind = terms(spec).bind
    shown = bind.value if bind is pool_model.Bind.POOL else ""
    return model.ReportedPool(spec.resource, spec.mode.value, *counts, serve, shown)


# The grid that `kube-rdma status --svg` draws.


def card_grid(facts: model.ClusterFacts) -> tuple[model.GridRow, ...]:
    """Return a grid row for each node that has an agent or a report, in the order of names."""
    reports = facts.reports or {}
    names = {node.name for node in facts.nodes or ()} | reports.keys() | facts.agents.keys()
    ours = [name for name in names if name in reports or name in facts.agents]
    return tuple(_row(facts, name, reports.get(name)) for name in sorted(ours, key=natural))


def _row(facts: model.ClusterFacts, node: str, report: model.NodeReport | None) -> model.GridRow:
    why = _silence(facts, node, report)
    pooled = report.pooled if report else ()
    cards = sorted(pooled, key=lambda card: card.id)
    return model.GridRow(node, tuple(_card(card, why) for card in cards), why)


def _silence(facts: model.ClusterFacts, node: str, report: model.NodeReport | None) -> str:
    """Return why nothing current is known of the node's cards; "" if its agent reports."""
    agents = facts.agents.get(node, ())
    ready = {one.name: one.ready for one in facts.nodes or ()}
    if not ready.get(node, True):
        return "node not ready"
    if facts.pods is not None and not any(pod.ready for pod in agents):
        return "agent not ready" if agents else "no agent"
    return "" if report else "no report"


def _card(card: model.ReportedCard, silence: str) -> model.GridCard:
    if silence:
        return model.GridCard(card.name, model.CardState.UNSEEN, silence)
    if card.gone:
        return model.GridCard(card.name, model.CardState.GONE, next(iter(card.reasons), ""))
    if card.reasons:
        return model.GridCard(card.name, model.CardState.ILL, card.reasons[0])
    for port in card.ports:
        if port.state != PortState.ACTIVE:
            down = f"port {port.number} of {port.device} is {port.state}"
            return model.GridCard(card.name, model.CardState.PORT_DOWN, down)
    return model.GridCard(card.name, model.CardState.WELL)
