"""A pod on its own node: CNI CHECK by the agent's journal, limits by its cgroup, queue pairs."""

from contextlib import nullcontext
from ipaddress import IPv4Address, ip_network
from pathlib import Path

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.journal.codec import ATTACHMENTS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.netlink import rtnl_read
from kube_rdma.doctor.pod import checked, counted_pairs, observed_limits, observed_routes, recorded
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import AddAddress, AddRoute, MakeLink, Mark, SetLink, VirtualKind
from kube_rdma.model.device import PlannedHostLink, QueuePair
from kube_rdma.model.doctor import ObservedAttachment, ObservedLimit, ObservedQueuePairs
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma_testing.kernel.network_kernel import FakeKernel

NETNS = Path("/var/run/netns/cni-1")
POD = PodName("train", "w-0")
NET1 = InterfaceName("net1")


@pytest.fixture
def kernel():
    """A node with a card, and the namespace of a pod."""
    made = FakeKernel()
    made.add_link("eth1", mac="02:00:00:00:01:01", pci="0000:81:00.0")
    made.add_pod(NETNS)
    return made


def attached(kernel, uid="uid-1"):
    """What an ADD has made, and noted."""
    parent = next(link for link in kernel.links if link.name == "eth1")
    on = PlannedHostLink(parent.index, parent.name)
    steps = (
        MakeLink(VirtualKind.MACVLAN, on, NET1, Mark("kube-rdma:1"), mode="bridge"),
        SetLink(NET1, mtu=1500),
        AddAddress(NET1, IPv4Address("10.9.0.5"), 24),
    )
    with kernel.open_pod(NETNS) as pod:
        for step in steps:
            pod.run(step)
        inode = pod.inode
    sandbox = Sandbox(ContainerId("c" * 64), POD, uid, str(NETNS), inode)
    return Attachment(sandbox, (Plan(NET1, "train/rdma", None, steps),), complete=True)


def write(state, attachment, folder="attachments"):
    state.mkdir(exist_ok=True)
    with Journal(Folder(state / folder), ATTACHMENTS) as journal:
        journal.put(f"attached-{attachment.sandbox.container}", attachment)


def test_an_interface_as_it_was_attached_has_nothing_wrong(kernel, tmp_path):
    write(tmp_path / "state", attached(kernel))
    records = recorded(tmp_path / "state", POD, "uid-1")
    assert checked(records, kernel.open_pod) == (ObservedAttachment("net1", "train/rdma"),)


def test_an_address_that_vanished_in_the_pod_is_named(kernel):
    attachment = attached(kernel)
    next(link for link in kernel.links if link.name == "net1").addresses.clear()
    (interface,) = checked((attachment,), kernel.open_pod)
    (sentence,) = interface.wrong
    assert sentence.startswith("net1 (train/rdma): ")
    assert "10.9.0.5" in sentence


def test_an_interface_that_is_gone_is_named_with_all_that_it_had(kernel):
    attachment = attached(kernel)
    kernel.remove(next(link for link in kernel.links if link.name == "net1"))
    (interface,) = checked((attachment,), kernel.open_pod)
    assert any("is not there" in sentence for sentence in interface.wrong)


def test_what_is_being_made_is_not_checked(kernel):
    assert checked((replace(attached(kernel), complete=False),), kernel.open_pod) == ()


def test_a_namespace_that_is_gone_or_another_one_is_not_seen(kernel):
    attachment = attached(kernel)
    kernel.end(NETNS)
    with pytest.raises(Unavailable, match="is gone"):
        checked((attachment,), kernel.open_pod)
    kernel.add_pod(NETNS)
    with pytest.raises(Unavailable, match="is gone"):
        checked((attachment,), kernel.open_pod)


def test_records_are_those_of_this_pod_alone(kernel, tmp_path):
    attachment = attached(kernel)
    write(tmp_path / "state", attachment, "delegated")
    assert recorded(tmp_path / "state", POD) == (attachment,)
    assert recorded(tmp_path / "state", POD, "uid-2") == ()
    assert recorded(tmp_path / "state", PodName("train", "w-1")) == ()


