"""What is met is on the disk before it is offered, and asked about once more before it changes."""

from dataclasses import dataclass, field

from kube_rdma.adapters.journal.codec import POOLS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent.mode_changes import ModeChanges
from kube_rdma.agent.node.node_events import NullNodeEvents
from kube_rdma.attach.late_binding import NoLateBinding
from kube_rdma.model.device import PciAddress
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import (
    AppliedPools,
    ExtraInfo,
    FunctionRange,
    Mode,
    PoolSpec,
    Preference,
    Selector,
    Variables,
)
from kube_rdma_testing.disk import FakeDisk

OLD = PoolSpec("rdma/a", Mode.HCA, "c:1")
NEW = PoolSpec("rdma/a", Mode.SHARED, "c:2")
POD = Holding("default", "a", "c", "rdma/a", ("hca-7",))


@dataclass
class Node:
    """The neighbours of one agent after the other on a disk; `later`: what a second ask tells."""

    disk: FakeDisk = field(default_factory=FakeDisk)
    later: tuple[Holding, ...] | None = ()

    def agent(self):
        return ModeChanges(
            self.open, self.ask, NoLateBinding("the test has none"), NullNodeEvents()
        )

    def open(self):
        return Journal(self.disk, POOLS)

    async def ask(self):
        return self.later

    @property
    def written(self):
        """The modes on the disk."""
        ((_, record),) = self.open().load().records
        return [spec.mode for spec in record.specs]


async def test_a_pod_that_started_while_the_node_was_looked_at_is_seen(recording):
    node = Node(later=(POD,))
    agent = node.agent()
    await agent.meet([OLD], [])
    assert not agent.pending
    await agent.meet([NEW], [])
    assert agent.pending
    assert [spec.mode for spec in agent.specs] == [Mode.HCA]
    assert node.written == [Mode.HCA]
    node.later = ()
    await agent.meet([NEW], [])
    assert not agent.pending
    assert node.written == [Mode.SHARED]


async def test_the_next_agent_knows_also_what_nobody_wishes_for_any_more(recording):
    node = Node()
    before = node.agent()
    await before.meet([OLD], [POD])
    await before.meet([], [POD])
    node.disk.crash()
    after = node.agent()
    await after.meet([], None)
    assert [spec.mode for spec in after.kept] == [Mode.HCA]
    await after.meet([NEW], [POD])
    assert [spec.mode for spec in after.specs] == [Mode.HCA]


async def test_what_the_disk_has_after_a_failure_is_written_anew(recording):
    """It may have the new one or the old one."""
    node = Node()
    agent = node.agent()
    await agent.meet([OLD], [])
    node.disk.read_only = True
    await agent.meet([NEW], [])
    assert agent.pending
    node.disk.read_only = False
    node.open().put("pools", AppliedPools((NEW,)))
    await agent.meet([OLD], [])
    assert node.written == [Mode.HCA]


def test_a_record_holds_all_that_a_wish_can_say():
    selector = Selector(
        source="c:3",
        vendors=("15b3",),
        pci_addresses=(PciAddress("0000:81:00.0"),),
        acpi_indexes=(1,),
        physical=(FunctionRange("ens1f0", ((0, 3), (6, 6))),),
        pkeys=(0x7FFF,),
        rdma=True,
    )
    spec = PoolSpec(
        "example.com/a_b.c-d",
        Mode.SRIOV,
        "c:2",
        selectors=(selector, Selector()),
        prefer=Preference.SPREAD,
        variables=Variables.PCIDEVICE,
        extra_info=(ExtraInfo("*", (("rail", "2"),)),),
        extra_paths=("/dev/null",),
    )
    journal = Journal(FakeDisk(), POOLS)
    journal.put("pools", AppliedPools((spec, OLD)))
    ((_, record),) = journal.load().records
    assert record == AppliedPools((spec, OLD))
