"""Chooses the plans that the self-test tries on each card, and compares the node with before.

The plans are the agent's own: attach/rules/procedure makes them. Their network has what a pod's
network can have: addresses, routes, an MTU and, for FUNCTION, settings of the virtual function. A
plan that the agent would refuse is refused here too, and the reason is shown. A card with the
node's default route is not touched, even if a user names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from ipaddress import ip_address, ip_network
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules import procedure
from kube_rdma.attach.rules.placement import link_of
from kube_rdma.attach.rules.procedure import NetworkRequest
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import (
    GrantedShare,
    HostLink,
    InterfaceAddress,
    Network,
    NetworkAsk,
    NetworkRoute,
    Plan,
    Sandbox,
)
from kube_rdma.model.attach.steps import MakeRdma
from kube_rdma.model.card import Card
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import Bind, FunctionPlace, FunctionSettings, LinkState, Mode, ShareId
from kube_rdma.pools.rules.selection import is_vital
from kube_rdma_selftest.trial import SelftestRequest, SelftestScene, Trial, TrialKind, UntriedCard

INTERFACE = InterfaceName(
    "kr-selftest"
)  # free on the node, as before Linux 6.15 it has to be (kernel/pod/links.py)

# Addresses that are set aside for tests of network devices (RFC 2544, RFC 5180).
_ADDRESSES = (
    InterfaceAddress(ip_address("198.18.0.1"), 24, ip_address("198.18.0.254")),
    InterfaceAddress(ip_address("2001:2::1"), 64, ip_address("2001:2::fe")),
)
_ROUTES = (NetworkRoute(ip_network("198.18.1.0/24")), NetworkRoute(ip_network("2001:2:0:1::/64")))
_VLAN = 100
_LESS = 100  # octets below the card's MTU, so that it has to be set, and set back
_LEAST_MTU = 1280  # of IPv6 (RFC 8200)
_NETWORKS: Mapping[TrialKind, type[Network]] = {
    TrialKind.MACVLAN: kinds.MacvlanNetwork,
    TrialKind.IPVLAN: kinds.IpvlanNetwork,
    TrialKind.IPOIB: kinds.IpoibNetwork,
    TrialKind.TAKE: kinds.DeviceNetwork,
}
_INFINIBAND = "infiniband"
_NO_MAC = "00:00:00:00:00:00"
_GID = 47  # characters of the sixteen octets behind the queue pair (RFC 4391, 9.1.1)


def trials(scene: SelftestScene, asked: SelftestRequest) -> tuple[Trial | UntriedCard, ...]:
    """Return the trials to run, card by card, and the cards left out, with their reasons.

    Raise Refused for a name that no card has; without names, if no card has RDMA or is virtual.
    """
    return tuple(one for card in _chosen(scene, asked) for one in _of_card(scene, asked, card))


def differences(trial: Trial, before: SelftestScene, after: SelftestScene) -> tuple[str, ...]:
    """Return, as sentences without a full stop, how a trial's card differs after it.

    Interfaces are found by the card's PCI function, where it has one.
    """
    was, now = (dict(_facts(trial, scene)) for scene in (before, after))
    changed = [
        f"{what} was {value}, and is {now.get(what, 'gone')}"
        for what, value in was.items()
        if now.get(what) != value
    ]
    new = [f"{what} is {value}, and was not there before" for what, value in now.items()]
    made = {step.name for step in trial.plan.steps if isinstance(step, MakeRdma)}
    left = [f"the RDMA device {name} is still there" for name in after.rdma if name in made]
    return (
        *changed,
        *(line for line, what in zip(new, now, strict=True) if what not in was),
        *left,
    )


def _chosen(scene: SelftestScene, asked: SelftestRequest) -> list[Card]:
    """Return the named cards, else all RDMA cards and virtual functions; raise Refused for none."""
    if asked.cards:
        return list(dict.fromkeys(_named(scene, name) for name in asked.cards))
    cards = [card for card in scene.cards if card.devices or _is_virtual(card)]
    if not cards:
        raise Refused(
            "this node has no RDMA card",
            remedy="See why with `kube-rdma devices`, or name an interface with --card",
            where="--hardware-selftest",
        )
    return cards


def _named(scene: SelftestScene, name: str) -> Card:
    for card in scene.cards:
        if name.lower() in _names(card):
            return card
    names = listed([card.name for card in scene.cards]) or "none"
    raise Refused(
        f"this node has no card {name}; it has {names}",
        remedy="Name one by its RDMA device, its interface or its PCI address",
        where="--card",
    )


def _names(card: Card) -> set[str]:
    ports = [port.netdev for device in card.devices for port in device.ports if port.netdev]
    netdevs = [netdev.name for netdev in card.function.netdevs] if card.function else []
    devices = [device.name for device in card.devices]
    return {name.lower() for name in (card.id, card.name, *devices, *ports, *netdevs)}


def _of_card(
    scene: SelftestScene, asked: SelftestRequest, card: Card
) -> Iterator[Trial | UntriedCard]:
    link = link_of(card, scene.network)
    if link is None:
        yield UntriedCard(
            card, "it has no interface on the node: a pod has it, or its driver makes none"
        )
        return
    if _carries_the_node(scene, card, link):
        yield UntriedCard(
            card, f"the node itself is reached through {link.name}, which is never touched"
        )
        return
    named = bool(asked.cards)
    for kind in asked.kinds or _fitting(card, link, named=named):
        why = _in_use(scene, card, link, named=named) if kind.moves else None
        if why:
            yield UntriedCard(card, why, kind)
            continue
        try:
            yield Trial(card, link, kind, _plan(scene, card, link, kind))
        except Refused as error:
            yield UntriedCard(card, f"{error.problem}. {error.remedy}", kind)


def _fitting(card: Card, link: HostLink, *, named: bool) -> tuple[TrialKind, ...]:
    """Return a card's default kinds of trial; a physical card has TAKE only if `named`."""
    if _is_virtual(card):
        return (TrialKind.TAKE, TrialKind.FUNCTION) if link.virtual else (TrialKind.TAKE,)
    wide = link.link_type == _INFINIBAND
    return (
        *((TrialKind.IPOIB,) if wide else (TrialKind.MACVLAN, TrialKind.IPVLAN)),
        *((TrialKind.TAKE,) if named else ()),
    )


