"""Makes cards of a survey's devices and functions, and decides which cards a pool means.

A pool's selectors choose first, then its mode takes what it can. The module pools/rules/pools asks
for every card; `config check --node` shows why a card is not in a pool. One value of each given
field has to match, as in the configurations of the shared and of the SR-IOV device plugin.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from kube_base.frozen import replace
from kube_rdma.lib.phrases import listed, no_carrier
from kube_rdma.model.card import Card, CardId, Function, Netdev
from kube_rdma.model.device import Device, LinkLayer, PciAddress, Port
from kube_rdma.model.pools import FunctionRange, Pool, PoolSpec, Selector
from kube_rdma.model.survey import Survey, Verdict
from kube_rdma.pools.rules.modes import Takes, terms

# Cards: the units that pools are made of.

# A share is <card>-<slot> and the kubelet allows 63 characters, which leaves 8 digits for the slot.
# Only names that people gave to soft devices reach it: an RDMA device may have 63 characters.
_LONGEST = 54
_DIGEST = 8


def cards(survey: Survey, verdicts: Sequence[Verdict]) -> tuple[Card, ...]:
    """Return cards made of the survey's network functions and devices, sorted by id.

    `verdicts` are on these devices. Soft devices of pods are left out.
    """
    functions = {CardId(function.position.pci): function for function in survey.functions}
    groups: dict[CardId, list[Verdict]] = {name: [] for name in functions}
    for verdict in verdicts:
        if of_a_pod(verdict.device):
            continue
        groups.setdefault(card_id(verdict.device), []).append(verdict)
    managing: dict[CardId, list[Device]] = {}
    for device in survey.management:
        managing.setdefault(card_id(device), []).append(device)
    made = (_card(name, group, functions, managing) for name, group in groups.items())
    return tuple(sorted(made, key=lambda card: card.id))


def card_id(device: Device) -> CardId:
    """Return the id of a device's card: its auxiliary device, PCI function or else identity.

    A long id is cut and ends in a digest.
    """
    name = device.auxiliary or (device.position.pci if device.position else device.identity)
    if len(name) > _LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
        name = f"{name[: _LONGEST - _DIGEST - 1]}.{digest}"
    return CardId(name)


def of_a_pod(device: Device) -> bool:
    """Decide whether a device is a soft one of a pod: the node does not see its interface."""
    return device.is_soft and not any(port.netdev for port in device.ports)


def is_vital(card: Card) -> bool:
    """Decide whether the node itself may be reached through this card."""
    return any(netdev.vital for netdev in _netdevs(card.function))


def interfaces(card: Card, functions: Iterable[Function]) -> tuple[Netdev, ...]:
    """Return every interface that moves with the card; `functions` are all of the node.

    These are its own, and interfaces of its RDMA ports: with eRDMA they are another function's,
    which has the same MAC (erdma_enum_and_get_netdev, drivers/infiniband/hw/erdma/erdma_main.c).
    """
    own = _netdevs(card.function)
    ports = {port.netdev for device in card.devices for port in device.ports if port.netdev}
    ports -= {netdev.name for netdev in own}
    if not ports:
        return own
    others = (netdev for function in functions for netdev in function.netdevs)
    return (*own, *(netdev for netdev in others if netdev.name in ports))


def _card(
    name: CardId,
    group: Sequence[Verdict],
    functions: Mapping[CardId, Function],
    managing: Mapping[CardId, Sequence[Device]],
) -> Card:
    # Keyed by the card's own id: a sub-function is not the function that it lies on.
    function = functions.get(name)
    devices = tuple(verdict.device for verdict in group)
    reasons: list[str] = []
    if not group and function:
        reasons = list(_bare_reasons(function, functions))
    elif not any(verdict.usable for verdict in group):
        reasons = [reason for verdict in group for reason in verdict.reasons]
    return Card(
        name, devices, function, tuple(dict.fromkeys(reasons)), tuple(managing.get(name, ()))
    )


def _bare_reasons(function: Function, functions: Mapping[CardId, Function]) -> Iterator[str]:
    """Yield the reasons why a function without an RDMA device cannot be used."""
    if function.driver is None:
        yield "no driver is bound to it: load its module, dmesg may say why it did not bind"
    above = functions.get(CardId(function.position.physical_function or function.position.pci))
    for netdev in dict.fromkeys((*function.own_netdevs, *(above.own_netdevs if above else ()))):
        if netdev.up and netdev.carrier is False:
            yield no_carrier(netdev.name)


def _netdevs(function: Function | None) -> tuple[Netdev, ...]:
    return function.netdevs if function else ()


# Selection: the cards that a pool means.

_LINK_TYPES = {LinkLayer.ETHERNET: "ether", LinkLayer.INFINIBAND: "infiniband"}
_ROUTE = "the node's default route leads through it, as far as the kernel shows"
_NAME_IT = "name the card in a selector to give it away all the same"
_MOVING = (Takes.MOVABLE, Takes.FUNCTION)
_NAMING = ("interfaces", "pci_addresses", "acpi_indexes", "rdma_devices", "physical", "roots")
# "an" is for accelerated networking (Azure/azhpc-images, install_azure_persistent_rdma_naming.sh):
# a virtual function for the traffic of the machine's own Ethernet interface.
_ACCELERATED = re.compile(r"mlx5_an\d+")
_SINGLE = ("interface", "PCI address", "ACPI index", "RDMA device")  # each names one card
_MEMBER = 0x7FFF  # a partition key without the bit that tells full from limited members

Functions = Mapping[PciAddress, Function]


def why_not(spec: PoolSpec, card: Card, functions: Functions) -> str | None:
    """Return why `card` does not belong to the pool of `spec`, None when it does.

    `functions` are all network functions of the node: a virtual one is also chosen by its physical
    one's interface.
    """
    reasons = [unmet(selector, card, functions) for selector in spec.selectors]
    if reasons and all(reasons):
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return (
        _untakable(terms(spec).takes, spec, card)
        or _accelerating(spec, card, functions)
        or _needed(spec, card, functions)
    )


def spared(spec: PoolSpec, card: Card, functions: Functions) -> str | None:
    """Return why a selected card is kept for the node; None if it is not selected or not kept.

    Return None also for a virtual machine's fast path, for a virtual or sub-function, and for a
    card without an RDMA device.
    """
    if not card.devices or _part(card) or _untakable(terms(spec).takes, spec, card):
        return None
    if spec.selectors and all(unmet(one, card, functions) for one in spec.selectors):
        return None
    return None if _accelerating(spec, card, functions) else _needed(spec, card, functions)


def left_out(
    pools: Sequence[Pool], node: Sequence[Card], functions: Functions
) -> dict[CardId, str]:
    """Return cards in no pool, each with a sentence on the name that a selector probably has wrong.

    Cards are left out on purpose too, such as cards for storage, and a selector may name the cards
    of several kinds of nodes. So a card counts if another of its model is in the pool. Names that
    the node lacks count while they are no more than such cards, and than names that the node has.
    While the name of a card of this model is hidden, as inside of a pod, none counts.
    """
    pooled = {card.id for pool in pools for card in pool.cards}
    found: dict[CardId, str] = {}
    for pool in pools:
        models = set(map(_model, pool.cards))
        alike = [card for card in node if _model(card) in models and not _part(card)]
        fields = [field for field in _FIELDS if field.word in _SINGLE]
        for selector, field in product(pool.spec.selectors, fields):
            if not (names := field.choice(selector)):
                continue
            kind = replace(
                selector, interfaces=(), pci_addresses=(), acpi_indexes=(), rdma_devices=()
            )
            means = replace(pool.spec, selectors=(kind,))
            shown = {card.id: set(field.facts(card, card.function)) for card in node}
            lacking = [name for name in names if not any(name in has for has in shown.values())]
            left = [c for c in alike if c.id not in pooled and not why_not(means, c, functions)]
            most = min(len(left), len(names) - len(lacking))
            if 0 < len(lacking) <= most and all(shown[card.id] for card in alike):
                named = f"{pool.spec.resource} ({pool.spec.source}) names {listed(lacking)}"
                for card in left:
                    why = unmet(selector, card, functions)
                    found[card.id] = f"{why}; {named}, which the node does not have"
    return found


def _model(card: Card) -> tuple[int, int] | None:
    return (card.function.vendor, card.function.device) if card.function else None


def _accelerating(spec: PoolSpec, card: Card, functions: Functions) -> str | None:
    """Return why pods do not get an accelerating card; None for others, and if selected by name."""
    return None if _is_named(spec, card, functions) else accelerates(card, functions)


def accelerates(card: Card, functions: Functions) -> str | None:
    """Return why a card accelerates a virtual machine's own interface; None if it does not."""
    netdevs = interfaces(card, functions.values())
    masters = [netdev.master for netdev in netdevs if netdev.fast_path]
    names = [device.name for device in card.devices if _ACCELERATED.fullmatch(device.name)]
    if masters:
        problem = f"it carries the traffic of {masters[0]}, the virtual machine's own interface"
    elif names:
        problem = f"{names[0]} accelerates the virtual machine's own interface"
    else:
        return None
    return f"{problem}: {_NAME_IT}"


