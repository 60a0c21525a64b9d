"""The rules of virtual functions: what one is set to for a pod, and in which order.

attach/rules/plan plans by them. The physical function, which stays on the node, decides VLAN,
rates, trust and the administrative MAC; the interface that moves decides its own MAC.

Settings come before the link goes, so no frame of the pod leaves outside of its VLAN. The undo is
in reverse order: the link leaves before its VLAN is taken off.

The administrative MAC comes when the link is in the pod, right before SetLink gives the link the
same. Many a physical function takes no other MAC from an untrusted virtual one while an
administrative one stands (igb_set_vf_mac_addr, ixgbe_set_vf_mac_addr, i40e_check_vf_permission). So
it has to be there first. On the way back it has to be gone first, or the link could not have its
old one.

A bound driver takes the administrative MAC at its next reset (igbvf), or when it is bound again
(mlx5). So the link is set as well. adapters/kernel/pod/links makes it reset where its driver
refuses. GUIDs of InfiniBand are attach/rules/infiniband's.

RDMA CM needs a node GUID. mlx5 makes that of Ethernet from the administrative MAC that it finds
when it is bound (mlx5_eswitch_set_vport_mac). Functions that kube-rdma makes have one at once
(adapters/kernel/sriov/functions). A node GUID made from an earlier MAC will do; a MAC for a
function without a GUID is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.attach.rules.infiniband import function_settings, with_own_guids
from kube_rdma.attach.rules.requests import refused
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import HostLink, MatchedEntry, PodNic, PodView
from kube_rdma.model.card import Card
from kube_rdma.model.pools import FunctionReports, FunctionSettings, SetFunction

_INFINIBAND = "infiniband"
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


UNTIL_IT_ENDS = "Wait until the pod that has it ends; the kubelet tries again"


def with_settings(nics: tuple[PodNic, ...], settings: FunctionReports) -> tuple[PodNic, ...]:
    """Return the NICs with the reported settings of their virtual functions."""
    by_place = dict(settings)
    return tuple(
        replace(nic, link=replace(nic.link, settings=by_place.get(nic.link.virtual)))
        if nic.link.virtual
        else nic
        for nic in nics
    )


def before_move(nic: PodNic) -> Iterator[SetFunction]:
    """Yield the change of a function's settings, except the MAC.

    Raise Refused if it is not reversible.
    """
    link, network = nic.link, nic.network
    asked = network.function if isinstance(network, kinds.DeviceNetwork) else None
    wanted, wide = asked or FunctionSettings(), link.link_type == _INFINIBAND
    if wide:
        wanted = function_settings(nic, wanted)
    if link.virtual is None or wanted == FunctionSettings():
        return
    if link.settings is None:
        place = link.virtual
        problem = (
            f"{place.physical.name} reports nothing about its virtual function {place.number}, "
            "so it could not be set back"
        )
        remedy = 'Use a card whose driver reports it, or write "type": "host-device"'
        raise refused(nic.entry, "type", problem, remedy)
    previous = with_own_guids(nic, link.settings) if wide else link.settings
    asked_fields = (name for name in _FIELDS if getattr(wanted, name) is not None)
    restored = {name: getattr(previous, name) for name in asked_fields}
    yield SetFunction(link.virtual, wanted, replace(FunctionSettings(), **restored))


def after_move(nic: PodNic) -> Iterator[SetFunction]:
    """Yield the change of a function's administrative MAC, where the pod asks for a MAC.

    Where the driver does not report the present one, only the link gets the MAC.
    """
    link, mac = nic.link, nic.entry.mac
    if link.virtual is None or link.settings is None or mac is None:
        return
    if link.settings.mac is not None and link.link_type != _INFINIBAND:
        previous = FunctionSettings(mac=link.settings.mac)
        yield SetFunction(link.virtual, FunctionSettings(mac=mac.lower()), previous)


def refuse_function(entry: MatchedEntry, link: HostLink, card: Card | None) -> None:
    """Raise Refused where a network for virtual functions meets another kind of link."""
    wide = link.link_type == _INFINIBAND
    if wide is not isinstance(entry.network, kinds.IbSriovNetwork):
        type_, other = ("sriov", "ib-sriov") if wide else ("ib-sriov", "sriov")
        what = "InfiniBand" if wide else "not InfiniBand"
        problem = f"{type_} does not work on {link.name}, which is {what}"
        asked = entry.network.function if isinstance(entry.network, kinds.DeviceNetwork) else None
        partition = ', and "pkey" in place of "vlan"' if wide and asked and asked.vlan else ""
        raise refused(entry, "type", problem, f'Write "type": "{other}"{partition}')
    if link.virtual is None:
        raise _no_place(entry, link, card)


def refuse_late_mac(entry: MatchedEntry, link: HostLink, card: Card | None) -> None:
    """Raise Refused for a MAC where a function lacks the node GUID that its driver makes of it."""
    driver = card.function.driver if card and card.function else None
    if link.virtual is None or link.link_type == _INFINIBAND or driver not in _GUID_OF_MAC:
        return
    asked = entry.mac and entry.network.rdma
    devices = card.devices if card else ()
    lacking = [one for one in devices if one.lacks_guid and not one.is_soft]
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
        raise refused(entry, "mac", problem, remedy)


def no_link(entry: MatchedEntry, card: Card, pod: str | None) -> Refused:
    """Return the refusal for a card whose interface is not on the node, but perhaps in `pod`."""
    what = "virtual function" if card.position and card.position.physical_function else "card"
    if card.function and card.function.for_programs:
        problem = f"{what} {card.name} has no interface: its driver is {card.function.driver}"
        remedy = "Name no network for it, or bind it to the driver of a network card"
        return refused(entry, "resource", problem, remedy)
    problem = f"{what} {card.name} has no interface on the node now"
    if pod:
        problem = f"{what} {card.name} is in the pod {pod}"
    return refused(entry, "resource", problem, UNTIL_IT_ENDS)


def differing(step: SetFunction, seen: PodView) -> tuple[str, ...]:
    """Return sentences on settings of a virtual function that differ from the Step's."""
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


def _no_place(entry: MatchedEntry, link: HostLink, card: Card | None) -> Refused:
    position = card.position if card else None
    if position and position.physical_function:
        above = position.physical_function
        problem = f"{link.name} cannot be set up: its physical function has no interface here"
        remedy = f'Let the node keep the interface of {above}, or write "type": "host-device"'
        return refused(entry, "type", problem, remedy)
    physical = position is not None and position.sriov_total is not None
    what = "a physical one" if physical else "not one"
    type_ = "ib-sriov" if isinstance(entry.network, kinds.IbSriovNetwork) else "sriov"
    problem = f"{type_} is for virtual functions, and {link.name} is {what}"
    remedy = 'Use a pool of virtual functions, or write "type": "host-device"'
    return refused(entry, "type", problem, remedy)


def _word(value: object) -> object:
    return ("on" if value else "off") if isinstance(value, bool) else value
