"""Judges a node in one order: its devices, its cards as members of pools, and the pools.

The agent asks at every survey; `config check --node`, explain, the doctor and others ask once and
know less. Each pass adds or replaces reasons of cards, so the order is part of the answer. First
comes what is wrong with a device by itself (discovery.py), then what its pool needs of it
(as_members). Missing device nodes, troubles inside a pod and interfaces that are gone follow
(absence.py). Then comes what has to last (absence.assess), and which pod has the card already
(not_free). Pools are made of the result (pools.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from kube_base.frozen import Frozen, field, replace
from kube_rdma.lib.phrases import listed, no_carrier
from kube_rdma.model.card import Card, CardId, Function, IommuGroup, is_vfio
from kube_rdma.model.device import (
    Device,
    PciAddress,
    PodLink,
)
from kube_rdma.model.pools import Attach, FunctionsSpec, Pool, PoolSpec, Variables
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules import absence
from kube_rdma.pools.rules.discovery import Links, judge, lasting
from kube_rdma.pools.rules.functions import outside
from kube_rdma.pools.rules.modes import Takes, terms
from kube_rdma.pools.rules.pools import Clash, Held, owners, resolve
from kube_rdma.pools.rules.selection import cards, interfaces, left_out, moves, spared, why_not

# Members: cards with the reasons against giving each away as its pool does.

Holders = Mapping[str, Mapping[CardId, tuple[str, ...]]]  # by resource and card the pods


def as_members(
    specs: Sequence[PoolSpec], node: Sequence[Card], survey: Survey, placed: Held
) -> tuple[Card, ...]:
    """Return the node's cards, each judged by the needs of the pool that has it.

    `placed` says by resource which cards stay in its pool even if they cannot be seen.
    """
    specs_by_card = owners(specs, node, placed)
    members = _Members(survey, specs_by_card, placed)
    return tuple(
        replace(card, reasons=members.reasons(spec, card))
        if (spec := specs_by_card.get(card.id))
        else card
        for card in node
    )


def not_free(
    specs: Sequence[PoolSpec], node: Sequence[Card], held: Holders, kept: Sequence[PoolSpec]
) -> tuple[Card, ...]:
    """Return all cards, with a reason against each that pods hold by an earlier spec in `kept`.

    The reason is given only if the mode of either spec owns its cards. `held` also lists the
    holders of those earlier specs. A held card is not unhealthy, so this is applied after
    absence.py.
    """
    specs_by_card = owners(specs, node, held) if kept else {}

    def judged(card: Card) -> Card:
        spec = specs_by_card.get(card.id)
        reasons = _elsewhere(spec, card, held, kept) if spec else ()
        return replace(card, reasons=(*card.reasons, *reasons))

    return tuple(map(judged, node))


_PLUGIN = "let the SR-IOV network device plugin serve this pool"


class _Members:
    """The judge of pools' cards on one survey, each by what its pool needs."""

    def __init__(self, survey: Survey, specs: Mapping[CardId, PoolSpec], placed: Held) -> None:
        self._specs = specs
        self._placed = set().union(*placed.values())
        self._managed = survey.rdma_cm is not None
        self._mode = survey.namespace_mode
        self._functions = _functions(survey)
        self._links = Links(survey)
        self._devices: dict[PciAddress, list[Device]] = {}
        for device in survey.devices:
            if device.position and device.auxiliary is None and not device.is_soft:
                self._devices.setdefault(device.position.pci, []).append(device)

    def reasons(self, spec: PoolSpec, card: Card) -> tuple[str, ...]:
        """Return the reasons why this card cannot be used in the pool of `spec`."""
        above = _above(card) if terms(spec).takes is Takes.FUNCTION else None
        problems = (*self._own(card), *self._link(above)) if above else card.reasons
        unseen = hidden(spec) if self._mode is NamespaceMode.EXCLUSIVE else ()
        return tuple(dict.fromkeys((*problems, *self._of_program(spec, card), *unseen)))

    def _own(self, card: Card) -> Iterator[str]:
        """Yield the reasons that no change of a link removes; none if one device has none."""
        if not card.devices and card.function and card.function.driver is None:
            yield from card.reasons
        reasons_by_device = [
            tuple(lasting(device, managed=self._managed)) for device in card.devices
        ]
        if reasons_by_device and all(reasons_by_device):
            yield from (reason for reasons in reasons_by_device for reason in reasons)

    def _link(self, above: PciAddress) -> Iterator[str]:
        """Yield link troubles of the physical function `above` that the card is a part of."""
        states = [(device, self._links.idle(device)) for device in self._devices.get(above, [])]
        if states and all(state for _, state in states):
            yield from (
                f"{device.name}, which it is a part of: {state}" for device, state in states
            )
        function = self._functions.get(above)
        if function and not states:
            lost = (one for one in function.own_netdevs if one.up and one.carrier is False)
            yield from (no_carrier(one.name) for one in lost)

    def _of_program(self, spec: PoolSpec, card: Card) -> Iterator[str]:
        """Yield the reasons against a card whose driver is for user space, such as vfio-pci."""
        function = card.function
        if function is None or not function.for_programs:
            return
        driver, physical = function.driver, function.position.physical_function
        above = self._functions.get(physical) if physical else None
        asked = any(driver in selector.drivers for selector in spec.selectors)
        is_meant = asked or spec.variables is Variables.PCIDEVICE
        if terms(spec).attach is not Attach.NONE or not is_meant:
            yield (
                f"its driver is {driver}, which leaves no interface to attach: bind it to the "
                "driver of a network card, or take it out of this pool"
            )
        elif not is_vfio(driver):
            # pkg/factory/factory.go of that plugin gives nothing of uio_pci_generic.
            served = f", or {_PLUGIN}" if driver == "igb_uio" else ""
            yield f"kube-rdma gives no device files of {driver}: bind it to vfio-pci{served}"
        elif function.group is None:
            yield (
                "/sys shows no IOMMU group of it, so no file in /dev/vfio is for pods: bind it to "
                f"{driver} again, dmesg may say why it has none"
            )
        elif not function.group.guarded:
            yield (
                "no IOMMU keeps it from the node's memory (no-IOMMU mode of vfio): switch the "
                f"IOMMU on, or {_PLUGIN}"
            )
        elif above and is_vfio(above.driver):
            # vfio_pci_validate_vf_token, drivers/vfio/pci/vfio_pci_core.c
            yield (
                f"its physical function {above.position.pci} is bound to {above.driver}, so only "
                "who knows its VF token opens it: bind that one to its network driver"
            )
        else:
            yield from self._of_group(spec, card, function.group)

    def _of_group(self, spec: PoolSpec, card: Card, group: IommuGroup) -> Iterator[str]:
        """Yield why a pod cannot have the card's whole IOMMU group by this card.

        No driver of the kernel may have a part of the group (Documentation/driver-api/vfio.rst).
        One program at a time opens it, with all of its functions (vfio_group_fops_open,
        drivers/vfio/group.c).
        """
        held = [f"{name} ({driver})" for name, driver in group.others if _keeps(driver)]
        names = [name for name, driver in group.others if is_vfio(driver)]
        strange = [name for name in names if self._specs.get(CardId(name)) is not spec]
        stands = min((card.id, *names), key=lambda name: (name not in self._placed, name))
        shared = f"its IOMMU group {group.number} is shared with"
        if held:
            yield (
                f"{shared} {listed(held)}, so no program can open it: take the card out of this "
                "pool, or bind the others to vfio-pci too if the node can do without them"
            )
        elif strange:
            yield (
                f"{shared} {listed(strange)}, which a pod would get too: take the card out of this "
                "pool, or the whole group into it"
            )
        elif stands != card.id:
            yield (
                f"{shared} {stands}, whose share stands for it, as one pod at a time opens a "
                "group: switch ACS on in the BIOS, if it can, so that each has its own"
            )