def _needed(spec: PoolSpec, card: Card, functions: Functions) -> str | None:
    """Return why the node needs `card`, if the spec's mode would move it into a pod; else None.

    A card that is named by itself is kept only if an interface of it is enslaved, or its loss
    would cut the node off. An address with its own routes is no such need, for the cards of a
    fabric have one each on the node (docs/decisions/0024). The address of the Node object is one.
    """
    if not moves(spec):
        return None
    netdevs = interfaces(card, functions.values())
    for netdev in netdevs:
        if netdev.master:
            return f"{netdev.name} is enslaved to {netdev.master}, which would not get it back"
    if any(netdev.default_route is not False for netdev in netdevs):
        return _ROUTE
    for netdev in netdevs:
        if netdev.needed:
            return f"{netdev.name} carries {netdev.needed}, without which the node is cut off"
    if _is_named(spec, card, functions):
        return None
    return next(filter(None, map(_used, netdevs)), None)


def moves(spec: PoolSpec) -> bool:
    """Decide whether the spec's mode moves a card with its interfaces into the pod."""
    return terms(spec).takes in _MOVING


def asked_uses(specs: Sequence[PoolSpec]) -> bool:
    """Decide whether any spec moves cards into pods, so that the node's use of them matters."""
    return any(map(moves, specs))


