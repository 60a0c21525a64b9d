"""What a virtual function is set to for a pod, and in which order.

Part of attach/rules/plan. Its physical function, which stays on the node, decides VLAN, rates,
trust and the administrative MAC; the interface that moves decides its own MAC.

Settings come before the link goes: no frame of the pod leaves outside of its VLAN, and undone in
the reverse order, the link has left before its VLAN is taken off.

The administrative MAC comes when the link is in the pod, right before SetLink gives the link the
same. Many a physical function takes no other MAC from a virtual one that it does not trust while an
administrative one stands (igb_set_vf_mac_addr, ixgbe_set_vf_mac_addr, i40e_check_vf_permission), so
it has to be there first; and on the way back it has to be gone first, or the link could not have
its old one. A driver that is bound hears of it at its next reset (igbvf) or not before it is bound
again (mlx5), which is why the link is set as well; adapters/kernel/pod/links makes it reset where
its driver refuses. GUIDs of InfiniBand are attach/rules/infiniband's.

RDMA CM needs a node GUID. mlx5 makes that of Ethernet out of the administrative MAC that it finds
when it is bound (mlx5_eswitch_set_vport_mac); functions that kube-rdma makes have one at once
(adapters/kernel/sriov/functions). One made from an earlier MAC will do; a
function without one is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from shlex import quote

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.infiniband import (
    guid_of_sysfs,
    is_usable_guid,
    with_guids,
    with_link,
    with_own_guids,
)
from kube_rdma.attach.rules.requests import refused
from kube_rdma.model.attach.attachment import HostLink, NetworkSeat, PodView, Way, Wish
from kube_rdma.model.card import Card
from kube_rdma.model.device import Device
from kube_rdma.model.pools import FunctionPlace, FunctionSettings, SetFunction

_INFINIBAND = "infiniband"
_USER_SPACE = ("vfio-pci", "uio_pci_generic", "igb_uio")  # drivers that make no interface
_GUID_OF_MAC = ("mlx5_core",)  # drivers that make the node GUID of the administrative MAC
_FIELDS = FunctionSettings.__struct_fields__
_CALLED = {
    "mac": "administrative MAC",
    "vlan": "VLAN",
    "qos": "VLAN priority",
    "protocol": "VLAN protocol",
    "spoof_check": "spoof check",
    "trust": "trust",
    "link_state": "link state",
    "min_rate": "minimum rate",
    "max_rate": "maximum rate",
    "node_guid": "node GUID",
    "port_guid": "port GUID",
}
_WORDS: dict[object, str] = {True: "on", False: "off"}


UNTIL_IT_ENDS = "Wait until the pod that has it ends; the kubelet tries again"


def places(seats: tuple[NetworkSeat, ...]) -> tuple[FunctionPlace, ...]:
    """The virtual functions that move into the pod: their settings have to be asked for."""
    moved = (seat.link.virtual for seat in seats if seat.way is Way.TAKE)
    return tuple(place for place in moved if place)


def with_settings(
    seats: tuple[NetworkSeat, ...], settings: Iterable[tuple[FunctionPlace, FunctionSettings]]
) -> tuple[NetworkSeat, ...]:
    """The seats with what is known of their virtual functions."""
    by_place = dict(settings)
    return tuple(
        replace(seat, link=replace(seat.link, settings=by_place.get(seat.link.virtual)))
        if seat.link.virtual
        else seat
        for seat in seats
    )


def before_move(seat: NetworkSeat) -> Iterator[SetFunction]:
    """Everything but the MAC. Raise Refused when nobody could say how to set it back."""
    link = seat.link
    asked = seat.wish.network.function or FunctionSettings()
    wanted = with_link(link, with_guids(seat.wish, asked))
    if link.virtual is None or wanted == FunctionSettings():
        return
    if link.settings is None:
        place = link.virtual
        problem = (
            f"{place.physical.name} reports nothing about its virtual function {place.number}, "
            "so it could not be set back"
        )
        remedy = 'Use a card whose driver reports it, or write "type": "host-device"'
        raise refused(seat.wish, "type", problem, remedy)
    previous = with_own_guids(seat, link.settings)
    yield SetFunction(link.virtual, wanted, _same_fields(previous, wanted))


def after_move(seat: NetworkSeat) -> Iterator[SetFunction]:
    """The administrative MAC, where the pod wants one and the physical function reports its own.

    Where it does not, the link alone gets the MAC.
    """
    link, mac = seat.link, seat.wish.ask.mac or seat.wish.network.mac
    if link.virtual is None or link.settings is None or mac is None:
        return
    if link.settings.mac is not None and link.link_type != _INFINIBAND:
        previous = FunctionSettings(mac=link.settings.mac)
        yield SetFunction(link.virtual, FunctionSettings(mac=mac.lower()), previous)


def refuse_function(wish: Wish, link: HostLink, card: Card | None) -> None:
    """Raise Refused when a network for virtual functions meets something else."""
    if wish.network.function is None:
        return
    wide = link.link_type == _INFINIBAND
    if wide is not wish.network.infiniband:
        type_, other = ("sriov", "ib-sriov") if wide else ("ib-sriov", "sriov")
        what = "InfiniBand" if wide else "not InfiniBand"
        problem = f"{type_} does not work on {link.name}, which is {what}"
        raise refused(wish, "type", problem, f'Write "type": "{other}"')
    if link.virtual is None:
        raise _no_place(wish, link, card)


def refuse_late_mac(wish: Wish, link: HostLink, card: Card | None) -> None:
    """Raise Refused for a MAC that would leave a function without the node GUID made of it."""
    driver = card.function.driver if card and card.function else None
    if link.virtual is None or link.link_type == _INFINIBAND or driver not in _GUID_OF_MAC:
        return
    asked = (wish.ask.mac or wish.network.mac) and wish.network.rdma
    lacking = [one for one in card.devices if one.node_guid and not _has_guid(one)] if card else []
    if asked and lacking:
        place = link.virtual
        problem = (
            f"{lacking[0].name} has no node GUID, without which RDMA CM does not work: {driver} "
            "makes it from the administrative MAC that it finds when it is bound, and it is bound"
        )
        remedy = (
            f"Run: ip link set {quote(place.physical.name)} vf {place.number} mac …, and rebind "
            "its driver; those that a NodePolicy asks for as virtualFunctions have one"
        )
        raise refused(wish, "mac", problem, remedy)


def no_link(wish: Wish, card: Card, pod: str | None) -> Refused:
    """A card of the pod whose interface is not on the node, but in `pod` if that is known."""
    what = "virtual function" if card.seat and card.seat.physical_function else "card"
    driver = card.function.driver if card.function else None
    if driver in _USER_SPACE:
        problem = f"{what} {card.name} has no interface: its driver is {driver}"
        remedy = "Bind it to the driver of a network card, or take it out of this pool"
        return refused(wish, "resource", problem, remedy)
    problem = f"{what} {card.name} has no interface on the node now"
    if pod:
        problem = f"{what} {card.name} is in the pod {pod}"
    return refused(wish, "resource", problem, UNTIL_IT_ENDS)


def differing(step: SetFunction, seen: PodView) -> tuple[str, ...]:
    """What a virtual function has that was not wanted; what its driver does not tell is right."""
    now = dict(seen.functions).get(step.place)
    where = f"virtual function {step.place.number} of {step.place.physical.name}"
    if now is None:
        return (f"{where} is not there",)
    return tuple(
        f"the {_CALLED[name]} of {where} is {_word(has)}, not {_word(wanted)}"
        for name in _FIELDS
        if (wanted := getattr(step.wanted, name)) is not None
        if (has := getattr(now, name)) not in (None, wanted)
    )


def _same_fields(previous: FunctionSettings, wanted: FunctionSettings) -> FunctionSettings:
    restored = {
        name: getattr(previous, name) for name in _FIELDS if getattr(wanted, name) is not None
    }
    return replace(FunctionSettings(), **restored)


def _no_place(wish: Wish, link: HostLink, card: Card | None) -> Refused:
    seat = card.seat if card else None
    if seat and seat.physical_function:
        above = seat.physical_function
        problem = f"{link.name} cannot be set up: its physical function has no interface here"
        remedy = f'Let the node keep the interface of {above}, or write "type": "host-device"'
        return refused(wish, "type", problem, remedy)
    physical = seat is not None and seat.sriov_total is not None
    what = "a physical one" if physical else "not one"
    type_ = "ib-sriov" if wish.network.infiniband else "sriov"
    problem = f"{type_} is for virtual functions, and {link.name} is {what}"
    remedy = 'Use a pool of virtual functions, or write "type": "host-device"'
    return refused(wish, "type", problem, remedy)


def _has_guid(device: Device) -> bool:
    return device.is_soft or is_usable_guid(guid_of_sysfs(device.node_guid))


def _word(value: object) -> str:
    return _WORDS[value] if isinstance(value, bool) else str(value)