def test_without_an_agent_with_networks_there_is_no_record(tmp_path):
    assert recorded(tmp_path / "state", POD) is None


UID = "5e0b-8e3c"


@pytest.fixture
def group(tmp_path):
    """The group of a pod, with one limited device and a free one."""
    root = tmp_path / "sys/fs/cgroup"
    group = root / f"kubepods/pod{UID}"
    group.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu rdma\n")
    (group / "rdma.max").write_text(
        "mlx5_0 hca_handle=4 hca_object=100 \nmlx5_1 hca_handle=max hca_object=max \n"
    )
    (group / "rdma.current").write_text(
        "mlx5_0 hca_handle=1 hca_object=20 \nmlx5_1 hca_handle=0 hca_object=0 \n"
    )
    return group


def test_what_a_pod_has_stands_beside_what_it_may_have(group, tmp_path):
    limited, free = observed_limits(tmp_path, UID)
    assert limited == ObservedLimit("mlx5_0", 1, 20, 4, 100)
    assert free == ObservedLimit("mlx5_1")
    assert (limited.is_set, free.is_set, limited.used_up) == (True, False, "")


def test_a_pod_of_another_node_has_none_here(group, tmp_path):
    assert observed_limits(tmp_path, "another") == ()


def test_a_node_of_cgroup_v1_has_none(group, tmp_path):
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").unlink()
    assert observed_limits(tmp_path, UID) == ()


def test_where_the_controller_is_off_nothing_is_limited(group, tmp_path):
    (group / "rdma.max").unlink()
    assert observed_limits(tmp_path, UID) == ()


def test_what_cannot_be_read_is_not_taken_for_no_limit(group, tmp_path):
    (group / "rdma.max").unlink()
    (group / "rdma.max").mkdir()
    with pytest.raises(Unavailable, match="cannot be read or written"):
        observed_limits(tmp_path, UID)


CONTAINERS = {7: "main", 8: "main", 9: "sidecar"}
PROGRAMS = {7: "ib_write_bw", 8: "python", 9: ""}


def test_pairs_are_counted_by_container_device_and_transport():
    pairs = (
        QueuePair("mlx5_1", "UD", 9),
        QueuePair("mlx5_0", "RC", 7, ready=True),
        QueuePair("mlx5_0", "RC", 8),
        QueuePair("mlx5_0", "RC", 10, ready=True),  # of another pod
    )
    counts = counted_pairs(pairs, lambda pid: CONTAINERS.get(pid, ""), PROGRAMS.__getitem__)
    assert counts == (
        ObservedQueuePairs("main", "mlx5_0", "RC", 2, 1, ("ib_write_bw", "python")),
        ObservedQueuePairs("sidecar", "mlx5_1", "UD", 1, 0, ()),
    )


def test_a_process_says_what_it_has_pinned(tmp_path):
    for pid, status in ((7, "VmLck:\t 12 kB\nVmPin:\t     2048 kB\n"), (8, "VmLck:\t 12 kB\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/status").write_text(status)
    (tmp_path / "7/comm").write_text("ib\x1b[31m\n")
    assert proc.pinned(7, tmp_path) == 2048 * 1024
    with pytest.raises(Unavailable, match="pinned"):
        proc.pinned(8, tmp_path)
    assert (proc.program(7, tmp_path), proc.program(8, tmp_path)) == ("ib?[31m", "")


def test_routes_of_the_main_table_have_none(monkeypatch):
    to = ip_network("10.0.0.0/24")
    routes = (AddRoute(NET1, to), AddRoute(NET1, to, IPv4Address("10.0.0.1"), table=100))
    monkeypatch.setattr(rtnl_read, "open_rtnl", nullcontext)
    monkeypatch.setattr(rtnl_read, "seen_links", lambda _: ())
    monkeypatch.setattr(rtnl_read, "seen_routes", lambda *_: routes)
    assert [(one.via, one.table) for one in observed_routes()] == [("", 0), ("10.0.0.1", 100)]
