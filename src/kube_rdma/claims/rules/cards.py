"""What the pools of a node offer to claims: one device for a card, or one for a whole pool.

Behind pools/rules/pools, before claims/rules/shape. Attributes say what a card is, so that the
start of a pod changes none: what is true for now are taints. The names are those that
docs/decisions/0101 lists; `resource.kubernetes.io/` has the standard's
(k8s.io/dynamic-resource-allocation/deviceattribute, and numaNode of KEP-4381).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen, field
from kube_rdma.claims.rules.names import device_name
from kube_rdma.lib.phrases import listed
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.device import DRIVER
from kube_rdma.model.claims.offered import Attributes, DeviceTaint, OfferedCard, TaintEffect
from kube_rdma.model.device import LinkLayer, Port, PortState
from kube_rdma.model.pools.pool import Bind, Pool
from kube_rdma.pools.rules.modes import MODES, terms
from kube_rdma.pools.rules.rails import physical

RailOf = Callable[[CardId], int | None]
Facts = Mapping[str, str | int | None]

STANDARD = "resource.kubernetes.io/"
UNHEALTHY = DeviceTaint(f"{DRIVER}/unhealthy", TaintEffect.NO_SCHEDULE)
DEGRADED = DeviceTaint(f"{DRIVER}/degraded", TaintEffect.NONE)

_TEXT = 64  # bytes of an attribute (DeviceAttributeMaxValueLength, k8s.io/api/resource/v1)


class ClaimOffer(Frozen):
    """What a node offers to claims, and a sentence for what cannot be offered.

    `resources` are those of the devices whose pools claims alone serve, by the device's name.
    """

    cards: tuple[OfferedCard, ...] = ()
    refusals: tuple[str, ...] = ()
    resources: Mapping[str, str] = field(default_factory=dict)


def claim_offer(pools: Iterable[Pool], rail: RailOf = lambda _: None) -> ClaimOffer:
    """What the pools come to; cards of several pools belong to the first of them.

    Nothing counts a card that claims could get as two devices but counters, and a pool with these
    needs several slices for one change.
    """
    offered: dict[str, OfferedCard] = {}
    owners: dict[CardId, Pool] = {}
    refusals: list[str] = []
    for pool in pools:
        twice = [card for card in pool.cards if card.id in owners]
        if twice:
            refusals.append(_twice(owners[twice[0].id], pool, twice))
        whole = terms(pool.spec).bind is Bind.POOL
        mine = [card for card in pool.cards if card.id not in owners]
        if whole and twice:
            continue
        owners |= {card.id: pool for card in mine}
        made = _whole(pool) if whole else (_single(pool, card, rail) for card in mine)
        for device in made:
            if device.name in offered:
                refusals.append(_namesakes(pool, device))
                continue
            offered[device.name] = device
    return ClaimOffer(tuple(offered.values()), tuple(refusals))


def _single(pool: Pool, card: Card, rail: RailOf) -> OfferedCard:
    """The device of one card."""
    facts: dict[str, str | int | None] = {
        **_facts(card),
        "rail": rail(card.id),
        "kind": _kind(card),
        **_names(pool),
    }
    taints = () if card.usable and not _partly(card) else (_ill(card.usable),)
    return OfferedCard(
        device_name(pool, card),
        physical(card),
        _attributes(facts),
        slots=terms(pool.spec).shares,
        shared=_is_shared(pool),
        taints=taints,
    )


def _whole(pool: Pool) -> Iterator[OfferedCard]:
    """The device of a pool whose shares stand for it, with what all of its cards have in common."""
    if not pool.cards:
        return
    alike = [_facts(card) for card in pool.cards]
    own = {f"{STANDARD}pciBusID", "rdmaDevice", "interface"} if len(alike) > 1 else set()
    common: dict[str, str | int | None] = {}
    for name in alike[0].keys() - own:
        values = {facts[name] for facts in alike} - {None}
        common[name] = values.pop() if len(values) == 1 else None
    usable = [card.usable for card in pool.cards]
    name = device_name(pool, None)
    yield OfferedCard(
        name,
        name,
        _attributes({**common, "kind": "pool", **_names(pool)}),
        slots=terms(pool.spec).shares,
        shared=True,
        taints=() if all(usable) else (_ill(any(usable)),),
    )


def _facts(card: Card) -> Facts:
    """What is known of a card; None for what is not, or not for sure while its link is down."""
    ports = [port for device in card.devices for port in device.ports]
    active = [port for port in ports if port.state is PortState.ACTIVE]
    seat, numa = card.seat, card.numa_node
    return {
        f"{STANDARD}pciBusID": seat.pci if seat else None,
        f"{STANDARD}pcieRoot": seat.root if seat else None,
        f"{STANDARD}numaNode": numa if numa is not None and numa >= 0 else None,
        "rdmaDevice": card.devices[0].name if card.devices else None,
        "interface": _interface(card, ports),
        "linkLayer": _link_layer(ports),
        "rateGbps": next((int(port.rate_gbps) for port in active if port.rate_gbps), None),
        "vendor": f"{card.function.vendor:04x}" if card.function else None,
        "driver": (card.function.driver if card.function else _driver(card)) or None,
    }


def _names(pool: Pool) -> Facts:
    """What a device has of its pool; classes select by the resource."""
    resource = pool.spec.resource
    return {
        "mode": pool.spec.mode.value,
        "resource": resource if len(resource.encode()) <= _TEXT else None,
    }


def _interface(card: Card, ports: Sequence[Port]) -> str | None:
    own = card.function.netdevs if card.function else ()
    if own:
        return own[0].name
    return next((port.netdev for port in ports if port.netdev), None)


def _link_layer(ports: Sequence[Port]) -> str | None:
    layers = [port.link_layer for port in ports if port.link_layer is not LinkLayer.UNKNOWN]
    return layers[0].value.lower() if layers else None


def _driver(card: Card) -> str | None:
    return card.devices[0].driver if card.devices else None


def _kind(card: Card) -> str:
    """Which part of the hardware a card is."""
    if any(device.subfunction is not None or device.auxiliary for device in card.devices):
        return "sf"
    if card.function is None and any(device.is_soft for device in card.devices):
        return "soft"
    return "vf" if card.seat and card.seat.physical_function else "pf"


def _is_shared(pool: Pool) -> bool:
    """Whether a card is for several claims at a time; one share of a shared mode is still one."""
    return MODES[pool.spec.mode].most != 1


def _partly(card: Card) -> bool:
    """Whether a port of a usable card carries no traffic while another does."""
    states = {port.state is PortState.ACTIVE for device in card.devices for port in device.ports}
    return len(states) > 1


def _ill(usable: bool) -> DeviceTaint:
    return DEGRADED if usable else UNHEALTHY


def _attributes(facts: Facts) -> Attributes:
    """Sorted, without what is not known; texts are cut at the API's limit."""
    values = ((name, value) for name, value in sorted(facts.items()) if value is not None)
    return tuple((name, value if isinstance(value, int) else _cut(value)) for name, value in values)


def _cut(text: str) -> str:
    return str(text).encode()[:_TEXT].decode(errors="ignore")


def _twice(first: Pool, second: Pool, cards: Sequence[Card]) -> str:
    names = listed([card.name for card in cards])
    lost = (
        f"so that claims get no {second.spec.resource}"
        if terms(second.spec).bind is Bind.POOL
        else f"which claims get by {first.spec.resource} alone"
    )
    return (
        f"{first.spec.resource} ({first.spec.source}) and {second.spec.resource} "
        f"({second.spec.source}) both have {names}, {lost}: select each card in one pool"
    )


def _namesakes(pool: Pool, device: OfferedCard) -> str:
    return (
        f"{pool.spec.resource} ({pool.spec.source}) has a second device {device.name}, which "
        "claims cannot tell from the first: give the soft device or the resource another name"
    )