def _is_virtual(card: Card) -> bool:
    return card.position is not None and card.position.physical_function is not None


def _carries_the_node(scene: SelftestScene, card: Card, link: HostLink) -> bool:
    """Decide whether the card, or an interface stacked on it, may have a default route."""
    above = set(_all_above(scene, link.name))
    return is_vital(card) or link.default_route or bool(above & set(scene.routed))


def _all_above(scene: SelftestScene, name: str) -> Iterator[str]:
    """Yield an interface and all interfaces stacked on it, directly or not."""
    above = dict(scene.above)
    yield name
    for other in above.get(name, ()):
        yield from _all_above(scene, other)


def _in_use(scene: SelftestScene, card: Card, link: HostLink, *, named: bool) -> str | None:
    """Return why a trial must not move the card's own interface; None if it may."""
    if above := dict(scene.above).get(link.name):
        return f"{listed(above)} stands on {link.name}, and would not get it back"
    if named:
        return None
    if not _is_virtual(card):
        return f"{link.name} is not a virtual function, so it moves only when --card names it"
    if link.addresses:
        texts = [f"{address}/{length}" for address, length in link.addresses]
        return f"{link.name} has {listed(texts)}, so it moves only when --card names it"
    return None


def _plan(scene: SelftestScene, card: Card, link: HostLink, kind: TrialKind) -> Plan:
    """Return the agent's plan for a trial of a card; raise Refused as the agent does."""
    network = _network(scene, card, link, kind)
    guid = mac = None
    if kind is TrialKind.FUNCTION:
        own = _own(scene, link)
        wide = link.link_type == _INFINIBAND
        guid, mac = (own, None) if wide else (None, own[: len(_NO_MAC)])
    ask = NetworkAsk("selftest", kind, INTERFACE, card.name, mac=mac, guid=guid)
    mode = Mode.SHARED_MULTI
    if kind.moves:
        mode = Mode.SRIOV if _is_virtual(card) else Mode.EXCLUSIVE
    share = GrantedShare(
        "main", str(network.resource), ShareId(card.id), (card,), mode, Bind.PER_CARD
    )
    matched = procedure.match(NetworkRequest((ask,), (network,)), (share,))
    located = procedure.locate(matched, scene.network)
    placed = procedure.settle(located, scene.functions)
    container = ContainerId(f"selftest-{card.id}-{kind}")
    sandbox = Sandbox(container, PodName("selftest", kind), container, "", 0)
    addressed = procedure.address(placed, sandbox, ())
    (plan,) = procedure.plan(addressed).own
    return plan


