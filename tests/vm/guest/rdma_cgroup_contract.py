"""What the rdma controller does for a pod, said once: on this machine's kernel and on the fake one.

A test file brings a fixture `world` with what World has, and inherits the tests.
"""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.cgroups import RdmaGroup, RdmaGroups
from kube_rdma.model.pools import DeviceLimits, DeviceUse, RdmaLimits

ONE, OTHER = "7a1c-01", "7a1c-02"  # uids of two pods
NO_LIMITS = RdmaLimits()


class Taken(NamedTuple):
    """What a process got: devices opened, objects made, and the errno that ended it."""

    opened: int
    made: int
    errno: int


class World(Protocol):
    """A node with the groups of two pods and one RDMA device."""

    groups: RdmaGroups  # the controller is on for both pods
    device: str

    def taking(self, uid: str, *, opens: int = 1, objects: int) -> AbstractContextManager[Taken]:
        """A process of the pod that opens the device and makes objects, until the scope closes."""

    def register_again(self) -> None:
        """The device's driver ends and begins."""

    def keep_off(self) -> str:
        """Make a pod below a group with processes that has the controller off; its uid."""


def shown(world, uid):
    """What the kernel shows of a pod's group."""
    return world.groups.read(world.groups.find(uid))


def limits_of(world, uid):
    """What the kernel says of the device for a pod."""
    (limits,) = (one.limits for one in shown(world, uid).limits if one.device == world.device)
    return limits


def use_of(world, uid):
    """The handles and objects that a pod has of the device."""
    (use,) = (one for one in shown(world, uid).current if one.device == world.device)
    return use.handles, use.objects


def limit(world, uid, **numbers):
    """Write limits of a pod."""
    world.groups.write(world.groups.find(uid), [DeviceLimits(world.device, RdmaLimits(**numbers))])


class Limits:
    """What is written and read, and the object that is refused."""

    def test_a_pod_begins_without_limits_and_without_use(self, world):
        seen = shown(world, ONE)
        assert DeviceLimits(world.device, NO_LIMITS) in seen.limits
        assert DeviceUse(world.device, 0, 0) in seen.current

    def test_what_is_written_is_read_back_for_this_pod_alone(self, world):
        limit(world, ONE, handles=2, objects=7)
        assert limits_of(world, ONE) == RdmaLimits(2, 7)
        assert limits_of(world, OTHER) == NO_LIMITS

    def test_a_limit_is_lifted(self, world):
        limit(world, ONE, handles=2, objects=7)
        limit(world, ONE, handles=2)
        assert limits_of(world, ONE) == RdmaLimits(2)

    def test_the_next_object_is_refused_and_the_other_pod_s_process_is_not_touched(self, world):
        limit(world, ONE, objects=5)
        with world.taking(ONE, objects=6) as mine, world.taking(OTHER, objects=6) as others:
            assert mine == Taken(1, 5, errno.EAGAIN)
            assert others == Taken(1, 6, 0)
            assert use_of(world, ONE) == (1, 5)
            assert use_of(world, OTHER) == (1, 6)
        assert use_of(world, ONE) == (0, 0)

    def test_limits_end_with_the_registration_of_the_device(self, world):
        limit(world, ONE, objects=5)
        world.register_again()
        assert limits_of(world, ONE) == NO_LIMITS

    def test_where_the_controller_is_off_nothing_is_shown(self, world):
        assert shown(world, world.keep_off()) == RdmaGroup((), ())

    def test_a_device_that_is_gone_has_nothing_to_limit(self, world):
        world.groups.write(world.groups.find(ONE), [DeviceLimits("gone0", RdmaLimits(1, 1))])

    def test_a_pod_without_a_group_is_unavailable(self, world):
        with pytest.raises(Unavailable, match="no control group of the pod with uid 7a1c-09"):
            shown(world, "7a1c-09")

    def test_a_group_with_processes_cannot_give_the_controller_to_its_children(self, world):
        uid = world.keep_off()
        with pytest.raises(Unavailable, match=r"cannot be switched on in /sys/fs/cgroup/.*busy"):
            world.groups.switch_on(uid)


class Processes:
    """The rest of what processes meet; on an emulated machine each takes 10 s to begin."""

    def test_so_many_objects_as_the_limit_says_are_made(self, world):
        limit(world, ONE, objects=5)
        with world.taking(ONE, objects=5) as mine:
            assert mine == Taken(1, 5, 0)

    def test_processes_of_one_pod_have_the_limit_together(self, world):
        limit(world, ONE, objects=5)
        with world.taking(ONE, objects=3), world.taking(ONE, objects=3) as second:
            assert second == Taken(1, 2, errno.EAGAIN)

    def test_a_device_is_not_opened_beyond_the_limit(self, world):
        limit(world, ONE, handles=1)
        with world.taking(ONE, opens=2, objects=0) as mine:
            assert mine == Taken(1, 0, errno.EAGAIN)

    def test_a_limit_below_what_is_used_takes_nothing_away(self, world):
        with world.taking(ONE, objects=4):
            limit(world, ONE, objects=2)
            assert use_of(world, ONE) == (1, 4)
            with world.taking(ONE, objects=1) as second:
                assert second == Taken(1, 0, errno.EAGAIN)