def _keeps(driver: str | None) -> bool:
    """Decide whether a driver blocks user space from its IOMMU group, as it uses DMA in the kernel.

    Others are vfio drivers or set driver_managed_dma (drivers/pci/pci-stub.c,
    drivers/pci/pcie/portdrv.c).
    """
    return driver is not None and driver not in ("pci-stub", "pcieport") and not is_vfio(driver)


def _above(card: Card) -> PciAddress | None:
    """Return the physical function of a virtual or sub-function; None for a physical card."""
    position = card.position
    if position is None or position.physical_function:
        return position.physical_function if position else None
    return position.pci if any(device.auxiliary for device in card.devices) else None


def hidden(spec: PoolSpec) -> Iterator[str]:
    """Yield the reason against a pool whose devices cannot be opened from a pod's own namespace.

    It holds in RDMA namespace mode exclusive alone: there ib_device_get_by_index and
    ib_uverbs_open refuse another namespace (rdma_dev_access_netns,
    drivers/infiniband/core/device.c). A mode that owns its cards moves the device into the pod.
    """
    if not terms(spec).owns and not spec.host_network:
        yield (
            "RDMA namespace mode exclusive hides the node's cards from pods: boot the node with "
            "ib_core.netns_mode=1, or set hostNetwork of a pool whose pods use the node's network"
        )


