"""CNI CHECK by the agent's journal, without the agent: a made-up kernel, records on a real disk."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.journal.codec import ATTACHMENTS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.doctor.pod import checked, recorded
from kube_rdma.model.attach.attachment import Attachment, Plan, Sandbox
from kube_rdma.model.attach.steps import AddAddress, MakeLink, Mark, SetLink, VirtualKind
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.doctor import ObservedAttachment
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
    plan = Plan(NET1, "train/rdma", None, steps)
    return Attachment(sandbox, (plan,), complete=True)


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