def _is_named(spec: PoolSpec, card: Card, functions: Functions) -> bool:
    """Decide whether one of the spec's selectors names this card individually."""
    naming = filter(_names, spec.selectors)
    return any(unmet(selector, card, functions) is None for selector in naming)


def _names(selector: Selector) -> bool:
    """Decide whether a selector names individual cards, rather than a kind of card."""
    return any(getattr(selector, field) for field in _NAMING)


def _used(netdev: Netdev) -> str | None:
    """Return what the node uses an interface for, and how to allow its loss; None if nothing."""
    use = netdev.use
    if use is None:
        return None
    if use.above:
        return f"{listed(use.above)} stands on {netdev.name}: {_NAME_IT}"
    if use.storage:
        return f"{netdev.name} leads to storage, {listed(use.storage)}: {_NAME_IT}"
    if use.beyond:
        return f"the node's routes to {listed(use.beyond)} lead through {netdev.name}: {_NAME_IT}"
    return None


def _untakable(takes: Takes, spec: PoolSpec, card: Card) -> str | None:
    """Return why a mode cannot take `card`, whatever its use by the node; None if it can."""
    if takes is Takes.FUNCTION:
        if card.function is None:
            asked = any(selector.auxiliary_types for selector in spec.selectors)
            return None if asked else "it is not a PCI function"
        if card.function.position.virtual_functions:
            return "it has virtual functions, which pods get instead of it"
        return None
    if not card.devices:
        return "it has no RDMA device"
    if takes is Takes.RDMA:
        return None
    if part := _part(card):
        return f"it is {part}, and mode {spec.mode} takes physical cards"
    if takes is Takes.MOVABLE and card.function is None:
        return f"it is not a PCI function, and mode {spec.mode} moves one into the pod"
    return None


def _part(card: Card) -> str | None:
    """Return "a virtual function" or "a sub-function"; None if the card is a whole physical one."""
    if card.function is not None and card.function.position.physical_function is not None:
        return "a virtual function"
    return "a sub-function" if any(device.auxiliary for device in card.devices) else None


