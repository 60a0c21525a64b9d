"""Virtual functions made on a real SR-IOV card (igb, as QEMU emulates it)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.sriov import Sriov
from kube_rdma.model.device import PciAddress
from kube_rdma.programs.survey import take_survey

from .sriov_contract import Making
from .world import NET, PHYSICAL_FUNCTION, interface, run


class RealWorld:
    """The bare machine's card; it has 7 functions to give and none at first."""

    root = Path("/sys")

    def __init__(self):
        name = interface(PHYSICAL_FUNCTION)
        run("ip", "link", "set", name, "up")
        self.folder = (NET / name / "device").resolve()
        self.card = PciAddress(self.folder.name)
        (self.folder / "sriov_numvfs").write_text("0")

    def sriov(self, **options):
        return Sriov(**options)

    def survey(self):
        return take_survey()


@pytest.fixture
def world():
    made = RealWorld()
    yield made
    (made.folder / "sriov_numvfs").write_text("0")
    (made.folder / "sriov_drivers_autoprobe").write_text("1")


class TestOnACard(Making):
    """The contract on the real kernel."""
