"""What making virtual functions means, said once: on a real SR-IOV card and on the fake kernel.

A test file brings a fixture `world` with what World says and inherits the tests.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sriov.functions import NUMBER, SriovCards
from kube_rdma.model.device import PciAddress
from kube_rdma.model.pools import SetFunctions
from kube_rdma_testing.kernel.network import KilledError


class World(Protocol):
    """A node with one card that can have 7 virtual functions and has none."""

    root: Path  # of its sysfs
    card: PciAddress

    def sriov(self, **options) -> SriovCards: ...
    def give(self, act, numbers): ...  # tells the card the addresses of its functions
    def addresses(self): ...  # the MACs that the functions' interfaces have, by function
    def survey(self): ...


def act(world, now, wanted, **more):
    return SetFunctions(world.card, "eth0", now, wanted, **more)


def functions(world):
    """The virtual functions of the card, as a survey sees them."""
    return [one for one in world.survey().functions if one.position.physical_function == world.card]


@contextmanager
def locked(world):
    """Somebody else changes the card."""
    folder = os.open(world.root / "bus/pci/devices" / world.card, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


class Making:
    """The contract."""

    def test_functions_are_there_with_driver_and_interface_when_it_returns(self, world):
        """To do it again changes nothing."""
        world.sriov().make(act(world, 0, 2))
        found = functions(world)
        assert [one.vf_index for one in found] == [0, 1]
        assert all(one.driver and one.netdevs for one in found)
        world.sriov().make(act(world, 0, 2))
        assert functions(world) == found

    def test_a_card_gets_all_that_it_can_have_at_once(self, world):
        world.sriov().make(act(world, 0, 7))
        assert len({one.position.pci for one in functions(world)}) == 7

    def test_another_number_goes_by_way_of_none(self, world):
        world.sriov().make(act(world, 0, 2))
        world.sriov().make(act(world, 2, 3))
        assert len(functions(world)) == 3
        world.sriov().make(act(world, 3, 0))
        assert functions(world) == []

    def test_functions_have_the_same_addresses_whenever_they_are_made(self, world):
        """Each has one of its own, which its driver has found."""
        world.sriov(give=world.give).make(act(world, 0, 3))
        before = world.addresses()
        assert len(set(before.values())) == 3
        assert {int(mac[:2], 16) & 3 for mac in before.values()} == {2}
        world.sriov(give=world.give).make(act(world, 3, 2))
        assert len(world.addresses()) == 2
        assert world.addresses().items() <= before.items()
        assert all(one.driver for one in functions(world))

    def test_without_autoprobe_functions_have_no_driver_until_it_is_asked_for(self, world):
        world.sriov().make(act(world, 0, 1, autoprobe=False))
        (found,) = functions(world)
        assert (found.driver, found.netdevs) == (None, ())
        world.sriov().make(act(world, 1, 2))
        assert all(one.driver for one in functions(world))

    def test_more_than_the_card_has_is_refused_by_the_kernel(self, world):
        with pytest.raises(Refused, match="cannot have so many"):
            world.sriov().make(act(world, 0, 8))

    def test_a_number_that_changed_meanwhile_is_left_alone(self, world):
        world.sriov().make(act(world, 0, 2))
        with pytest.raises(Unavailable, match="2 virtual functions by now, not 4"):
            world.sriov().make(act(world, 4, 3))
        assert len(functions(world)) == 2

    def test_one_changes_a_card_at_a_time(self, world):
        with locked(world), pytest.raises(Unavailable, match="another process"):
            world.sriov(lock_patience=0.05).make(act(world, 0, 1))
        assert functions(world) == []
        world.sriov().make(act(world, 0, 1))
        assert len(functions(world)) == 1

    def test_a_card_that_is_gone_is_said_to_be(self, world):
        gone = replace(act(world, 0, 1), physical=PciAddress("0000:ff:1f.7"))
        with pytest.raises(Unavailable, match="eth0 is gone"):
            world.sriov().make(gone)


class KilledMaking:
    """Whoever makes functions may be killed after each act; `world.write` is the kernel's."""

    def test_the_next_one_ends_what_another_began(self, world):
        """As the agent does: it looks how many there are, and makes as many as are wanted."""
        after = 1
        while self.dies(world, after):
            after += 1
        assert after > 5

    def dies(self, world, after):
        """Whether the agent was killed after so many acts; all is well when another one was."""
        world.sriov().make(act(world, number(world), 1, autoprobe=False))
        acts = count(1)

        def dying(do, *words):
            do(*words)
            if next(acts) == after:
                raise KilledError

        options = {"write": partial(dying, world.write), "give": partial(dying, world.give)}
        died = False
        try:
            world.sriov(**options).make(act(world, 1, 2))
        except KilledError:
            died = True
        world.sriov(give=world.give).make(act(world, number(world), 2))
        assert len(set(world.addresses())) == 2
        assert all(one.driver for one in functions(world))
        return died


def number(world):
    return int((world.root / "bus/pci/devices" / world.card / NUMBER).read_text())
