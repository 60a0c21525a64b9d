"""Virtual functions made in a fake tree: the contract, and what only a fake can be made to do."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from kube_rdma.adapters.kernel.fake import write_tree
from kube_rdma.adapters.kernel.fake_sriov import FakeSriov
from kube_rdma.adapters.kernel.sriov import Sriov
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import PciAddress, Seat
from kube_rdma.model.errors import Refused, Unavailable
from kube_rdma.programs.survey import take_survey
from tests.bare.vm.sriov_contract import Making, act, functions, locked

CARD = PciAddress("0000:81:00.0")


def card(driver="igb"):
    place = Seat(CARD, "pci0000:80", (PciAddress("0000:80:01.0"), CARD), 1, sriov_total=7)
    netdevs = (Netdev("eth0", "ether", True, True),) if driver else ()
    return Function(place, 0x8086, 0x10C9, driver, netdevs)


class FakeWorld:
    """A tree with an igb card, and the kernel behind it."""

    card = CARD

    def __init__(self, root, driver="igb"):
        self.root = root
        write_tree(root, [], functions=[card(driver)])
        self.kernel = FakeSriov(root)

    def sriov(self, **options):
        return Sriov(self.root, self.kernel.write, **options)

    def survey(self):
        survey = take_survey(self.root)
        assert survey.faults == ()
        return survey


@pytest.fixture
def world(tmp_path):
    return FakeWorld(tmp_path)


class TestOnTheFake(Making):
    """The contract on the fake kernel."""


def test_a_reboot_takes_the_functions_and_the_same_act_brings_the_same_back(world):
    world.sriov().make(act(world, 0, 7))
    before = functions(world)
    assert len(before) == 7
    world.kernel.reboot()
    assert functions(world) == []
    world.sriov().make(act(world, 0, 7))
    assert functions(world) == before


def test_only_what_is_other_is_written(world):
    world.sriov().make(act(world, 0, 2))
    world.sriov().make(act(world, 2, 4, autoprobe=False))
    world.sriov().make(act(world, 2, 4, autoprobe=False))
    assert world.kernel.writes == [
        ("sriov_numvfs", "2"),
        ("sriov_drivers_autoprobe", "0"),
        ("sriov_numvfs", "0"),
        ("sriov_numvfs", "4"),
    ]


def test_it_waits_for_drivers_whose_module_comes_late(world):
    world.kernel.slow = True
    made = Event()

    def write(path, text):
        world.kernel.write(path, text)
        made.set()

    with ThreadPoolExecutor() as pool:
        done = pool.submit(Sriov(world.root, write).make, act(world, 0, 2))
        assert made.wait(30)
        assert not done.done()
        assert not any(one.driver for one in functions(world))
        world.kernel.probe()
        done.result(timeout=30)
    assert all(one.netdevs for one in functions(world))


def test_functions_that_get_no_driver_are_told_and_stay(world):
    world.kernel.slow = True
    with pytest.raises(Unavailable) as caught:
        world.sriov(patience=0.05).make(act(world, 0, 2))
    assert str(caught.value) == (
        "2 of 2 virtual functions of eth0 are not ready after 0.05 s, number 0 has no driver: "
        "load the module of its driver, dmesg may say why it does not bind."
    )
    assert len(functions(world)) == 2


REFUSALS = {
    "which may not be written (Read-only file system)": {"readonly": True},
    "has not the addresses or bus numbers": {"room": 3},
    "its driver does not allow it now": {"assigned": {CARD}},
    "its driver makes no virtual functions": {"unable": {"igb"}},
}


@pytest.mark.parametrize("sentence", REFUSALS)
def test_what_the_kernel_refuses_is_said_with_a_remedy(world, sentence):
    world.sriov().make(act(world, 0, 2))
    for name, value in REFUSALS[sentence].items():
        setattr(world.kernel, name, value)
    with pytest.raises(Refused) as caught:
        world.sriov().make(act(world, 2, 4))
    assert sentence in caught.value.problem
    assert caught.value.remedy
    assert caught.value.where == "eth0"


def test_a_card_without_a_driver_makes_none(tmp_path):
    world = FakeWorld(tmp_path, driver=None)
    with pytest.raises(Refused, match="its driver makes no virtual functions"):
        world.sriov().make(act(world, 0, 4))


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EIO, errno.EINVAL])
def test_what_may_pass_is_tried_again(world, number):
    def write(path, text):
        raise OSError(number, os.strerror(number))

    with pytest.raises(Unavailable, match=r"eth0"):
        Sriov(world.root, write).make(act(world, 0, 2))


def test_a_driver_that_makes_fewer_is_told(world):
    """The kernel takes the write all the same (sriov_numvfs_store warns only in its log)."""

    def write(path, text):
        world.kernel.write(path, str(min(int(text), 3)))

    with pytest.raises(Unavailable, match="made 3 of 4"):
        Sriov(world.root, write).make(act(world, 0, 4))


def test_a_kernel_without_the_switch_always_binds_drivers(world):
    (world.root / "bus/pci/devices" / CARD / "sriov_drivers_autoprobe").unlink()
    with pytest.raises(Refused, match="always binds drivers"):
        world.sriov().make(act(world, 0, 2, autoprobe=False))
    (world.root / "bus/pci/devices" / CARD / "sriov_numvfs").unlink()
    with pytest.raises(Unavailable, match="shows no SR-IOV"):
        world.sriov().make(act(world, 0, 2))


def test_two_at_once_change_a_card_one_after_the_other(world):
    """Whoever comes second sees what the first has made, never the zero between."""
    world.sriov().make(act(world, 0, 2))
    between, go_on = Event(), Event()

    def slowly(path, text):
        world.kernel.write(path, text)
        if text == "0":
            between.set()
            assert go_on.wait(30)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(Sriov(world.root, slowly).make, act(world, 2, 4))
        assert between.wait(30)
        second = pool.submit(world.sriov().make, act(world, 2, 4))
        go_on.set()
        first.result(timeout=30)
        second.result(timeout=30)
    assert [text for _, text in world.kernel.writes] == ["2", "0", "4"]


def test_a_lock_that_is_given_back_in_time_is_waited_for(world):
    with ThreadPoolExecutor() as pool:
        with locked(world):
            done = pool.submit(world.sriov(lock_patience=30).make, act(world, 0, 1))
            assert functions(world) == []
        done.result(timeout=30)
    assert len(functions(world)) == 1
