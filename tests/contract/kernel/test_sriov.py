"""Virtual functions made in a fake tree: the contract, and what only a fake can be made to do."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Event

import pytest
from structlog.testing import capture_logs

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel.sriov.functions import SriovCards, made_of
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma_testing.kernel.network import KilledError
from kube_rdma_testing.kernel.sriov import FakeSriov
from kube_rdma_testing.kernel.tree import write_tree
from tests.vm.guest.sriov_contract import Making, act, functions, locked

CARD = PciAddress("0000:81:00.0")


def card(driver="igb"):
    place = PciPosition(CARD, "pci0000:80", (PciAddress("0000:80:01.0"), CARD), 1, sriov_total=7)
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
        return SriovCards(self.root, self.kernel.write, **options)

    def give(self, act, numbers):
        self.kernel.give(act, numbers)

    def addresses(self):
        return dict(self.kernel.addresses)

    def survey(self):
        survey = survey_at(self.root)
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


def addresses(*numbers):
    """Of functions of these numbers."""
    return {PciAddress(f"0000:81:02.{2 * n}"): made_of(CARD, n, 6) for n in numbers}


def test_functions_have_their_addresses_before_their_drivers(world):
    """The kernel binds none until then; afterwards it does so again by itself."""
    world.sriov(give=world.kernel.give).make(act(world, 0, 3))
    assert world.kernel.writes == [
        ("sriov_drivers_autoprobe", "0"),
        ("sriov_numvfs", "3"),
        ("sriov_drivers_autoprobe", "1"),
        *(("drivers_probe", pci) for pci in addresses(0, 1, 2)),
    ]
    assert world.kernel.addresses == addresses(0, 1, 2)
    assert all(one.netdevs for one in functions(world))


def test_a_function_has_the_same_address_after_a_reboot(world):
    """And where there are more of them; left to its driver it would have another one each time."""
    for give in (world.kernel.give, None):
        world.sriov(give=give).make(act(world, 0, 2))
        before = dict(world.kernel.addresses)
        world.kernel.reboot()
        world.sriov(give=give).make(act(world, 0, 3))
        same = world.kernel.addresses.items() >= before.items()
        assert same is (give is not None)
        world.kernel.reboot()


def test_functions_without_drivers_have_addresses_too(world):
    """Whoever takes one later, perhaps for a virtual machine, finds it."""
    world.sriov(give=world.kernel.give).make(act(world, 0, 1, autoprobe=False))
    assert world.kernel.writes == [("sriov_drivers_autoprobe", "0"), ("sriov_numvfs", "1")]
    (bare,) = functions(world)
    assert bare.driver is None
    autoprobe = world.root / "bus/pci/devices" / CARD / "sriov_drivers_autoprobe"
    autoprobe.write_text("1\n")
    world.kernel.write(world.root / "bus/pci/drivers_probe", bare.position.pci)
    assert world.kernel.addresses == addresses(0)


def test_a_card_that_takes_no_addresses_has_its_functions_all_the_same(world):
    """Their drivers choose, as they always did; why is said."""

    def give(act, numbers):
        raise Refused("no", remedy="Take another card", where=act.name)

    with capture_logs() as logs:
        world.sriov(give=give).make(act(world, 0, 2))
    assert all(one.netdevs for one in functions(world))
    assert set(world.kernel.addresses.values()) == {"random 1", "random 2"}
    assert [(line["card"], line["why"]) for line in logs] == [
        ("eth0", "eth0: no. Take another card.")
    ]


@pytest.mark.parametrize("give", [False, True])
def test_where_no_functions_can_be_made_the_kernel_binds_drivers_as_before(world, give):
    """Whoever makes some by hand afterwards finds it so."""
    world.kernel.room = 1
    with pytest.raises(Refused, match="does not have the addresses or bus numbers"):
        world.sriov(give=world.kernel.give if give else None).make(act(world, 0, 2))
    switch = world.root / "bus/pci/devices" / CARD / "sriov_drivers_autoprobe"
    assert switch.read_text() == "1\n"


def test_a_driver_that_does_not_like_a_function_is_told_of(world):
    """By what it lacks in the end; /sys that cannot be written is another matter."""

    def write(path, text, code=errno.EINVAL):
        if path.name == "drivers_probe":
            raise OSError(code, os.strerror(code))
        world.kernel.write(path, text)

    make = SriovCards(world.root, write, world.kernel.give, patience=0.0).make
    with pytest.raises(Unavailable, match="number 0 has no driver"):
        make(act(world, 0, 1))
    make = SriovCards(world.root, partial(write, code=errno.EROFS), world.kernel.give).make
    with pytest.raises(Refused, match="in /sys, which may not be written"):
        make(act(world, 0, 1))


def test_whoever_dies_over_it_is_followed_by_who_ends_it(tmp_path):
    """After any of its acts: all functions have their address and a driver then."""
    for k in count(1):
        world, acts = FakeWorld(tmp_path / str(k)), count(1)

        def dying(do, *args, acts=acts, k=k):
            do(*args)
            if next(acts) == k:
                raise KilledError

        write, give = partial(dying, world.kernel.write), partial(dying, world.kernel.give)
        try:
            SriovCards(world.root, write, give).make(act(world, 0, 2))
        except KilledError:
            world.sriov(give=world.kernel.give).make(act(world, len(functions(world)), 2))
            assert world.kernel.addresses == addresses(0, 1)
            assert all(one.netdevs for one in functions(world))
        else:
            break
    assert k > 5


def test_it_waits_for_drivers_whose_module_comes_late(world):
    """It has asked for each driver then, and waits; the fake kernel is not for two at once."""
    world.kernel.slow = True
    asked, waits = [], Event()

    def write(path, text):
        world.kernel.write(path, text)
        asked.extend([text] if path.name == "drivers_probe" else [])
        if len(asked) == 2:
            waits.set()

    with ThreadPoolExecutor() as pool:
        done = pool.submit(SriovCards(world.root, write).make, act(world, 0, 2))
        assert waits.wait(30)
        assert not done.done()
        assert not any(one.driver for one in functions(world))
        world.kernel.probe()
        done.result()
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
    "does not have the addresses or bus numbers": {"room": 3},
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
        SriovCards(world.root, write).make(act(world, 0, 2))


def test_a_driver_that_makes_fewer_is_told(world):
    """The kernel takes the write all the same (sriov_numvfs_store warns only in its log)."""

    def write(path, text):
        world.kernel.write(path, str(min(int(text), 3)))

    with pytest.raises(Unavailable, match="made 3 of 4"):
        SriovCards(world.root, write).make(act(world, 0, 4))


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
        first = pool.submit(SriovCards(world.root, slowly).make, act(world, 2, 4))
        assert between.wait(30)
        second = pool.submit(world.sriov().make, act(world, 2, 4))
        go_on.set()
        first.result()
        second.result()
    assert [text for _, text in world.kernel.writes] == ["2", "0", "4"]


def test_a_lock_that_is_given_back_in_time_is_waited_for(world):
    with ThreadPoolExecutor() as pool:
        with locked(world):
            done = pool.submit(world.sriov(lock_patience=30).make, act(world, 0, 1))
            assert functions(world) == []
        done.result()
    assert len(functions(world)) == 1