def _elsewhere(
    spec: PoolSpec, card: Card, held: Holders, kept: Sequence[PoolSpec]
) -> Iterator[str]:
    """Yield who holds the card by an earlier spec, if either spec owns its cards exclusively."""
    for before in kept:
        pods = held.get(before.resource, {}).get(card.id, ())
        if pods and (terms(before).owns or terms(spec).owns):
            yield (
                f"{listed(pods)} still has it, of {before.resource}, which is no longer advertised"
            )


# The whole node: facts in, verdict out.

LinksInside = Mapping[CardId, tuple[str, Sequence[PodLink]]]  # by card the pod and its links
UNMANAGED = "config/node-files/10-kube-rdma-unmanaged.rules"  # of the repository
LEAVING = "its card is to have another number of virtual functions"


class NodeFacts(Frozen):
    """The facts about a node at one moment, from which `evaluate` judges it.

    Outside the agent only `survey`, `cards`, `specs`, `function_specs` and `missing` may be known.
    """

    survey: Survey
    cards: Sequence[Card]  # of the survey (node_cards)
    specs: Sequence[PoolSpec]
    function_specs: Sequence[FunctionsSpec] = ()
    kept: Sequence[PoolSpec] = ()  # nobody asks for them any more, and pods still hold their cards
    held: Holders = field(default_factory=dict)
    missing: Collection[str] = ()  # paths of device nodes that are not there
    inside: LinksInside = field(default_factory=dict)
    leaving: Collection[CardId] = ()  # virtual functions that are to be removed
    gone: Collection[CardId] = ()  # another program took the interface, or the RDMA device left
    stays: Held = field(default_factory=dict)  # by resource `gone` cards that stay in its pool

    @property
    def placed(self) -> Held:
        """Return by resource the cards that stay in its pool even if they cannot be seen now."""
        resources = {*self.held, *self.stays}
        return {name: {*self.held.get(name, ()), *self.stays.get(name, ())} for name in resources}


class NodeVerdict(Frozen):
    """The judgement on a node: its cards, pools and clashes, with sentences about what is wrong."""

    cards: tuple[Card, ...]  # with what is wrong for the pool that has each, before it is damped
    pools: tuple[Pool, ...]
    clashes: tuple[Clash, ...]
    assessment: absence.Assessment
    taken: tuple[str, ...]  # cards that pods hold by an earlier spec, see `not_free`
    beyond: tuple[str, ...]  # ranges that choose functions which are not there
    spared: tuple[str, ...]  # cards that the node cannot do without
    dynamic: tuple[str, ...]  # free cards to which another program gives addresses
    left_out: Mapping[CardId, str] = field(default_factory=dict)  # that a selector seems to mean


