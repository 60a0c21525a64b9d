"""Judges a node, all of it and in one order: its cards, what is wrong with each, and its pools.

The agent asks at every look, `config check --node` once and with less known. Each pass adds reasons
to cards, so the order is part of the answer: what a card is by itself (cards.py), what its pool
needs of it (health.py), what no survey sees (absence.py, absence.py), then what has to last
(absence.py), then who has it already; pools are made of what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from shlex import quote

from kube_base.frozen import Frozen, field, replace
from kube_rdma.lib.phrases import listed, no_carrier
from kube_rdma.model.card import USER_SPACE, Card, CardId
from kube_rdma.model.device import (
    CharKind,
    Device,
    LinkLayer,
    PciAddress,
    PhysicalState,
    PodLink,
    Port,
    PortState,
)
from kube_rdma.model.pools import Attach, FunctionsWish, Pool, PoolSpec, Variables
from kube_rdma.model.survey import NamespaceMode, Survey, Verdict
from kube_rdma.pools.rules.absence import (
    DEVICE_GONE,
    MOVED,
    Assessment,
    Health,
    assess,
    inside_pod,
    is_away,
    with_missing_nodes,
)
from kube_rdma.pools.rules.functions import outside
from kube_rdma.pools.rules.modes import Takes, terms
from kube_rdma.pools.rules.pools import Clash, Held, owners, resolve
from kube_rdma.pools.rules.selection import cards, interfaces, moves, spared

# Which devices can be given to a pod, and why the others cannot.

_IWARP = "RNIC"  # node type
_NO_CONNECTION_MANAGER = frozenset({"unspecified", "usNIC", "usNIC UDP"})  # node types


def judge(survey: Survey) -> tuple[Verdict, ...]:
    """A verdict on each device, in the order of the survey."""
    managed = survey.rdma_cm is not None
    return tuple(
        Verdict(device, tuple(_reasons(device, managed=managed))) for device in survey.devices
    )


def notes(survey: Survey) -> tuple[str, ...]:
    """What a person should know about the node as a whole; none of it makes a device unusable."""
    return tuple(_notes(survey))


def lasting(device: Device, *, managed: bool) -> Iterator[str]:
    """What stands against `device` whatever becomes of its link.

    `managed` says that the node has a connection manager.
    """
    if not any(char.kind is CharKind.UVERBS for char in device.char_devices):
        yield "no uverbs device, so no program can open it: modprobe ib_uverbs"
    if not device.ports:
        yield "no port: the driver has registered none, dmesg may say why"
    if device.node_type == _IWARP and not managed:
        yield "no connection manager, through which alone iWARP connects: modprobe rdma_ucm"


def idle(device: Device) -> str | None:
    """Why none of its ports carries traffic; None when one does, or there is none."""
    if not device.ports or any(port.state is PortState.ACTIVE for port in device.ports):
        return None
    return "no port is ACTIVE; " + "; ".join(_inactive(device, port) for port in device.ports)


def _reasons(device: Device, *, managed: bool) -> Iterator[str]:
    """What stands against `device` as it is now."""
    yield from lasting(device, managed=managed)
    link = idle(device) or _unaddressed(device)
    if link:
        yield link


def _unaddressed(device: Device) -> str | None:
    """Why no peer reaches a device of which ports carry traffic."""
    active = [port for port in device.ports if port.state is PortState.ACTIVE]
    if not active or any(_has_address(device, port) for port in active):
        return None
    return "no peer can address it; " + "; ".join(_without_gid(port) for port in active)


def _has_address(device: Device, port: Port) -> bool:
    """RoCE peers meet by GID; iWARP has the IP addresses of its interface, other links fixed ones.

    An InfiniBand port makes its first GID of its own GUID, so its table is never empty.
    """
    return (
        bool(port.gids) or port.link_layer is not LinkLayer.ETHERNET or device.node_type == _IWARP
    )


def _without_gid(port: Port) -> str:
    """One RoCE port with an empty GID table: its interface gives it the entries."""
    has_none = f"port {port.number} has no GID"
    if port.netdev is None:
        return f"{has_none}: set its interface up and give it an IP address"
    if port.bond:
        bond = f"{port.bond}, which {port.netdev} is enslaved to"
        return f"{has_none}: use the device that carries {bond}, or take it out of the bond"
    return f"{has_none}: ip link set {quote(port.netdev)} up and give it an IP address"


def _inactive(device: Device, port: Port) -> str:
    """One port that carries no traffic: what it is instead, and the usual remedy."""
    return f"port {port.number} is {port.state} ({port.physical_state}): {_remedy(device, port)}"


def _remedy(device: Device, port: Port) -> str:
    if port.state is PortState.UNKNOWN:
        return "its state could not be read, see the faults"
    disabled = port.physical_state is PhysicalState.DISABLED
    if disabled and port.link_layer is LinkLayer.ETHERNET:
        return f"ip link set {quote(port.netdev)} up" if port.netdev else "set its interface up"
    if disabled:
        return "enable the port (ibportstate)"
    if port.physical_state is PhysicalState.LINK_UP and port.link_layer is LinkLayer.INFINIBAND:
        return _fabric_remedy(device, port)
    behind = f" behind {port.netdev}" if port.netdev else ""
    return f"check the cable and the switch port{behind}"


def _fabric_remedy(device: Device, port: Port) -> str:
    """An InfiniBand port whose cable is fine: who has to bring it up."""
    physical = device.seat.physical_function if device.seat else None
    if port.state is PortState.DOWN and physical:
        return f"its virtual link is down, on {physical}: ip link set INTERFACE vf N state auto"
    if port.sm_lid is None:
        return "the cable is fine, but there is no subnet manager; start opensm or ask for one"
    return f"the subnet manager at LID {port.sm_lid} has not activated it; its log says why"


def _notes(survey: Survey) -> Iterator[str]:
    managed = any(d.node_type not in _NO_CONNECTION_MANAGER for d in survey.devices)
    if survey.rdma_cm is None and managed:
        yield (
            "/dev/infiniband/rdma_cm is missing, so iWARP and programs that connect through "
            "librdmacm will not work: modprobe rdma_ucm"
        )
    if survey.namespace_mode is NamespaceMode.EXCLUSIVE:
        yield (
            "RDMA devices belong to one network namespace each: a pod sees a card only after it "
            "was moved there, and Soft-RoCE does not work in pods"
        )


# Judges cards as members of their pools: what stands against giving one away as this pool does.

Holders = Mapping[str, Mapping[CardId, tuple[str, ...]]]  # by resource and card the pods


def as_members(
    specs: Sequence[PoolSpec], node: Sequence[Card], survey: Survey, placed: Held
) -> tuple[Card, ...]:
    """The node's cards of pools/rules/selection, each judged as the pool needs that has it.

    `placed` says by resource which cards belong to it, as pods hold them.
    """
    specs_by_card = owners(specs, node, placed)
    members = _Members(survey)
    return tuple(
        replace(card, reasons=members.reasons(spec, card))
        if (spec := specs_by_card.get(card.id))
        else card
        for card in node
    )


def not_free(
    specs: Sequence[PoolSpec], node: Sequence[Card], held: Holders, kept: Sequence[PoolSpec]
) -> tuple[Card, ...]:
    """The cards with a reason against those that pods have by one of the earlier wishes, `kept`.

    `held` is about those too. It is not a matter of a card's health, so it comes behind absence.py.
    """
    specs_by_card = owners(specs, node, held) if kept else {}
    return tuple(
        replace(
            card, reasons=(*card.reasons, *_elsewhere(specs_by_card[card.id], card, held, kept))
        )
        if card.id in specs_by_card
        else card
        for card in node
    )


class _Members:
    """The node of one judgement."""

    def __init__(self, survey: Survey) -> None:
        self._managed = survey.rdma_cm is not None
        self._mode = survey.namespace_mode
        self._functions = {function.seat.pci: function for function in survey.functions}
        self._devices: dict[PciAddress, list[Device]] = {}
        for device in survey.devices:
            if device.seat and device.auxiliary is None and not device.is_soft:
                self._devices.setdefault(device.seat.pci, []).append(device)

    def reasons(self, spec: PoolSpec, card: Card) -> tuple[str, ...]:
        """What stands against a card of this pool."""
        above = _above(card) if terms(spec).takes is Takes.FUNCTION else None
        problems = (*self._own(card), *self._link(above)) if above else card.reasons
        unseen = hidden(spec) if self._mode is NamespaceMode.EXCLUSIVE else ()
        return tuple(dict.fromkeys((*problems, *_user_space(spec, card), *unseen)))

    def _own(self, card: Card) -> Iterator[str]:
        """What no network mends; one good device is enough."""
        if not card.devices and card.function and card.function.driver is None:
            yield from card.reasons
        reasons_by_device = [
            tuple(lasting(device, managed=self._managed)) for device in card.devices
        ]
        if reasons_by_device and all(reasons_by_device):
            yield from (reason for reasons in reasons_by_device for reason in reasons)

    def _link(self, above: PciAddress) -> Iterator[str]:
        """What stands against the link of the physical function, as far as it is on the node."""
        devices = self._devices.get(above, [])
        states = [(device, idle(device)) for device in devices]
        if states and all(state for _, state in states):
            yield from (
                f"{device.name}, which it is a part of: {state}" for device, state in states
            )
        function = self._functions.get(above)
        if function and not states:
            lost = (one.name for one in function.netdevs if one.up and one.carrier is False)
            yield from map(no_carrier, lost)


def _above(card: Card) -> PciAddress | None:
    """The physical function that the card is a part of; None when it is the whole."""
    seat = card.seat
    if seat is None or seat.physical_function:
        return seat.physical_function if seat else None
    return seat.pci if any(device.auxiliary for device in card.devices) else None


def hidden(spec: PoolSpec) -> Iterator[str]:
    """That the pool gives away doors which open nothing in a network namespace of a pod's own.

    ib_device_get_by_index and ib_uverbs_open let nobody in from another namespace
    (rdma_dev_access_netns, drivers/infiniband/core/device.c). A mode that has its cards alone moves
    the device into the pod.
    """
    if not terms(spec).owns and not spec.host_network:
        yield (
            "RDMA namespace mode exclusive hides the node's cards from pods: boot it with "
            'ib_core.netns_mode=1, or write "hostNetwork": true if its pods use the node\'s network'
        )


def _user_space(spec: PoolSpec, card: Card) -> Iterator[str]:
    """That the card has a driver with which no network can be made of it."""
    driver = card.function.driver if card.function else None
    asked = any(driver in selector.drivers for selector in spec.selectors)
    given = terms(spec).attach is Attach.NONE and (asked or spec.variables is Variables.PCIDEVICE)
    if driver in USER_SPACE and not given:
        yield (
            f"its driver is {driver}, which leaves no interface to attach: bind it to the driver "
            "of a network card, or take it out of this pool"
        )


def _elsewhere(
    spec: PoolSpec, card: Card, held: Holders, kept: Sequence[PoolSpec]
) -> Iterator[str]:
    """Who holds the card by an earlier resource, where one of the two has its cards alone."""
    for before in kept:
        pods = held.get(before.resource, {}).get(card.id, ())
        if pods and (terms(before).owns or terms(spec).owns):
            yield (
                f"{listed(pods)} still has it, of {before.resource}, which is no longer advertised"
            )


LinksInside = Mapping[CardId, tuple[str, Sequence[PodLink]]]  # by card the pod and its links
UNMANAGED = "config/node-files/10-kube-rdma-unmanaged.rules"  # of the repository
LEAVING = "its card is to have another number of virtual functions"


class NodeFacts(Frozen):
    """What is known of a node at one moment.

    `cards` are those of the survey (node_cards). Outside the agent only `specs` and
    `function_specs` are known beside them. `kept` are specs that nobody wishes for any more and
    pods still hold cards of; `held` says by resource and card which pods. `missing` are paths of
    device nodes that are not there. `inside` has the pod and the links of its namespace for cards
    that are in one. `leaving` are functions that are to be removed. `gone` are cards whose
    interface another program took, or whose RDMA device left; `stays` says by resource which of
    such cards were in its pool, where they stay while they cannot be seen.
    """

    survey: Survey
    cards: Sequence[Card]
    specs: Sequence[PoolSpec]
    function_specs: Sequence[FunctionsWish] = ()
    kept: Sequence[PoolSpec] = ()
    held: Holders = field(default_factory=dict)
    missing: Collection[str] = ()
    inside: LinksInside = field(default_factory=dict)
    leaving: Collection[CardId] = ()
    gone: Collection[CardId] = ()
    stays: Held = field(default_factory=dict)

    @property
    def placed(self) -> Held:
        """By resource the cards that belong to it whatever else can be seen of them."""
        resources = {*self.held, *self.stays}
        return {name: {*self.held.get(name, ()), *self.stays.get(name, ())} for name in resources}


class NodeVerdict(Frozen):
    """What a node comes to.

    `cards` are all of it, each with what is wrong with it for the pool that has it, before that is
    damped. `taken`, `beyond`, `spared` and `dynamic` are sentences: cards that pods hold by another
    resource, ranges that choose functions which are not there, cards that the node cannot do
    without, free cards to which another program gives addresses.
    """

    cards: tuple[Card, ...]
    pools: tuple[Pool, ...]
    clashes: tuple[Clash, ...]
    assessment: Assessment
    taken: tuple[str, ...]
    beyond: tuple[str, ...]
    spared: tuple[str, ...]
    dynamic: tuple[str, ...]


def evaluate(
    facts: NodeFacts, health: Mapping[CardId, Health] | None = None, now: float = 0.0
) -> NodeVerdict:
    """Return what the node comes to; `health` is that of the last assessment, None at the first.

    `now` is in seconds of one clock that never goes back.
    """
    judged = _judged(facts)
    assessment = assess(health or {}, judged, now)
    free = not_free(facts.specs, assessment.cards, facts.held, facts.kept)
    pools, clashes = resolve(facts.specs, free, facts.survey, facts.placed)
    taken = tuple(_added(assessment.cards, free))
    beyond = outside(facts.specs, facts.survey, facts.function_specs)
    spared = tuple(_spared(facts))
    dynamic = tuple(_dynamic(facts, pools))
    return NodeVerdict(judged, pools, clashes, assessment, taken, beyond, spared, dynamic)


def node_cards(survey: Survey) -> tuple[Card, ...]:
    """Return the cards of a node, each as it is by itself, whatever pool it is for."""
    return cards(survey, judge(survey))


def _judged(facts: NodeFacts) -> tuple[Card, ...]:
    members = as_members(facts.specs, facts.cards, facts.survey, facts.placed)
    complete = with_missing_nodes(members, facts.missing)
    return tuple(_leaving(_gone(_inside(card, facts), facts), facts) for card in complete)


def _inside(card: Card, facts: NodeFacts) -> Card:
    seen = facts.inside.get(card.id)
    return inside_pod(card, *seen) if seen else card


def _gone(card: Card, facts: NodeFacts) -> Card:
    """First of its reasons: what else is wrong with such a card, as a port without GID, follows.

    That no driver is bound to a function says why its RDMA device is gone.
    """
    if card.id not in facts.gone:
        return card
    if is_away(card):
        return replace(card, reasons=(MOVED, *card.reasons))
    unbound = card.function is not None and card.function.driver is None
    return card if unbound and card.reasons else replace(card, reasons=(DEVICE_GONE, *card.reasons))


def _leaving(card: Card, facts: NodeFacts) -> Card:
    return replace(card, reasons=(*card.reasons, LEAVING)) if card.id in facts.leaving else card


def _spared(facts: NodeFacts) -> Iterator[str]:
    """Yield why cards that a pool means stay with the node."""
    functions = {function.seat.pci: function for function in facts.survey.functions}
    for spec in facts.specs:
        for card in facts.cards:
            if card.id in facts.held.get(spec.resource, {}):
                continue
            if why := spared(spec, card, functions):
                yield f"{card.name} is not a card of {spec.resource} ({spec.source}): {why}"


def _dynamic(facts: NodeFacts, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield which pools have free cards whose address ends by itself, with one card of each.

    Such addresses come from a program of the node that has taken a card over. It will configure the
    card again whenever it comes back from a pod, and renews nothing while it is there.
    """
    holders = set().union(*facts.held.values())
    for pool in filter(lambda pool: moves(pool.spec), pools):
        free = (card for card in pool.cards if card.id not in holders)
        netdevs = (netdev for card in free for netdev in interfaces(card, facts.survey.functions))
        leased = ((n.name, n.use.dynamic[0]) for n in netdevs if n.use and n.use.dynamic)
        for name, address in islice(leased, 1):
            yield (
                f"{name} of {pool.spec.resource} has {address} by DHCP or SLAAC, which no program "
                f"renews inside a pod: make it static, or install {UNMANAGED}"
            )


def _added(before: Sequence[Card], after: Sequence[Card]) -> Iterator[str]:
    """Yield what came to stand against cards, with their names."""
    for was, card in zip(before, after, strict=True):
        yield from (f"{card.name}: {reason}" for reason in card.reasons[len(was.reasons) :])
