"""Limits of a pod on the fake kernel, and what only it can be made to say."""

from __future__ import annotations

import errno
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel import cgroups
from kube_rdma.model.pools import MOST, DeviceLimits, DeviceUse, RdmaLimits
from kube_rdma_testing.kernel.cgroups import FakeCgroups
from tests.vm.guest.rdma_cgroup_contract import ONE, OTHER, Limits, Processes, Taken

UID = "5e0b8e3c-27a1-4f2e-9d4a-0c1d2e3f4a5b"
CLASSES = ("", "burstable", "besteffort")
NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,14}", fullmatch=True)
NUMBERS = st.none() | st.integers(0, MOST)


class FakeWorld:
    """A node of which nobody has switched a controller on."""

    device = "rxe0"

    def __init__(self):
        self.files = FakeCgroups()
        self.files.register(self.device)
        self.groups = cgroups.RdmaGroups(self.files)
        for uid in (ONE, OTHER):
            self.files.make(self.place(uid), delegated=False)
            self.groups.switch_on(uid)

    def place(self, uid):
        return f"kubepods/burstable/pod{uid}"

    @contextmanager
    def taking(self, uid, *, opens=1, objects):
        counts = [0, 0]
        code = 0
        kinds = ("hca_handle",) * opens + ("hca_object",) * objects
        for kind in kinds:
            try:
                self.files.charge(self.place(uid), self.device, kind)
            except OSError as error:
                code = error.errno
                break
            counts[kind == "hca_object"] += 1
        yield Taken(*counts, code)
        for kind, count in zip(("hca_handle", "hca_object"), counts, strict=True):
            self.files.uncharge(self.place(uid), self.device, kind, count)

    def register_again(self):
        self.files.unregister(self.device)
        self.files.register(self.device)

    def keep_off(self):
        self.files.make("busy", delegated=False, processes=True)
        self.files.make("busy/kubepods/podbusy-1", delegated=False)
        return "busy-1"


@pytest.fixture
def world():
    return FakeWorld()


class TestTheFake(Limits, Processes):
    """As the real one in tests/vm/guest/test_rdma_cgroup."""


def test_nothing_is_written_where_every_parent_has_the_controller():
    files = FakeCgroups()
    files.make(f"kubepods/pod{ONE}")
    cgroups.RdmaGroups(files).switch_on(ONE)
    assert files.writes == []


def test_a_node_of_cgroup_v1_is_refused_in_one_sentence():
    with pytest.raises(Refused) as refused:
        cgroups.RdmaGroups(FakeCgroups(v1=True)).switch_on(UID)
    assert str(refused.value) == (
        "this node has cgroup v1, in which pods have no limits of RDMA objects. "
        "Boot it with cgroup v2, or remove rdmaLimits from the pools of this node."
    )


def test_a_kernel_without_the_controller_is_refused():
    with pytest.raises(Refused, match="CONFIG_CGROUP_RDMA"):
        cgroups.RdmaGroups(FakeCgroups("cpu memory")).switch_on(UID)


def test_what_else_the_kernel_refuses_is_unavailable():
    """A name of two words is none of a device's, and the kernel takes the second for a number."""
    files = FakeCgroups()
    files.make(f"kubepods/pod{ONE}")
    groups = cgroups.RdmaGroups(files)
    with pytest.raises(Unavailable, match=r"pod7a1c-01 cannot be .* \(Invalid argument\)"):
        groups.write(groups.find(ONE), [DeviceLimits("rxe0 rxe1", RdmaLimits())])


@pytest.mark.parametrize("quality", CLASSES)
@pytest.mark.parametrize("above", ["", "kubelet", "docker/ab12/kubelet"])
def test_the_group_of_a_pod_is_where_the_cgroupfs_driver_makes_it(above, quality):
    path = "/".join(filter(None, (above, "kubepods", quality, f"pod{UID}")))
    files = FakeCgroups()
    files.make("system.slice/kubepods")
    files.make(path)
    assert cgroups.RdmaGroups(files).find(UID) == path


SLICES = [
    "kubepods.slice/kubepods-pod{}.slice",
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
    "k.slice/k-kubepods.slice/k-kubepods-besteffort.slice/k-kubepods-besteffort-pod{}.slice",
]


@pytest.mark.parametrize("form", SLICES)
def test_the_group_of_a_pod_is_where_the_systemd_driver_makes_it(form):
    path = form.format(UID.replace("-", "_"))
    files = FakeCgroups()
    files.make(path)
    assert cgroups.RdmaGroups(files).find(UID) == path


def test_of_two_kubelets_on_a_machine_the_one_with_the_pod_is_taken():
    files = FakeCgroups()
    files.make("kubepods/podother")
    files.make(f"node/kubepods/pod{UID}")
    assert cgroups.RdmaGroups(files).find(UID) == f"node/kubepods/pod{UID}"


def test_the_places_of_two_pods_have_nothing_in_common():
    for kubepods in ("kubepods", "a.slice/a-kubepods.slice"):
        assert not set(cgroups.places(kubepods, "a-1")) & set(cgroups.places(kubepods, "a-11"))


@given(NAMES, NUMBERS, NUMBERS)
def test_a_line_is_read_as_it_was_written(device, handles, objects):
    limits = DeviceLimits(device, RdmaLimits(handles, objects))
    assert list(cgroups.read_limits(f"{cgroups.line(limits)} \n")) == [limits]


@given(NAMES, NUMBERS, NUMBERS)
def test_the_kernel_says_what_was_written(device, handles, objects):
    files = FakeCgroups()
    files.register(device)
    files.make(f"kubepods/pod{ONE}")
    limits = DeviceLimits(device, RdmaLimits(handles, objects))
    groups = cgroups.RdmaGroups(files)
    groups.write(groups.find(ONE), [limits])
    assert groups.read(groups.find(ONE)).limits == (limits,)


@given(st.text(max_size=80))
def test_no_text_is_too_strange_to_be_read(text):
    list(cgroups.read_limits(text))
    list(cgroups.read_current(text))


def test_what_a_later_kernel_counts_besides_is_passed_by():
    text = "rxe0 hca_handle=1 hca_object=20 hca_new=7 \n\nrxe1 hca_object=max\n"
    assert list(cgroups.read_current(text)) == [DeviceUse("rxe0", 1, 20), DeviceUse("rxe1", 0, 0)]


def test_the_real_files_are_not_made_where_there_is_none(tmp_path):
    (tmp_path / "kubepods").mkdir()
    (tmp_path / "cgroup.controllers").write_text("rdma\n")
    files = cgroups.HostCgroups(tmp_path)
    assert (files.groups(""), files.read("cgroup.controllers")) == (("kubepods",), "rdma\n")
    assert (files.is_group("kubepods"), files.is_group("cgroup.controllers")) == (True, False)
    with pytest.raises(OSError, match="No such file") as missing:
        files.write("kubepods/rdma.max", "x")
    assert missing.value.errno == errno.ENOENT
    files.write("cgroup.controllers", "+x")
