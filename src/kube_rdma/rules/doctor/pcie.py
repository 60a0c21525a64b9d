"""KR125: PCIe links of cards that run below what card and slot can.

One of the checks of cards.py, which has its place among them. A link that trained at fewer lanes or
at a lower speed halves a card's bandwidth while its port, its rate and its counters look well.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_rdma.model.doctor import Observation
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.pcie import PcieLink
from kube_rdma.rules.phrases import listed

# From 8 GT/s on 128 of 130 bits are data, before it 8 of 10 (PCI Express Base Specification).
_NEW_CODE, _CODES = 8.0, (0.8, 128 / 130)


def slow_pcie(seen: Observation) -> Iterator[Finding]:
    """Cards whose link has fewer lanes, or slower ones, than both of its ends can."""
    for link in seen.pcie or ():
        if link.width < link.most_width or link.speed < link.most_speed:
            yield Finding(
                _card(seen, link),
                f"PCIe x{link.width} at {link.speed:g} GT/s; card and slot support "
                f"x{link.most_width} at {link.most_speed:g} GT/s",
                "The PCIe link came up narrower or slower than card and slot can",
                f"Reseat the card in its slot, or its riser; lspci -vv -s {link.pci} shows LnkSta. "
                f"The link carries {_gbps(link):.0f} Gb/s now",
                Severity.WARNING,
            )


def _card(seen: Observation, link: PcieLink) -> str:
    """The devices of a card, else its function."""
    devices = seen.survey.devices if seen.survey else ()
    names = [one.name for one in devices if one.seat and one.seat.pci == link.pci]
    return listed(names) or link.pci


def _gbps(link: PcieLink) -> float:
    """What the link can carry, before the protocol's own words."""
    return link.width * link.speed * _CODES[link.speed >= _NEW_CODE]
