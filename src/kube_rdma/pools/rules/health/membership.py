"""Judges cards as members of their pools: what stands against giving one away as this pool does.

Between pools/rules/cards, which says how each card is by itself, and pools/rules/health/damping,
which says what is told of it. Most pools give a card as it is; three things are different.

A part of a card (a virtual function, a sub-function) in mode sriov is set up only when the pod's
network is attached: by the agent, or beside `attach: none` by the CNI plugin that the pod's network
names, as with the SR-IOV network device plugin, which calls every function healthy. Until then its
port is DOWN and, on InfiniBand, may have no GUID: mlx5 makes functions whose virtual link is down,
and the interface of a RoCE function is down. So it is judged by what no network mends, its own
driver and doors and the link of the card that it is a part of. That goes for every `attach`: the
mode is what says that a network takes the function; a pod that asks for no network finds the port
as it is. In other modes (hca on functions) nothing is set up, so the function's own port counts.

A driver for user space (vfio-pci) leaves neither interface nor RDMA device to attach. `attach:
none` may mean such functions: the documents of the SR-IOV device plugin, and whoever names the
driver in a selector.

A card that pods share stays on the node. In RDMA namespace mode exclusive no pod sees it there, but
those that use the node's own network, so such a pool is unhealthy unless it says that its pods do.

Besides, a card that a pod has by a resource which is no longer advertised is not free, though no
current pool says so: under its new name it would be given away a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.lib.phrases import listed, no_carrier
from kube_rdma.model.card import USER_SPACE, Card, CardId
from kube_rdma.model.device import Device, PciAddress
from kube_rdma.model.pools.pool import Attach, PoolSpec, Variables
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.health.discovery import idle, lasting
from kube_rdma.pools.rules.modes import Takes, terms
from kube_rdma.pools.rules.pools import Held, owners

Holders = Mapping[str, Mapping[CardId, tuple[str, ...]]]  # by resource and card the pods


def as_members(
    specs: Sequence[PoolSpec], node: Sequence[Card], survey: Survey, placed: Held
) -> tuple[Card, ...]:
    """The node's cards of pools/rules/cards, each judged as the pool needs that has it.

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

    `held` is about those too. It is not a matter of a card's health, so it comes behind damping.py.
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
