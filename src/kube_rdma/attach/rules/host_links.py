"""Decides which of the node's interfaces a pod's networks look at, and what these are.

It runs before attach/rules/placement. A node usually has an interface for each of its pods, and to
ask the kernel for all of them takes long. Links of the kernel and the survey of the cards become
one HostNetwork, for the agent, for `explain` and for the hardware self-test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from kube_base.frozen import replace
from kube_rdma.attach.rules.placement import named, soft_links
from kube_rdma.model.attach import attachment as model
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.steps import VirtualKind
from kube_rdma.model.card import Netdev
from kube_rdma.model.device import PciAddress, PlannedHostLink, guid_of_sysfs, is_usable_guid
from kube_rdma.model.pools import FunctionPlace
from kube_rdma.model.survey import Survey
from kube_rdma.pools.rules.modes import MODES
from kube_rdma.pools.rules.node_health import node_cards

_OWN = ("", VirtualKind.IPOIB)  # kinds of a card's own link


def may_leave(entries: Sequence[model.MatchedEntry], granted: Sequence[model.GrantedShare]) -> bool:
    """Return whether a card of the node may move into the pod."""
    devices = any(isinstance(entry.network, kinds.DeviceNetwork) for entry in entries)
    return devices or any(MODES[share.mode].owns for share in granted)


def wanted(
    entries: Sequence[model.MatchedEntry], granted: Sequence[model.GrantedShare], survey: Survey
) -> tuple[str, ...] | None:
    """Return the names of the interfaces that planning needs; None where one cannot be found.

    They are the interfaces of the pod's cards with their bonds, interfaces that networks name, and
    the physical ones of virtual functions.
    """
    on = {one.position.pci: [each.name for each in one.netdevs] for one in survey.functions}
    above = {one.position.pci: one.position.physical_function for one in survey.functions}
    at = {name: pci for pci, names in on.items() for name in names}
    cards = [card for share in granted for card in share.cards]
    # As placement.link_of looks for them.
    interfaces = [p.netdev for c in cards for d in c.devices for p in d.ports if p.netdev]
    interfaces += [each.name for c in cards if c.function for each in c.function.netdevs]
    held = {share.share for share in granted} | {card.id for card in cards}
    for identifier in filter(None, map(named, entries)):
        if identifier in held or identifier.lower() in held:
            continue
        if ":" not in identifier:
            interfaces.append(identifier)
        elif names := next((on[pci] for pci in on if pci == identifier.lower()), None):
            interfaces += names
        else:
            return None  # a MAC, or a card that is not known
    physical = [above[at[name]] for name in interfaces if name in at]
    interfaces += [name for pci in physical if pci for name in on.get(pci, ())]
    netdevs = [each for one in survey.functions for each in one.netdevs]
    bonds = {each.name: each.master for each in netdevs if each.bonded}
    interfaces += [bond for name in interfaces if (bond := bonds.get(name))]
    return tuple(dict.fromkeys(interfaces))


def agree(survey: Survey, names: Sequence[str], links: Iterable[model.SeenLink]) -> bool:
    """Return whether all of these interfaces exist, and the survey is right about their cards."""
    seen = {str(link.name): link for link in links}
    cards = {each.name: one.position.pci for one in survey.functions for each in one.netdevs}
    ports = {port.netdev for device in survey.devices for port in device.ports}
    for name in names:
        link = seen.get(name)
        if link is None:
            return False
        if link.virtual or link.kind not in _OWN:  # no card's own link
            if name in cards:
                return False
        elif name in cards:
            if link.pci not in (None, cards[name]):
                return False
        elif link.pci or name not in ports:
            return False
    return True


def with_ways(host: model.HostNetwork, ways: Iterable[model.LinkWays]) -> model.HostNetwork:
    """Return the node with the routes and rules over its links."""
    by_name = {one.name: one for one in ways}
    links = tuple(replace(link, ways=by_name.get(link.name)) for link in host.links)
    return replace(host, links=links)


def host_network(survey: Survey, links: Sequence[model.SeenLink]) -> model.HostNetwork:
    """Return the links as interfaces of the node, with what the survey says of their cards."""
    pairs = ((one, netdev) for one in survey.functions for netdev in one.netdevs)
    netdevs = {netdev.name: (one.position.pci, netdev) for one, netdev in pairs}
    numbers = {str(link.name): link.index for link in links}
    virtual = dict(_virtual(survey, numbers))
    host_links = []
    for link in links:
        pci, netdev = netdevs.get(link.name, (link.pci, None))
        own = netdev is not None or (link.kind in _OWN and not link.virtual)
        host_links.append(
            model.HostLink(
                index=link.index,
                name=link.name,
                mtu=link.mtu,
                mac=link.mac,
                up=link.up,
                pci=pci,
                link_type=netdev.link_type if netdev else "ether",
                default_route=_routed(link.name, netdev, survey),
                addresses=tuple(one for one in link.addresses if not one[0].is_link_local),
                virtual=virtual.get(pci) if pci else None,
                master=netdev.master if netdev else None,
                bonded=netdev is not None and netdev.bonded,
                kind="" if own else link.kind,
            )
        )
    soft = any(device.is_soft for device in survey.devices)
    cards = node_cards(survey) if soft else ()
    soft_kind = next((kind for card in cards for _, kind in soft_links(card)), None)
    usable = ((device, _usable_guid(device.node_guid)) for device in survey.devices)
    guids = tuple((device.name, device.pci, guid) for device, guid in usable if guid)
    return model.HostNetwork(tuple(host_links), survey.namespace_mode, soft_kind, guids)


def _routed(name: str, netdev: Netdev | None, survey: Survey) -> bool:
    """Return whether traffic of the node itself uses a link; True while that is unknown."""
    if netdev:
        return netdev.vital
    return survey.routed is None or name in survey.routed


@lru_cache(1024)  # of the same survey for every pod
def _usable_guid(sysfs_guid: str | None) -> str | None:
    guid = guid_of_sysfs(sysfs_guid)
    return guid if is_usable_guid(guid) else None


def _virtual(
    survey: Survey, numbers: Mapping[str, int]
) -> Iterator[tuple[PciAddress, FunctionPlace]]:
    """Yield the virtual functions whose physical one has an interface on the node."""
    physical = {
        function.position.pci: PlannedHostLink(numbers[netdev.name], netdev.name)
        for function in survey.functions
        for netdev in function.netdevs[:1]
        if netdev.name in numbers
    }
    for function in survey.functions:
        above = function.position.physical_function
        if above in physical and function.vf_index is not None:
            place = FunctionPlace(physical[above], above, function.vf_index)
            yield function.position.pci, place
