"""KR141 and KR142: what sends data between a card and its near GPU up to the root complex.

Two of the checks of cards.py, which has their place among them. A card and a GPU below one PCIe
switch reach each other through the switch alone, unless ACS makes its ports redirect requests
(drivers/pci/p2pdma.c counts such ports in the same way) or the IOMMU translates the card's
addresses, which only the root complex can. In a virtual machine the hypervisor needs both, and
nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from kube_rdma.doctor.rules.check import whole_cards
from kube_rdma.lib.phrases import listed
from kube_rdma.model.device import Device, Gpu, PciAddress, PciPosition
from kube_rdma.model.doctor import Observation
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.survey import Survey

# Bits of ACS Control that redirect (include/uapi/linux/pci_regs.h): P2P Request Redirect, P2P
# Completion Redirect, P2P Egress Control.
REDIRECT = 0x04 | 0x08 | 0x20
_TRANSLATED = "DMA"  # and DMA-FQ, drivers/iommu/iommu.c; identity is not


def ports_between(card: PciPosition, gpu: PciPosition) -> tuple[PciAddress, ...]:
    """The ports that data crosses below the switch of both; none where they share no switch."""
    steps = tuple(zip(card.path, gpu.path, strict=False))
    shared = sum(1 for _ in takewhile(lambda step: step[0] == step[1], steps))
    if not shared or card.pci == gpu.pci:
        return ()
    return (*card.path[shared:-1], *gpu.path[shared:-1])


def bridges_of(survey: Survey) -> tuple[PciAddress, ...]:
    """All ports between a card and a GPU of its switch, each once."""
    ways = (ports for _, _, ports in _ways(survey))
    return tuple(dict.fromkeys(port for ports in ways for port in ports))


def functions_of(survey: Survey) -> tuple[PciAddress, ...]:
    """The cards of a node with GPUs, whose addresses an IOMMU may translate."""
    if not survey.gpus:
        return ()
    return tuple(dict.fromkeys(seat.pci for _, seat in whole_cards(survey)))


def redirected(seen: Observation) -> Iterator[Finding]:
    """Cards whose way to a GPU of their switch leads over ports that redirect; one for a node."""
    if seen.survey is None or seen.virtual_machine:
        return
    redirecting = {one.pci for one in seen.bridges or () if one.acs & REDIRECT}
    ways = [
        (device.name, gpu.seat.pci, hit)
        for device, gpu, ports in _ways(seen.survey)
        if (hit := [port for port in ports if port in redirecting])
    ]
    if not ways:
        return
    cards = listed(list(dict.fromkeys(name for name, _, _ in ways)))
    gpus = listed(list(dict.fromkeys(gpu for _, gpu, _ in ways)))
    ports = list(dict.fromkeys(port for _, _, hit in ways for port in hit))
    yield Finding(
        cards,
        f"ACS redirects requests at PCIe ports {listed(ports)}, between {cards} and GPUs {gpus}",
        "Data between card and GPU goes up to the root complex instead of through their switch",
        "Switch ACS off in the BIOS, or at each start and for each of these ports: "
        f"setpci -s {ports[0]} ECAP_ACS+6.w=0000. Not where virtual machines get cards",
        Severity.WARNING,
    )


def translated(seen: Observation) -> Iterator[Finding]:
    """Cards of a node with GPUs whose addresses the IOMMU translates; one for a node."""
    if seen.survey is None or seen.virtual_machine or not seen.survey.gpus:
        return
    domains = {one.pci: one.type for one in seen.domains or ()}
    cards = [
        (device.name, kind)
        for device, seat in whole_cards(seen.survey)
        if (kind := domains.get(seat.pci, "")).startswith(_TRANSLATED)
    ]
    if cards:
        names, kinds = (list(dict.fromkeys(words)) for words in zip(*cards, strict=True))
        yield Finding(
            listed(names),
            f"the IOMMU domain of {listed(names)} is {listed(kinds)}; GPUs: "
            f"{len(seen.survey.gpus)}",
            "The IOMMU translates addresses of the cards, so GPUDirect RDMA goes through the root "
            "complex, or fails",
            "Boot with iommu=pt (and intel_iommu=on or amd_iommu=on), or switch the IOMMU off "
            "where no virtual machine gets cards",
            Severity.WARNING,
        )


def _ways(survey: Survey) -> Iterator[tuple[Device, Gpu, tuple[PciAddress, ...]]]:
    """Cards and GPUs of one switch, with the ports between them."""
    for device, seat in whole_cards(survey):
        for gpu in survey.gpus:
            if ports := ports_between(seat, gpu.seat):
                yield device, gpu, ports
