"""Which RDMA devices a container uses, out of all that it holds: the names that its settings have.

Late binding binds resource by resource, while NCCL and UCX take one list of devices. So whoever
writes settings asks for all shares of the container, also those of other resources; what was made
for a share by a network counts, else what its cards have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kube_rdma.model.card import Card
from kube_rdma.model.device import LinkLayer, PortState
from kube_rdma.model.late_binding.binding import Edits, HeldShare, UsedDevice
from kube_rdma.model.pools.holding import Holding
from kube_rdma.model.settings.topology_file import PlacedNet


def known_devices(cards: Iterable[Card]) -> tuple[UsedDevice, ...]:
    """The ports of usable cards that have a link, each as a device of no interface yet."""
    return tuple(
        UsedDevice(
            device.name,
            port.number,
            "",
            infiniband=port.link_layer is LinkLayer.INFINIBAND,
            place=PlacedNet(device.name, device.seat or card.seat, card.numa_node),
        )
        for card in cards
        if card.usable
        for device in card.devices
        for port in device.ports
        if port.state is PortState.ACTIVE
    )


def together(held: Collection[HeldShare], holdings: Sequence[Holding]) -> frozenset[HeldShare]:
    """All shares of the containers that hold one of these, and these.

    Pod resources leave init containers out, so what nobody holds stands for itself.
    """
    by_container: dict[tuple[str, str, str], set[HeldShare]] = {}
    for holding in holdings:
        container = (holding.namespace, holding.pod, holding.container)
        shares = by_container.setdefault(container, set())
        shares.update((holding.resource, share) for share in holding.shares)
    wanted = set(held)
    return frozenset(wanted.union(*(each for each in by_container.values() if each & wanted)))


def used_devices(
    held: Collection[HeldShare],
    edits: Mapping[HeldShare, Edits],
    card_devices: Mapping[HeldShare, Sequence[UsedDevice]],
) -> tuple[UsedDevice, ...]:
    """The devices of these shares, each once, sorted by resource and share.

    `edits` say by share what networks made; a resource that has any is told by these alone, as its
    device nodes are. `card_devices` are those of a share's cards, for the others.
    """
    networked = {resource for resource, share in held if (resource, share) in edits}

    def devices() -> Iterator[UsedDevice]:
        for share in sorted(held):
            if share in edits:
                yield from edits[share].used
            elif share[0] not in networked:
                yield from card_devices.get(share, ())

    return tuple(dict.fromkeys(devices()))
