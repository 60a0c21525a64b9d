"""Which interfaces of the node the networks of a pod are on, before anything else is looked at.

Before rules/attach/seats: a node has an interface for each of its pods, and asking the kernel for
all of them takes longer than making the few that are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kube_rdma.model.attach.attachment import GrantedShare, NetworkKind, Wish
from kube_rdma.model.attach.pod_view import SeenLink
from kube_rdma.model.attach.step import VirtualKind
from kube_rdma.model.card import Card
from kube_rdma.model.survey import Survey
from kube_rdma.rules.attach.seats import named
from kube_rdma.rules.pools.modes import MODES


def may_leave(wishes: Sequence[Wish], granted: Sequence[GrantedShare]) -> bool:
    """Whether a card of the node may go into the pod."""
    devices = any(wish.network.kind is NetworkKind.DEVICE for wish in wishes)
    return devices or any(MODES[share.mode].owns for share in granted)


def wanted(
    wishes: Sequence[Wish], granted: Sequence[GrantedShare], survey: Survey
) -> tuple[str, ...] | None:
    """The names of all interfaces that planning looks at; None where a name cannot be found.

    Those of the pod's cards with their bonds, those that the networks name, and of a virtual
    function also that of its physical one.
    """
    on = {one.seat.pci: [each.name for each in one.netdevs] for one in survey.functions}
    above = {one.seat.pci: one.seat.physical_function for one in survey.functions}
    at = {name: pci for pci, names in on.items() for name in names}
    interfaces = [name for share in granted for card in share.cards for name in _names(card)]
    held = {share.share for share in granted} | {one.id for share in granted for one in share.cards}
    for identifier in filter(None, map(named, wishes)):
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
    bonds = {
        each.name: each.master for one in survey.functions for each in one.netdevs if each.bonded
    }
    interfaces += [bond for name in interfaces if (bond := bonds.get(name))]
    return tuple(dict.fromkeys(interfaces))


def agree(survey: Survey, names: Sequence[str], links: Iterable[SeenLink]) -> bool:
    """Whether these interfaces are all there, and sit where the survey says."""
    seen = {str(link.name): link for link in links}
    cards = {each.name: one.seat.pci for one in survey.functions for each in one.netdevs}
    ports = {port.netdev for device in survey.devices for port in device.ports}
    for name in names:
        link = seen.get(name)
        if link is None:
            return False
        if link.virtual or link.kind not in ("", VirtualKind.IPOIB):  # no card's own link
            if name in cards:
                return False
        elif name in cards:
            if link.pci not in (None, cards[name]):
                return False
        elif link.pci or name not in ports:
            return False
    return True


def _names(card: Card) -> tuple[str, ...]:
    """As rules/attach/seats.link_of looks for them."""
    ports = [port.netdev for device in card.devices for port in device.ports if port.netdev]
    return (*ports, *(each.name for each in card.function.netdevs)) if card.function else (*ports,)