def _network(scene: SelftestScene, card: Card, link: HostLink, kind: TrialKind) -> Network:
    """Return a network for a trial, with IPv4 and, if an interface of the node has it, IPv6."""
    families = {address.version for each in scene.network.links for address, _ in each.addresses}
    families.add(4)
    wide = link.link_type == _INFINIBAND
    shared: dict[str, Any] = {
        "name": f"selftest/{kind}",
        "source": "",
        "device": link.name,
        "mtu": max(link.mtu - _LESS, min(link.mtu, _LEAST_MTU)),
        "resource": f"selftest/{card.id}",
        "static": tuple(one for one in _ADDRESSES if one.address.version in families),
        "routes": tuple(one for one in _ROUTES if one.to.version in families),
    }
    if kind is not TrialKind.FUNCTION:
        return _NETWORKS[kind](**shared)
    of = kinds.IbSriovNetwork if wide else kinds.DeviceNetwork
    return of(**shared, function=_function(scene, link, wide=wide))


def _function(scene: SelftestScene, link: HostLink, *, wide: bool) -> FunctionSettings:
    """Return the settings that a trial gives a virtual function."""
    if wide:
        return FunctionSettings(link_state=LinkState.ENABLE)
    current = dict(scene.functions).get(link.virtual) if link.virtual else None
    spoof = current.spoof_check if current else None
    return FunctionSettings(vlan=_VLAN, spoof_check=None if spoof is None else not spoof)


def _own(scene: SelftestScene, link: HostLink) -> str:
    """Return eight octets for a card: all are its GUID, the first six its MAC.

    Behind a first 02 (locally administered) they are a hash of the physical function's GUID, else
    of a MAC, and the function's number.
    """
    above = link.virtual.pci if link.virtual else None
    parent_guids = [guid for _, pci, guid in scene.network.guids if pci and pci == above]
    number = link.virtual.number if link.virtual else 0
    seed = f"{parent_guids[0] if parent_guids else link.mac}/{number}"
    return "02:" + blake2b(seed.encode(), digest_size=7).digest().hex(":")


def _facts(trial: Trial, scene: SelftestScene) -> Iterator[tuple[str, str]]:
    """Yield name and value of each fact about the card that a trial must not change."""
    pci = trial.card.pci
    links = [
        link
        for link in scene.network.links
        if (link.pci == pci if pci else link.name == trial.link.name)
    ]
    for link in links:
        name = link.name
        yield f"the interface {name}", "there"
        yield f"the MTU of {name}", str(link.mtu)
        # The queue pair in front of an InfiniBand address is another one after a remake.
        mac = link.mac[-_GID:] if link.link_type == _INFINIBAND else link.mac
        yield f"the MAC of {name}", mac
        yield f"the state of {name}", "up" if link.up else "down"
        texts = sorted(f"{address}/{length}" for address, length in link.addresses)
        yield f"the addresses of {name}", ", ".join(texts) or "none"
    if trial.link.virtual:
        yield from _settings(scene, trial.link.virtual, trial.link.mac)
    card = next((each for each in scene.cards if each.id == trial.card.id), None)
    for device in card.devices if card else ():
        what = device.identity
        yield f"the RDMA device of {what}", "there"
        yield f"the GUID of the RDMA device of {what}", str(device.node_guid)
        for port in device.ports:
            yield f"the interface of its port {port.number}, {what}", str(port.netdev)


def _settings(scene: SelftestScene, place: FunctionPlace, mac: str) -> Iterator[tuple[str, str]]:
    settings_by_pci = {
        one.pci: settings for one, settings in scene.functions if one.number == place.number
    }
    now = settings_by_pci.get(place.pci)
    if now is None:
        return
    # A driver may report the function's own MAC where no other is set (igb, ixgbe).
    now = replace(now, mac=None if now.mac in (_NO_MAC, mac) else now.mac)
    for name in now.__struct_fields__:
        what = f"the {name.replace('_', ' ')} of virtual function {place.number}"
        yield f"{what} of {place.physical.name}", str(getattr(now, name))
