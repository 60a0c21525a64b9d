"""Turns a NodeReport into a node in the form that the rules of the agent take.

On the node itself the kernel is asked instead. A report has no MTU, no MAC and no prefix length of
an address. So rules about these are not applied, and the Explanation says that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address

from kube_base.frozen import replace
from kube_rdma.attach.rules.placement import soft_links
from kube_rdma.model.attach.attachment import HostLink, HostNetwork
from kube_rdma.model.card import Card, Function, Netdev
from kube_rdma.model.device import (
    Device,
    LinkLayer,
    PciAddress,
    PciPosition,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.explain import NodeBasis
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.pools import Bind, Mode, Pool, PoolSpec, Serving
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool, ReportedPort
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.labels import NAMESPACES
from kube_rdma.pools.rules.modes import MODES, pooled, with_networks
from kube_rdma.pools.rules.pools import shares_of

WIDEST = 65535  # bytes: an MTU that is not known must refuse nothing
_LAYERS: Mapping[str, str] = {LinkLayer.INFINIBAND.value: "infiniband"}  # as netlink has them


def basis(
    name: str, report: NodeReport, state: NodeState | None = None, specs: Sequence[PoolSpec] = ()
) -> NodeBasis:
    """Return the node that a NodeReport describes.

    `specs` are the pools of the NodePolicies that select the node.
    """
    cards = {one.id: _card(one) for one in report.cards if not one.gone}
    reported = {one.id: one for one in report.cards}
    pools = tuple(
        _pool(pool, [c for c in cards.values() if pool.resource in reported[c.id].resources], specs)
        for pool in report.pools
        if pool.mode in set(Mode)
    )
    namespaces = dict(state.labels if state else ()).get(NAMESPACES, "")
    mode = NamespaceMode(namespaces) if namespaces in set(NamespaceMode) else NamespaceMode.UNKNOWN
    ports = [(c, port) for c in cards.values() for port in reported[c.id].ports if port.netdev]
    links = tuple(
        _link(number, port, reported[card.id], card) for number, (card, port) in enumerate(ports, 1)
    )
    names = {port.bond for _, port in ports if port.bond} - {link.name for link in links}
    links += tuple(
        HostLink(number, name, WIDEST, "", True, None, "ether", kind="bond")
        for number, name in enumerate(sorted(names), len(links) + 1)
    )
    soft = [kind for card in cards.values() for _, kind in soft_links(card)]
    owned, shared = pooled(pools, owns=True), pooled(pools, owns=False)
    host = HostNetwork(links, mode, soft[0] if soft else None, owned=owned, shared=shared)
    return NodeBasis(name, pools, host, state)


def _card(card: ReportedCard) -> Card:
    """Return the card that a NodeReport describes; a card that is inside a pod has no ports."""
    position = None
    with suppress(ValueError):
        pci = PciAddress(card.id)
        position = PciPosition(pci, "", (pci,), card.numa_node)
    devices = tuple(
        _device(card, name, position) for name in dict.fromkeys(port.device for port in card.ports)
    )
    netdevs = tuple(
        Netdev(port.netdev, _LAYERS.get(port.link_layer, "ether"), True, None)
        for port in card.ports
        if port.netdev
    )
    function = Function(position, 0, 0, None, netdevs) if position else None
    return Card(card.id, devices, function, card.reasons)


def _device(card: ReportedCard, name: str, position: PciPosition | None) -> Device:
    """Return an RDMA device of a reported card, from its ports in the report."""
    ports = tuple(
        Port(
            port.number,
            PortState(port.state) if port.state in set(PortState) else PortState.UNKNOWN,
            PhysicalState.UNKNOWN,
            LinkLayer(port.link_layer) if port.link_layer in set(LinkLayer) else LinkLayer.UNKNOWN,
            port.gbps,
            port.netdev,
            (),
        )
        for port in card.ports
        if port.device == name
    )
    kind = "RNIC" if name.startswith("siw") else "CA"
    pci = position.pci if position else None
    return Device(name, card.id, None, kind, None, None, pci, card.numa_node, ports, (), position)


def _link(number: int, port: ReportedPort, reported: ReportedCard, card: Card) -> HostLink:
    addresses = []
    for text in reported.addresses:
        with suppress(ValueError):
            address = ip_address(text)
            addresses.append((address, address.max_prefixlen))
    name = port.netdev or ""
    return HostLink(
        number,
        name,
        WIDEST,
        "",
        True,
        card.pci,
        _LAYERS.get(port.link_layer, "ether"),
        addresses=tuple(addresses),
        master=port.bond,
        bonded=port.bond is not None,
    )


def _pool(pool: ReportedPool, cards: list[Card], specs: Sequence[PoolSpec]) -> Pool:
    """Return the pool that a NodeReport describes, with its spec from a NodePolicy if known."""
    same = (one for one in specs if (one.resource, one.mode) == (pool.resource, pool.mode))
    spec = with_networks(next(same, None) or _guessed(pool, cards))
    if pool.by_claims:
        spec = replace(spec, serve=Serving.CLAIMS)
    return Pool(spec, tuple(shares_of(spec, cards)), tuple(cards))


def _guessed(pool: ReportedPool, cards: list[Card]) -> PoolSpec:
    """Return a spec that would give a reported pool.

    In a mode with shares for each card, the spec gives each card its part if the number divides.
    """
    mode = Mode(pool.mode)
    bind, shares = MODES[mode].bind, pool.shares
    if bind is Bind.PER_CARD and cards:
        shares, rest = divmod(pool.shares, len(cards))
        if rest:
            bind, shares = Bind.POOL, pool.shares
    return PoolSpec(pool.resource, mode, "the NodeReport", shares=shares, bind=bind)