def unmet(selector: Selector, card: Card, functions: Functions) -> str | None:
    """Name the first field of `selector` that the card does not meet; None if it meets all."""
    base = card.function or (functions.get(card.pci) if card.pci else None)
    for field in _FIELDS:
        choice, facts = field.choice(selector), list(dict.fromkeys(field.facts(card, base)))
        if choice and not facts:
            return f"it has no {field.word}, and one of {', '.join(choice)} is asked for"
        if choice and set(choice).isdisjoint(facts):
            are = "is" if len(facts) == 1 else "are"
            return f"{field.word} {' and '.join(facts)} {are} not among {', '.join(choice)}"
    for ranges in (selector.physical, selector.roots):
        if ranges and not any(_in_range(one, card, functions) for one in ranges):
            return f"it is not among {', '.join(map(str, ranges))}"
    if selector.rdma is not None and bool(card.devices) is not selector.rdma:
        return "it has no RDMA device" if selector.rdma else "it has an RDMA device"
    return None


def _in_range(function_range: FunctionRange, card: Card, functions: Functions) -> bool:
    """Decide whether the card is in a range; without indexes the range is the whole function."""
    position = card.position
    address = (position.physical_function or position.pci) if position else None
    physical = functions.get(address) if address else None
    if physical is None or function_range.parent not in (
        address,
        *(netdev.name for netdev in physical.netdevs),
    ):
        return False
    # The number of a sub-function is the one that the user gave it.
    given = (d.subfunction for d in card.devices if d.subfunction is not None)
    index = card.function.vf_index if card.function else next(given, None)
    return not function_range.indexes or (
        index is not None and any(first <= index <= last for first, last in function_range.indexes)
    )


def _ports(card: Card) -> Iterator[Port]:
    return (port for device in card.devices for port in device.ports)


def _drivers(card: Card, base: Function | None) -> Iterator[str]:
    drivers = (base.driver if base else None, *(device.driver for device in card.devices))
    return (driver for driver in drivers if driver)


def _interfaces(card: Card, _: Function | None) -> Iterator[str]:
    if card.function:
        yield from (netdev.name for netdev in card.function.netdevs)
    yield from (port.netdev for port in _ports(card) if port.netdev)


def _link_types(card: Card, _: Function | None) -> Iterator[str]:
    if card.function:
        yield from (netdev.link_type for netdev in card.function.netdevs if netdev.link_type)
    layers = (port.link_layer for port in _ports(card))
    yield from (_LINK_TYPES[layer] for layer in layers if layer in _LINK_TYPES)


def _auxiliary_types(card: Card, _: Function | None) -> Iterator[str]:
    """Yield the type in auxiliary device names, ``sf`` in ``mlx5_core.sf.4``; skip other names."""
    parts = (device.auxiliary.split(".") for device in card.devices if device.auxiliary)
    return (name[1] for name in parts if len(name) > 1)


def _key(pkey: int) -> str:
    return f"0x{pkey & _MEMBER:04x}"


class _Field(NamedTuple):
    """One field of a selector: its name in messages, the values it demands, and the card's values.

    `facts` takes the card and its PCI function, which for a sub-function is the one it lies on.
    """

    word: str
    choice: Callable[[Selector], Sequence[str]]
    facts: Callable[[Card, Function | None], Iterable[str]]


_FIELDS = (
    _Field("vendor", lambda s: s.vendors, lambda _, f: [f"{f.vendor:04x}"] if f else []),
    _Field("device id", lambda s: s.device_ids, lambda _, f: [f"{f.device:04x}"] if f else []),
    _Field("driver", lambda s: s.drivers, _drivers),
    _Field("interface", lambda s: s.interfaces, _interfaces),
    _Field("link type", lambda s: s.link_types, _link_types),
    _Field("PCI address", lambda s: s.pci_addresses, lambda c, _: [c.pci] if c.pci else []),
    _Field(
        "ACPI index",
        lambda s: [str(index) for index in s.acpi_indexes],
        lambda _, f: [] if f is None or f.acpi_index is None else [str(f.acpi_index)],
    ),
    _Field("auxiliary type", lambda s: s.auxiliary_types, _auxiliary_types),
    _Field("RDMA device", lambda s: s.rdma_devices, lambda c, _: [d.name for d in c.devices]),
    _Field(
        "partition key",
        lambda s: [_key(pkey) for pkey in s.pkeys],
        lambda c, _: [_key(port.pkey) for port in _ports(c) if port.pkey is not None],
    ),
)
