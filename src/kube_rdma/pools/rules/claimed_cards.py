"""Finds the network cards that the claims of pods stand for, whatever driver handed them out.

Its callers (doctor, metrics, verify, pools/kubelet_view) pass slices that
adapters/cluster/kinds/resource_api has decoded. No driver's name decides: a device is a card if its
attributes lead to an RDMA device that somebody sees. What was done with the card is the driver's
business, and nothing here supposes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from kube_base.frozen import Frozen
from kube_rdma.model.claims import devices as claims
from kube_rdma.model.device import PciAddress
from kube_rdma.pools.rules.nearness import newest


class NamedDevice(Protocol):
    """The name and PCI function of an RDMA device, by which a card is found."""

    @property
    def name(self) -> str:
        """Return the kernel's name of the device where it was seen."""

    @property
    def pci(self) -> PciAddress | None:
        """Return the PCI function of the device, None if it has none."""


D = TypeVar("D", bound=NamedDevice)


class ClaimedCard(Frozen):
    """A device that a container holds by a claim, with what its driver published of it."""

    held: claims.ClaimedDevice
    card: claims.PublishedCard

    @property
    def driver(self) -> str:
        """Return the name of the DRA driver that published the device."""
        return self.held.device.driver

    @property
    def is_own(self) -> bool:
        """Decide whether kube-rdma's own driver allocated the device."""
        return self.driver == claims.DRIVER


def claimed_cards(
    held: Iterable[claims.ClaimedDevice], slices: Iterable[claims.DeviceSlice]
) -> tuple[ClaimedCard, ...]:
    """Return the devices held by claims that may be cards, once per container, in order."""
    published = published_cards(slices)
    return tuple(
        ClaimedCard(one, published[one.device])
        for one in dict.fromkeys(held)
        if one.device in published
    )


def published_cards(
    slices: Iterable[claims.DeviceSlice],
) -> dict[claims.SliceDevice, claims.PublishedCard]:
    """Return published devices that may be cards, from each pool's newest slices."""
    return {
        claims.SliceDevice(part.driver, part.pool, card.name): card
        for part in newest(slices)
        for card in part.cards
    }


def rdma_devices(card: claims.PublishedCard, devices: Iterable[D]) -> tuple[D, ...]:
    """Return the `devices` that a published card stands for; none if the card is absent.

    The PCI function counts before the name, which another device may have by now. Where several
    devices are on one function, as sub-functions are, only the name tells which one is meant.
    """
    listed = tuple(devices)
    named = tuple(one for one in listed if card.rdma and one.name == card.rdma)
    if not card.pci:
        return named
    here = tuple(one for one in listed if one.pci == card.pci)
    if len(here) == 1:
        return here
    return tuple(one for one in named if one.pci in (None, card.pci))