def evaluate(
    facts: NodeFacts, health: Mapping[CardId, absence.Health] | None = None, now: float = 0.0
) -> NodeVerdict:
    """Return the judgement on a node; `health` is from the last assessment, None at the first.

    `now` is in seconds of one clock that never goes back.
    """
    members = as_members(facts.specs, facts.cards, facts.survey, facts.placed)
    judged = tuple(
        _seen(card, facts) for card in absence.with_missing_nodes(members, facts.missing)
    )
    assessment = absence.assess(health or {}, judged, now)
    free = not_free(facts.specs, assessment.cards, facts.held, facts.kept)
    pools, clashes = resolve(facts.specs, free, facts.survey, facts.placed)
    return NodeVerdict(
        judged,
        pools,
        clashes,
        assessment,
        taken=tuple(_added(assessment.cards, free)),
        beyond=outside(facts.specs, facts.survey, facts.function_specs),
        spared=tuple(_spared(facts)),
        dynamic=tuple(_dynamic(facts, pools)),
        left_out=left_out(pools, facts.cards, _functions(facts.survey)),
    )


def why_left(facts: NodeFacts, gone: Collection[CardId]) -> Mapping[CardId, str]:
    """Return by card why it is in no pool, for cards in `gone` that the node still has."""
    functions, left = _functions(facts.survey), [c for c in facts.cards if c.id in gone]
    reasons = {card.id: [why_not(spec, card, functions) for spec in facts.specs] for card in left}
    none = "no pool is configured"
    return {name: "; ".join(dict.fromkeys(filter(None, w))) or none for name, w in reasons.items()}


def _functions(survey: Survey) -> Mapping[PciAddress, Function]:
    return {function.position.pci: function for function in survey.functions}


def node_cards(survey: Survey) -> tuple[Card, ...]:
    """Return the cards of a node, judged without regard to pools."""
    return cards(survey, judge(survey))


def _seen(card: Card, facts: NodeFacts) -> Card:
    """Return the card with reasons for a bad link inside a pod, its absence or its removal."""
    if inside := facts.inside.get(card.id):
        card = absence.inside_pod(card, *inside)
    card = _gone(card, facts)
    return replace(card, reasons=(*card.reasons, LEAVING)) if card.id in facts.leaving else card


def _gone(card: Card, facts: NodeFacts) -> Card:
    """Return the card with the reason of its absence, if it is gone, before its other reasons.

    A function without a driver has its own reason for the missing RDMA device.
    """
    if card.id not in facts.gone:
        return card
    if absence.is_away(card):
        return replace(card, reasons=(absence.MOVED, *card.reasons))
    if card.reasons and card.function is not None and card.function.driver is None:
        return card
    return replace(card, reasons=(absence.DEVICE_GONE, *card.reasons))


def _spared(facts: NodeFacts) -> Iterator[str]:
    """Yield a sentence for each card that a pool selects but the node itself needs."""
    functions = _functions(facts.survey)
    for spec in facts.specs:
        for card in facts.cards:
            if card.id in facts.held.get(spec.resource, {}):
                continue
            if why := spared(spec, card, functions):
                yield f"{card.name} is not a card of {spec.resource} ({spec.source}): {why}"


def _dynamic(facts: NodeFacts, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield a sentence for each pool that moves cards, if a free one has a dynamic IP address.

    No program renews such an address while the card is in a pod.
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
    """Yield the reasons that `after` has beyond `before`, each with its card's name."""
    for was, card in zip(before, after, strict=True):
        yield from (f"{card.name}: {reason}" for reason in card.reasons[len(was.reasons) :])
