"""Virtual functions by policy: made at the start, after a reboot, and never below a pod."""

import json

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.adapters.journal.codec import FUNCTIONS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.netlink.events import Uevent
from kube_rdma.adapters.kernel.sriov.functions import SriovCards
from kube_rdma.agent import changes
from kube_rdma.agent.changes import FunctionSources
from kube_rdma.agent.node.marks import StartupTaint
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.card import Function, Netdev, Use
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.pools.rules import absence
from kube_rdma.pools.rules.holdings import EFFECT, STARTING
from kube_rdma.reports.node_keeper import WritePace
from kube_rdma_testing.kernel.sriov import FakeSriov
from kube_rdma_testing.kernel.tree import write_tree
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import NODE_NAME, World, until

RESOURCE = "rdma/vf"
CARDS = [PciAddress("0000:81:00.0"), PciAddress("0000:81:00.1")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name in ("DRAIN_SECONDS", "POD_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(changes, name, 0.05)


class VfWorld(World):
    """Two igb cards without functions, in a tree that changes as the kernel's does."""

    def __init__(self, folder, **facts):
        super().__init__(folder)
        self.root = folder / "sys"
        write_tree(self.root, [], functions=[physical(n, **facts) for n in (0, 1)])
        self.sysfs = FakeSriov(self.root)
        self.config = folder / "config" / "policy.json"
        self.config.parent.mkdir()
        self.uses = {}  # by interface; those that are not in it are merely up

    def used(self, names):
        if self.uses is None:
            raise Unavailable("routing netlink: it does not answer")
        return {name: self.uses.get(name, Use()) for name in names}

    def set_up(self):
        for flags in self.root.glob("class/net/*/flags"):
            flags.write_text("0x1003\n")

    def look(self):
        self.looks += 1
        return survey_at(self.root)

    def policy(self, *wishes):
        """The whole configuration: one pool of virtual functions, and these wishes."""
        pool = {"resource": RESOURCE, "mode": "sriov"}
        pool["selectors"] = [{"physicalFunctions": ["eth0#0-7", "eth1#0-7"]}]
        spec = {"pools": [pool], "virtualFunctions": wishes}
        head = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy"}
        new = self.config.with_suffix(".new")
        new.write_text(json.dumps({**head, "metadata": {"name": "a"}, "spec": spec}))
        new.rename(self.config)

    def agent(self, *, boot="1", keepers=(), **options):
        make = SriovCards(self.root, self.sysfs.write).make
        sources = FunctionSources(make, self.open_journal, boot, self.used)
        dependencies = replace(
            self.dependencies(self.config, **options), functions=sources, keepers=keepers
        )
        return self.serving(dependencies)

    def open_journal(self):
        self.journal = Journal(Folder(self.folder / "functions"), FUNCTIONS)
        return self.journal

    def register(self, allocatable):
        """The Node object with the startup taint, showing so many functions (None: nothing)."""
        status = {"allocatable": {RESOURCE: str(allocatable)}} if allocatable is not None else {}
        taints = [{"key": STARTING, "effect": EFFECT}]
        meta = {"name": NODE_NAME}
        self.server.put(NODE, {"metadata": meta, "spec": {"taints": taints}, "status": status})

    @property
    def tainted(self):
        return bool(self.server.documents("nodes")[0]["spec"].get("taints"))

    def announce(self):
        self.events.push(Uevent("remove", "net"))

    async def looked_again(self):
        """Something is announced, and what it leads to has begun."""
        for _ in range(2):
            looks = self.looks
            self.announce()
            await until(lambda before=looks: self.looks > before)

    async def offered(self, count):
        await self.kubelet.until(lambda: self.kubelet.healthy(RESOURCE) == count)
        return set(self.kubelet.devices[RESOURCE])


def physical(number, **facts):
    position = PciPosition(CARDS[number], "pci0000:80", (CARDS[number],), 1, sriov_total=7)
    netdev = Netdev(f"eth{number}", "ether", **({"up": True, "carrier": True} | facts))
    return Function(position, 0x8086, 0x10C9, "igb", (netdev,))


def wish(count, *interfaces, **more):
    return {"selectors": [{"interfaces": list(interfaces or ["eth0"])}], "count": count, **more}


@pytest.fixture
def world(tmp_path_factory, recording):
    made = VfWorld(tmp_path_factory.mktemp("w"))
    yield made
    if hasattr(made, "journal"):
        made.journal.close()


async def test_functions_are_made_at_the_start_and_offered(world, recording):
    world.policy(wish(4, "eth0", "eth1"))
    async with world.agent():
        assert len(await world.offered(8)) == 8
    made = recording.of("virtual functions configured")
    assert sorted((line["card"], line["count"]) for line in made) == [("eth0", 4), ("eth1", 4)]


async def test_the_startup_taint_waits_for_functions(world):
    """The list is empty while they are made; those of an earlier agent make nobody wait."""
    world.policy(wish(4))
    world.register(None)
    nodes = Nodes(Cluster(world.server.line()))
    async with world.agent(keepers=(StartupTaint(nodes, WritePace(after=lambda *_: 0.0)),)):
        await world.offered(4)
        await world.looked_again()
        assert world.tainted
        world.register(4)
        await until(lambda: not world.tainted)
    world.journal.close()
    for path in (world.folder / "functions").iterdir():
        path.unlink()
    world.register(4)
    async with world.agent(keepers=(StartupTaint(nodes, WritePace(after=lambda *_: 0.0)),)):
        await until(lambda: not world.tainted)


async def test_functions_that_somebody_or_a_reboot_removes_are_made_again(world):
    """The same addresses are offered again in the agent's next life."""
    world.policy(wish(4))
    async with world.agent():
        before = await world.offered(4)
        world.sysfs.reboot()
        world.announce()
        await until(lambda: len(world.sysfs.writes) == 2)
        assert await world.offered(4) == before
    world.journal.close()
    world.sysfs.reboot()
    async with world.agent(boot="2"):
        assert await world.offered(4) == before


async def test_another_number_waits_for_the_pods_and_says_so(world, recording):
    world.policy(wish(2))
    async with world.agent():
        await world.offered(2)
        await world.kubelet.allocate(RESOURCE, 1, place=ContainerPlace("training"))
        world.policy(wish(4))
        await until(lambda: world.events_of("VirtualFunctionsPending"))
        (sentence,) = {line["what"] for line in recording.of("virtual functions pending")}
        assert "these pods have ended: default/training" in sentence
        assert world.kubelet.healthy(RESOURCE) == 2
        assert len(world.sysfs.writes) == 1
        world.kubelet.remove_pod("training")
        await world.offered(4)
    assert len(recording.of("virtual functions pending")) == 1


async def test_functions_that_are_up_stay_while_the_kernel_does_not_say_what_for(world, recording):
    world.policy(wish(2))
    async with world.agent():
        await world.offered(2)
        world.set_up()
        known = {"eth0v1": Use(addresses=("10.0.0.1/24",))}
        for count, uses in enumerate((None, known, None)):
            world.uses = uses
            world.policy(wish(4))
            world.announce()
            await until(lambda n=count: len(recording.of("virtual functions pending")) > n)
        await world.looked_again()
        unsure, used, again = (one["what"] for one in recording.of("virtual functions pending"))
        assert "eth0v0 is set down, for the node may use it" in unsure
        assert "eth0v1 has no longer the address 10.0.0.1/24" in used
        assert again == unsure
        world.uses = {}
        world.announce()
        await world.offered(4)
    assert len(recording.of("virtual function usage unknown")) == 2


async def test_functions_that_are_to_go_are_offered_to_nobody_first(world, monkeypatch):
    """A pod that got one at the last moment keeps it: whoever holds one is asked again."""
    monkeypatch.setattr(changes, "DRAIN_SECONDS", 1000.0)
    world.policy(wish(2))
    async with world.agent():
        await world.offered(2)
        await world.kubelet.allocate(RESOURCE, 1, place=ContainerPlace("training"))
        world.kubelet.remove_pod("training")
        world.policy(wish(4))
        await world.offered(0)
        await world.looked_again()
        assert len(world.kubelet.devices[RESOURCE]) == 2
        assert [text for _, text in world.sysfs.writes] == ["2"]
        monkeypatch.setattr(changes, "DRAIN_SECONDS", 0.0)
        world.announce()
        await world.offered(4)


async def test_what_a_life_did_not_end_the_next_one_ends(world, recording):
    """Its functions were there, and drivers were not to bind to them yet."""
    folder = world.root / "bus/pci/devices" / CARDS[0]

    def half(act):
        world.sysfs.write(folder / "sriov_drivers_autoprobe", "0")
        world.sysfs.write(folder / "sriov_numvfs", "2")
        raise Unavailable("it was killed here")

    world.policy(wish(2))
    sources = FunctionSources(half, world.open_journal, "1")
    async with world.serving(replace(world.dependencies(world.config), functions=sources)):
        await until(lambda: world.events_of("VirtualFunctionsRefused"))
    assert not (folder / "virtfn0/driver").exists()
    world.journal.close()
    async with world.agent():
        assert len(await world.offered(2)) == 2
        await until(lambda: recording.of("virtual functions configured"))
    ((_, record),) = world.journal.load().records
    assert not record.begun
    assert (folder / "sriov_drivers_autoprobe").read_text() == "1\n"


async def test_what_earlier_agents_made_since_the_boot_is_ours_and_nothing_else(world):
    """A record of an earlier boot says nothing about the functions of this one."""
    for count in (2, 3):
        world.policy(wish(count))
        async with world.agent():
            await world.offered(count)
        world.journal.close()
    world.policy(wish(4))
    async with world.agent(boot="2"):
        await until(lambda: world.events_of("VirtualFunctionsRefused"))
        assert "kube-rdma did not make" in world.events_of("VirtualFunctionsRefused")[0]
        world.policy(wish(4, force=True))
        await world.offered(4)


async def test_what_the_kernel_refuses_is_said_once_and_tried_again(world, recording, monkeypatch):
    """Later, not at every look; another wish is tried at once."""
    monkeypatch.setattr(changes, "RETRY_SECONDS", 1000.0)
    world.sysfs.readonly = True
    world.policy(wish(3))
    async with world.agent():
        await until(lambda: world.events_of("VirtualFunctionsRefused"))
        await world.looked_again()
        assert len(world.sysfs.writes) == 1
        monkeypatch.setattr(changes, "RETRY_SECONDS", 0.05)
        world.policy(wish(4))
        await until(lambda: len(world.sysfs.writes) > 3)
        (line,) = recording.of("virtual functions not configured")
        assert "Mount the host's /sys" in line["why"]
        world.sysfs.readonly = False
        await world.offered(4)


async def test_without_a_journal_functions_are_made_and_forgotten(world, recording):
    world.policy(wish(4))
    (world.folder / "functions").write_text("no folder")
    async with world.agent():
        await world.offered(4)
    assert recording.of("managed virtual functions not recorded")


async def test_while_functions_are_made_none_is_said_to_be_moved(world, monkeypatch):
    """Its driver may be at work; when that is done, one without an interface is no good."""
    for name in ("ASK", "CONFIRM"):
        monkeypatch.setattr(absence, name, 0.01)
    world.policy(wish(2))
    async with world.agent():
        await world.offered(2)
        monkeypatch.setattr(changes.VirtualFunctions, "busy", True)
        (function, *_) = sorted(await world.offered(2))
        for netdev in world.root.glob("class/net/*"):
            if function in str(netdev.resolve()):
                netdev.unlink()
        world.announce()
        looks = world.looks
        await until(lambda: world.looks >= looks + 10)
        assert world.kubelet.healthy(RESOURCE) == 2
        monkeypatch.setattr(changes.VirtualFunctions, "busy", False)
        await world.kubelet.until(lambda: world.kubelet.devices[RESOURCE][function] is False)
