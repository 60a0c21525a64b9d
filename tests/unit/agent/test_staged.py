"""What is met is on the disk before it is offered, and asked about once more before it changes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM
from kube_rdma.adapters.journal.codec import POOLS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent.changes import ModeChanges
from kube_rdma.agent.compose import AgentOptions, opened
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.attach.binder import Binder
from kube_rdma.attach.late_binding import LateBindingChoice, NoLateBinding
from kube_rdma.model import pools
from kube_rdma.model.holdings import Holding
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.runtime.cri import FakeCriRuntime

OLD = pools.PoolSpec("rdma/a", pools.Mode.HCA, "c:1")
NEW = pools.PoolSpec("rdma/a", pools.Mode.SHARED, "c:2")
POD = Holding("default", "a", "c", "rdma/a", ("hca-7",))


@dataclass
class Node:
    """The neighbours of one agent after the other on a disk; `later`: what a second ask tells."""

    disk: FakeDisk = field(default_factory=FakeDisk)
    later: tuple[Holding, ...] | None = ()

    def agent(self):
        late = LateBindingChoice(NoLateBinding("the test has none"))
        return ModeChanges(self.open, self.ask, late, NodeEvents())

    def open(self):
        return Journal(self.disk, POOLS)

    async def ask(self):
        return self.later

    @property
    def written(self):
        ((_, record),) = self.open().load().records
        return [spec.mode for spec in record.specs]


async def test_a_pod_that_started_while_the_node_was_looked_at_is_seen(recording):
    node = Node(later=(POD,))
    agent = node.agent()
    await agent.meet([OLD], [])
    assert not agent.stage.pending
    await agent.meet([NEW], [])
    assert agent.stage.pending
    assert [spec.mode for spec in agent.stage.specs] == [pools.Mode.HCA]
    assert node.written == [pools.Mode.HCA]
    node.later = ()
    await agent.meet([NEW], [])
    assert not agent.stage.pending
    assert node.written == [pools.Mode.SHARED]


async def test_the_next_agent_knows_also_what_nobody_wishes_for_any_more(recording):
    node = Node()
    before = node.agent()
    await before.meet([OLD], [POD])
    await before.meet([], [POD])
    node.disk.crash()
    after = node.agent()
    await after.meet([], None)
    assert [spec.mode for spec in after.stage.kept] == [pools.Mode.HCA]
    await after.meet([NEW], [POD])
    assert [spec.mode for spec in after.stage.specs] == [pools.Mode.HCA]


async def test_what_the_disk_has_after_a_failure_is_written_anew(recording):
    """It may have the new one or the old one."""
    node = Node()
    agent = node.agent()
    await agent.meet([OLD], [])
    node.disk.read_only = True
    await agent.meet([NEW], [])
    assert agent.stage.pending
    node.disk.read_only = False
    node.open().put("pools", pools.AppliedPools((NEW,)))
    await agent.meet([OLD], [])
    assert node.written == [pools.Mode.HCA]


@pytest.mark.parametrize(("version", "works"), [("v2.4.2", True), ("v1.6.0", False)])
async def test_role_node_binds_late_and_has_a_driver_and_what_it_remembers_lasts(
    tmp_path_factory, version, works
):
    server, name, folder = FakeServer([RESOURCE_CLAIM]), "node-1", tmp_path_factory.mktemp("w")
    status = {"nodeInfo": {"kubeletVersion": "v1.36.0"}}
    server.put(NODE, {"metadata": {"name": name}, "spec": {}, "status": status})
    options = AgentOptions(
        node=name,
        connect=lambda: nullcontext(Cluster(server.line())),
        networks=True,
        claims=True,
        kubelet_root=folder,
        runtime_socket=folder / "cri.sock",
        **{path: folder / path for path in ("state_dir", "cdi_dir", "socket", "host")},
    )
    runtime = FakeCriRuntime(options.runtime_socket, "containerd", version, {})
    async with FakeKubelet.at(folder), runtime, opened(options) as agent:
        assert isinstance(agent.late.now, Binder) is works
        assert works or isinstance(agent.late.make(), Binder)
        assert agent.networks
        assert agent.claims.claims is agent.kubelet.claims
        agent.applied().put("pools", pools.AppliedPools((OLD,)))
    async with opened(options) as agent:
        assert agent.applied().load().records == (("pools", pools.AppliedPools((OLD,))),)
