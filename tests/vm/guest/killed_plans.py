"""Plans in which an agent is killed: its own, for networks that have what a pod's can have.

The rules of an attachment are asked one after the other, as the agent asks them, about the node
that a world of steps_contract_killed.py shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from kube_rdma.attach.rules.placement import link_of, pod_nics
from kube_rdma.attach.rules.plan import plans
from kube_rdma.attach.rules.requests import match_entries
from kube_rdma.attach.rules.vf import with_settings
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import (
    GrantedShare,
    InterfaceAddress,
    NetworkAsk,
    NetworkKind,
    NetworkRoute,
    Sandbox,
)
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import Bind, FunctionSettings, Mode, ShareId

SANDBOX = Sandbox(ContainerId("5a0e" * 16), PodName("default", "train-0"), "uid-1", "", 0)
CARD, FUNCTION = "card", "function"  # of a world
V4, V6 = 4, 6
ROUTES = (NetworkRoute(ip_network("198.18.8.0/24")),)
GATEWAYS = {V4: ip_address("198.18.0.254"), V6: ip_address("2001:2::fe")}
LESS = 100  # octets below the card's MTU, so that it has to be set, and set back


@dataclass(frozen=True)
class Wanted:
    """One network of a pod: which interface of the world's it is on, and what it has besides."""

    on: str
    kind: NetworkKind
    families: tuple[int, ...] = (V4,)
    network: dict = field(default_factory=dict)  # fields of Network
    ask: dict = field(default_factory=dict)  # of NetworkAsk


WITHOUT_RDMA = {"rdma": False}
PLANS = {
    "macvlan with rxe": (Wanted(CARD, NetworkKind.MACVLAN, (V4, V6)),),
    "two ipvlans": (
        Wanted(CARD, NetworkKind.IPVLAN, (V4,), WITHOUT_RDMA | {"routes": ROUTES}),
        Wanted(CARD, NetworkKind.IPVLAN, (), WITHOUT_RDMA),
    ),
    "a whole card with rxe": (
        Wanted(CARD, NetworkKind.DEVICE, network={"sysctls": (("ipv4/conf", "arp_ignore", "1"),)}),
    ),
    "a virtual function that is set up": (
        Wanted(
            FUNCTION,
            NetworkKind.DEVICE,
            network=WITHOUT_RDMA | {"function": FunctionSettings(vlan=100, qos=3, trust=True)},
            ask={"mac": "02:00:00:00:77:01"},
        ),
    ),
}
"""On the card stands a soft RDMA device, so that a pod gets one, too. It takes the kernel longer
than all the rest, for its thousands of files, so that few plans have one.
"""
ONE_LINK = (Wanted(CARD, NetworkKind.MACVLAN, (), WITHOUT_RDMA),)


def planned(world, wanted):
    """The plans of a pod with these networks, on the node as it is now."""
    scene = world.scene()
    cards = {link_of(card, scene.network).name: card for card in scene.cards}
    mtus = {link.name: link.mtu for link in scene.network.links}
    names = {CARD: world.card, FUNCTION: world.function}
    asks, networks, shares = [], [], []
    for number, one in enumerate(wanted, 1):
        name, card, resource = f"n{number}", cards[names[one.on]], f"rdma/{number}"
        network = kinds.NETWORKS[one.kind](
            name=f"default/{name}",
            source="",
            resource=resource,
            mtu=mtus[names[one.on]] - LESS,
            static=tuple(_address(family, number) for family in one.families),
            **one.network,
        )
        interface = InterfaceName(f"net{number}")
        asks.append(NetworkAsk("default", name, interface, f"networks[{number}]", **one.ask))
        networks.append(network)
        mode = Mode.EXCLUSIVE if one.kind is NetworkKind.DEVICE else Mode.SHARED_MULTI
        shares.append(GrantedShare("main", resource, ShareId(name), (card,), mode, Bind.PER_CARD))
    placed = pod_nics(match_entries(asks, networks), shares, scene.network)
    return plans(SANDBOX, with_settings(placed, scene.functions), (), scene.network)


def _address(family, number):
    """Of the pod's network of this number, with its gateway."""
    gateway = GATEWAYS[family]
    if family == V4:
        return InterfaceAddress(ip_address(f"198.18.0.{number}"), 24, gateway)
    return InterfaceAddress(ip_address(f"2001:2::{number}"), 64, gateway)
