"""What is met is on the disk before it is offered, and asked about once more before it changes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace

from kube_rdma.adapters.journal.codec import POOLS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent.changes import ModeChanges
from kube_rdma.agent.compose import memory
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.attach.late_binding import LateBindingChoice, NoLateBinding
from kube_rdma.model import pools
from kube_rdma.model.holdings import Holding
from kube_rdma_testing.disk import FakeDisk
from tests.unit.adapters.journal.samples import RECORDS

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


async def test_a_memory_is_a_journal_below_the_state_and_lasts(tmp_path):
    """It is closed with the agent, and the next one finds what is in it."""
    options = SimpleNamespace(state_dir=tmp_path)
    kinds, records = RECORDS["rails"]
    ((name, value),) = records.items()
    async with AsyncExitStack() as stack:
        memory(options, stack, "rails", kinds)().put(name, value)
    assert (tmp_path / "rails" / f"{name}.json").exists()
    async with AsyncExitStack() as stack:
        journal = memory(options, stack, "rails", kinds)()
        assert journal.load().records == ((name, value),)
