"""Virtual functions made on a real SR-IOV card (igb, as QEMU emulates it)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.sriov.functions import SriovCards, give_addresses, write_attribute
from kube_rdma.hardware.survey import take_survey
from kube_rdma.model.device import PciAddress

from .sriov_contract import KilledMaking, Making, functions
from .world import NET, PHYSICAL_FUNCTION, interface, run

pytestmark = pytest.mark.kernel("lab.kernel=any")


class RealWorld:
    """The bare machine's card; it has 7 functions to give and none at first."""

    root = Path("/sys")
    write = staticmethod(write_attribute)

    def __init__(self):
        name = interface(PHYSICAL_FUNCTION)
        run("ip", "link", "set", name, "up")
        self.folder = (NET / name / "device").resolve()
        self.card = PciAddress(self.folder.name)
        (self.folder / "sriov_numvfs").write_text("0")

    def sriov(self, **options):
        return SriovCards(**options)

    def give(self, act, numbers):
        give_addresses(act, numbers)

    def addresses(self):
        return {
            one.position.pci: (NET / netdev.name / "address").read_text().strip()
            for one in functions(self)
            for netdev in one.netdevs
        }

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


@pytest.mark.slow
class TestKilled(KilledMaking):
    """Each of eight times functions are made twice, which takes an emulated card seconds."""
