"""Makes cards out of devices and functions: the units that pools are made of.

Between pools/rules/health/discovery, whose verdicts it takes, and pools/rules/pools. A function
joins the RDMA devices on it; one without any is a card too, because a virtual function gets its
soft device only in the pod, and a card that sits inside a pod shows none here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_rdma.lib.phrases import no_carrier
from kube_rdma.model.card import Card, CardId, Function, Netdev
from kube_rdma.model.device import Device
from kube_rdma.model.survey import Survey, Verdict

# A share is <card>-<slot> and the kubelet allows 63 characters, which leaves 8 digits for the slot.
# Only names that people gave to soft devices reach it: an RDMA device may have 63 characters.
_LONGEST = 54
_DIGEST = 8


def cards(survey: Survey, verdicts: Sequence[Verdict]) -> tuple[Card, ...]:
    """Every card of the node, sorted by id; `verdicts` are those on the survey's devices."""
    functions = {CardId(function.seat.pci): function for function in survey.functions}
    groups: dict[CardId, list[Verdict]] = {name: [] for name in functions}
    for verdict in verdicts:
        if of_a_pod(verdict.device):
            continue
        groups.setdefault(card_id(verdict.device), []).append(verdict)
    made = (_card(name, group, functions) for name, group in groups.items())
    return tuple(sorted(made, key=lambda card: card.id))


def card_id(device: Device) -> CardId:
    """The card that `device` belongs to: its auxiliary device, its function, else itself."""
    name = device.auxiliary or (device.seat.pci if device.seat else device.identity)
    if len(name) > _LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
        name = f"{name[: _LONGEST - _DIGEST - 1]}.{digest}"
    return CardId(name)


def of_a_pod(device: Device) -> bool:
    """Whether a soft device was made inside a pod: one node shows those of all namespaces.

    Its interface is nowhere to be seen from here; where an interface ends, so does its device.
    """
    return device.is_soft and not any(port.netdev for port in device.ports)


def is_vital(card: Card) -> bool:
    """Whether the node itself is, or may be, reached through this card."""
    return any(netdev.vital for netdev in _netdevs(card.function))


def interfaces(card: Card, functions: Iterable[Function]) -> tuple[Netdev, ...]:
    """Every interface that goes where the card goes; `functions` are all of the node.

    Its own, and those that its RDMA ports belong to: of eRDMA they are another function's, which
    has the same MAC (erdma_enum_and_get_netdev, drivers/infiniband/hw/erdma/erdma_main.c).
    """
    own = _netdevs(card.function)
    ports = {port.netdev for device in card.devices for port in device.ports if port.netdev}
    ports -= {netdev.name for netdev in own}
    if not ports:
        return own
    others = (netdev for function in functions for netdev in function.netdevs)
    return (*own, *(netdev for netdev in others if netdev.name in ports))


def _card(name: CardId, group: Sequence[Verdict], functions: Mapping[CardId, Function]) -> Card:
    # Keyed by the card's own id: a sub-function is not the function that it lies on.
    function = functions.get(name)
    devices = tuple(verdict.device for verdict in group)
    reasons: list[str] = []
    if not group and function:
        reasons = list(_bare_reasons(function, functions))
    elif not any(verdict.usable for verdict in group):
        reasons = [reason for verdict in group for reason in verdict.reasons]
    return Card(name, devices, function, tuple(dict.fromkeys(reasons)))


def _bare_reasons(function: Function, functions: Mapping[CardId, Function]) -> Iterator[str]:
    """What stands against a function that shows no RDMA device."""
    if function.driver is None:
        yield "no driver is bound to it: load its module, dmesg may say why it did not bind"
    above = functions.get(CardId(function.seat.physical_function or function.seat.pci))
    for netdev in dict.fromkeys((*function.netdevs, *_netdevs(above))):
        if netdev.up and netdev.carrier is False:
            yield no_carrier(netdev.name)


def _netdevs(function: Function | None) -> tuple[Netdev, ...]:
    return function.netdevs if function else ()
