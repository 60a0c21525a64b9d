"""A native node as the supervisor prepares it: its control groups, its files, its wires."""

from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma.model.device import CharDevice, CharKind
from kube_rdma_lab import network, preflight
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.native import cgroups, node
from kube_rdma_lab.native.cards import Cards
from kube_rdma_lab.native.replay import Replay
from kube_rdma_lab.state import State
from kube_rdma_lab.topology import find

V1_MOUNTS = """\
36 30 0:31 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
37 36 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
38 36 0:33 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
39 36 0:34 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
40 36 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V1_OWN = "4:cpu,cpuacct:/user\n3:memory:/docker/ab/job\n2:freezer:/\n1:name=systemd:/\n0::/\n"
V2_MOUNTS = "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V2_OWN = "0::/user.slice/session-1.scope\n"


def test_version_1_is_taken_as_it_is_mounted_without_the_hybrid_s_other_half():
    found = cgroups.read(V1_MOUNTS, V1_OWN)
    assert [each.mount_line for each in found] == [
        "cgroup cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct\n",
        "cgroup memory /sys/fs/cgroup/memory\n",
        "cgroup none,name=systemd /sys/fs/cgroup/systemd\n",
    ]
    owns = [str(each.own.relative_to(each.mount)) for each in found]
    assert owns == ["user", "job", "."], "a mount may show only a part"


def test_version_2_is_one_hierarchy():
    (found,) = cgroups.read(V2_MOUNTS, V2_OWN)
    assert found.is_v2
    assert found.mount_line == "cgroup2 defaults /sys/fs/cgroup\n"
    assert found.own == Path("/sys/fs/cgroup/user.slice/session-1.scope")


@pytest.fixture
def unified(tmp_path):
    """A hierarchy of version 2 as files; what passes nothing down lacks the controllers."""
    group = tmp_path
    for name in ("user.slice", "session.scope"):
        (group / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (group / "cgroup.subtree_control").touch()
        group = group / name
        group.mkdir()
    (group / "cgroup.controllers").write_text("memory pids\n")
    return tmp_path


def test_a_node_s_group_lies_in_the_nearest_group_that_passes_controllers_down(unified):
    own = unified / "user.slice/session.scope"
    hierarchy = cgroups.Hierarchy(unified, (), own)
    assert cgroups.place(hierarchy, "lab") == unified / "user.slice/lab"
    passed = (unified / "user.slice/cgroup.subtree_control").read_text()
    assert passed == "+cpu +cpuset +io +memory +pids"


def test_a_machine_that_passes_no_controllers_down_is_refused(unified):
    for group in (unified, unified / "user.slice"):
        (group / "cgroup.controllers").write_text("memory\n")
    hierarchy = cgroups.Hierarchy(unified, (), unified / "user.slice/session.scope")
    with pytest.raises(Refused, match=r"cannot be divided.*run outside of a container"):
        cgroups.place(hierarchy, "lab")


def test_what_the_journal_names_is_removed_and_what_is_gone_is_no_fault(tmp_path):
    groups = tmp_path / "groups"
    (groups / "lab/node-1/kubepods").mkdir(parents=True)
    (tmp_path / cgroups.JOURNAL).write_text(f"{groups}/lab\n{groups}/gone\n")
    cgroups.remove_all(tmp_path)
    assert list(groups.iterdir()) == []
    cgroups.remove_all(tmp_path)


SPEC = find("native").nodes[0]
SHOWN = Cards(("ib0", "ib1"), (CharDevice(CharKind.UVERBS, "/dev/infiniband/uverbs0", 231, 192),))


def test_every_interface_that_a_node_takes_is_one_that_the_lab_makes():
    taken = [line.split() for line in node.links(SPEC, SHOWN).splitlines()]
    assert [name for _, name, _ in taken] == ["eth0", "ib0", "ib1"]
    made = "\n".join(network.commands(find("native"), {SPEC.name: SHOWN.interfaces}))
    for own, _, _ in taken:
        assert f" peer name {own} " in made
    assert "link set n1p2 master rail1 up" in made


def test_a_node_has_the_devices_of_its_cards_beside_those_of_every_program():
    lines = node.devices(SHOWN).splitlines()
    assert "infiniband/uverbs0 231 192" in lines
    assert "null 1 3" in lines


def test_a_container_sees_the_node_s_sys_and_nothing_else_of_it_changes():
    mounts = [{"destination": "/proc", "type": "proc"}, {"destination": "/sys", "type": "sysfs"}]
    spec = node.with_cards({"mounts": mounts, "process": {"cwd": "/"}})
    assert spec["process"] == {"cwd": "/"}
    assert spec["mounts"][0] == mounts[0]
    own = {mount["destination"]: mount for mount in spec["mounts"][1:]}
    assert own["/sys"]["type"] == "bind"
    assert all("ro" in mount["options"] for mount in own.values())


def test_a_lab_without_machines_asks_for_no_program_of_theirs():
    native, mixed = (preflight.needed_tools(find(name)) for name in ("native", "two-nodes"))
    assert "ssh" not in native
    assert "mmdebstrap" in native
    assert "ssh" in mixed
    assert "mmdebstrap" not in preflight.needed_tools(find("control-plane"))


def test_a_node_without_recorded_cards_has_none_to_replay(tmp_path):
    lab = Lab(tmp_path, State("test", "two-nodes", pid=1, phase="up", started=0.0))
    with pytest.raises(Refused, match=r"node-1 has no recorded cards to replay\. Choose a native"):
        Replay(lab, "node-1")


def test_a_native_node_takes_less_memory_than_a_machine():
    assert preflight.needed_mib(find("native:4")) < preflight.needed_mib(find("two-nodes"))
