"""The PCIe link of a card: what metrics export and what the doctor judges."""

from __future__ import annotations

from kube_base.frozen import Frozen
from kube_rdma.model.device import PciAddress


class PcieLink(Frozen):
    """Lanes and GT/s of a lane now, and the most that card and the port above it both can.

    `pci` is the card's function.
    """

    pci: PciAddress
    width: int
    speed: float
    most_width: int
    most_speed: float
