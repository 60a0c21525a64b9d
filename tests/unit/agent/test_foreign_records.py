"""After a roll-back the agent meets records of a later version, leaves them alone and serves on.

The later version is played by a tag that nobody knows, written over one in a record; to update the
agent again is to write the old bytes back.
"""

from contextlib import contextmanager

import pytest
from grpclib import GRPCError

from kube_base.errors import Unavailable
from kube_rdma.adapters.journal.codec import FUNCTIONS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.lib.records import Records
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.device import PciAddress
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import MadeFunctions, Mode
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import VKE, hard_card, running, until
from tests.unit.agent.world import World as NodeWorld
from tests.unit.attach.delegate_world import DelegateWorld
from tests.unit.attach.network_world import World, card, config, container, share

CARD = card(0)
FOREIGN = "does not understand it"


def overwrite(disk, name, content):
    handle = disk.create(name)
    disk.write(handle, content)
    disk.fsync(handle)
    disk.close(handle)
    disk.fsync_folder()


@contextmanager
def later_version(disk, tag, name):
    """One record has `tag` of a later version meanwhile, and nobody changes a byte of the file."""
    content = disk.read(name)
    foreign = content.replace(f'"{tag}"'.encode(), f'"{tag}2"'.encode())
    assert foreign != content
    overwrite(disk, name, foreign)
    yield
    assert disk.read(name) == foreign
    overwrite(disk, name, content)


@pytest.fixture
def world(tmp_path):
    """A pod that asks for a whole card, and has a share of it."""
    shares = [share(CARD, Mode.EXCLUSIVE)]
    world = World(tmp_path, [CARD], shares, {"default/net": config("kube-rdma")})
    world.ask("net")
    return world


async def test_an_attachment_that_is_not_understood_is_not_half_undone(world):
    """DEL, CHECK and a repeated ADD are refused with what to do; the link stays in the pod."""
    number = world.sandbox()
    await world.add(number)
    inside = world.inside(number)
    record = f"attached-{container(number)}.json"
    with later_version(world.disk, "TakeLink", record):
        world.start()
        await world.calls.pipeline.recover()
        assert world.networks.attachments == ()
        assert world.networks.foreign == {container(number)}
        for call in (world.delete, world.check, world.add):
            with pytest.raises(Unavailable, match=FOREIGN):
                await call(number)
        assert world.inside(number) == inside
        assert world.held
    world.start()
    assert await world.delete(number) == CniResult()
    world.nothing_left(number)


async def test_beside_it_others_are_served(tmp_path):
    """Another sandbox on the same card gets its network, is checked, and gives it back."""
    world = World(
        tmp_path, [CARD], [share(CARD, Mode.SHARED_MULTI)], {"default/net": config("macvlan")}
    )
    world.ask("net")
    await world.add(first := world.sandbox())
    with later_version(world.disk, "AddAddress", f"attached-{container(first)}.json"):
        world.start()
        second = world.sandbox()
        await world.add(second)
        assert await world.check(second) == CniResult()
        assert await world.delete(second) == CniResult()
        assert "net1" in world.inside(first)[0]
    world.start()
    assert await world.delete(first) == CniResult()
    world.nothing_left(first)


async def test_a_person_may_remove_the_record(world):
    """What was done is theirs to undo then; the pod can end, without a restart of the agent."""
    await world.add(number := world.sandbox())
    record = f"attached-{container(number)}.json"
    overwrite(world.disk, record, b'{"version": 2}')
    world.start()
    with pytest.raises(Unavailable, match=FOREIGN):
        await world.delete(number)
    world.disk.unlink(record)
    assert await world.delete(number) == CniResult()


async def test_an_interface_of_a_meta_plugin_is_not_half_undone(tmp_path):
    """Nor is its address given to somebody else."""
    world = DelegateWorld(tmp_path, [CARD], [share(CARD, Mode.EXCLUSIVE)], {})
    number = world.sandbox()
    world.ask("rail")
    await world.meta("ADD", number)
    inside, held = world.inside(number), dict(world.held)
    (record,) = [name for name in world.delegated.names() if name.endswith(".json")]
    with later_version(world.delegated, "SetLink", record):
        world.start()
        await world.calls.pipeline.recover()
        for verb in ("DEL", "CHECK", "ADD"):
            with pytest.raises(Unavailable, match=FOREIGN):
                await world.meta(verb, number)
        assert (world.inside(number), world.held) == (inside, held)
    world.start()
    await world.meta("DEL", number)
    assert world.on_node() == world.before
    assert world.held == {}


JOB = ContainerPlace("job")
SANDBOX = ContainerId("5a7d")
ASKS = {"k8s.v1.cni.cncf.io/networks": "rdma"}


@pytest.fixture
def node(tmp_path_factory, recording):
    """A node with late binding, whose label says how its cards are given."""
    node = NodeWorld(tmp_path_factory.mktemp("w"), *map(hard_card, range(4)))
    node.label("shared")
    return node


@pytest.mark.parametrize("kind", ["Promise", "Binding"])
async def test_a_container_waits_for_the_version_that_promised_its_card(node, kind, recording):
    """Its device file stays, the node says why in an Event, and updated again it starts."""
    async with node.kubelet:
        async with running(node.dependencies(late=True)):
            node.pod(JOB.pod, ASKS)
            await node.kubelet.until(lambda: node.kubelet.healthy(VKE) == 4)
            await node.kubelet.allocate(VKE, 1, ("0000:82:00.0-0",), place=JOB)
            await node.binder.attach(
                Sandbox(SANDBOX, PodName("default", "job"), "uid-job", f"{node.folder}/netns/x", 1)
            )
            await node.kubelet.start_container(JOB)
        node.journal.close()
        (record,) = (node.folder / "journal").glob(f"{kind.lower()}-*.json")
        content = record.read_text()
        record.write_text(content.replace(f'"{kind}"', f'"{kind}2"'))
        (file,) = (node.folder / "cdi").glob("*.json")
        async with running(node.dependencies(late=True)):
            await node.kubelet.until(lambda: node.kubelet.healthy(VKE) == 4)
            with pytest.raises(GRPCError, match="run the version that wrote it again"):
                await node.kubelet.start_container(JOB)
            await node.binder.forget()
            assert file.exists()
            await until(lambda: node.events_of("JournalTrouble"))
            assert FOREIGN in node.events_of("JournalTrouble")[0]
        node.journal.close()
        record.write_text(content)
        async with running(node.dependencies(late=True)):
            await node.kubelet.until(lambda: node.kubelet.healthy(VKE) == 4)
            await node.kubelet.start_container(JOB)
    assert recording.of("journal record not understood")


async def test_records_are_known_from_when_they_count():
    """A record that may be on the disk is known, one that is to be durable only afterwards."""
    disk = FakeDisk()
    pci = PciAddress("0000:81:00.0")
    records = Records(Journal(disk, FUNCTIONS))
    old, new = MadeFunctions(pci, "1"), MadeFunctions(pci, "2", begun=True)
    await records.put("a", old)
    disk.read_only = True
    with pytest.raises(Unavailable):
        await records.put("a", new)
    assert records.values == (old,)
    with pytest.raises(Unavailable):
        records.begin("b", new)
    assert records.named == (("a", old), ("b", new))
    disk.read_only = False
    await records.remove("b", "c")
    await records.rename("a", "b", new)
    assert (records.get("a"), records.get("b")) == (None, new)
    assert Records(Journal(disk, FUNCTIONS)).named == (("b", old),)


async def test_a_foreign_record_is_told_and_refused():
    """Once at the start; nothing is known under its name, and nothing is begun there."""
    disk, sentences = FakeDisk(), []
    overwrite(disk, "a.json", b'{"version": 2}')
    records = Records(Journal(disk, FUNCTIONS), sentences.append)
    assert len(sentences) == len(records.foreign) == 1
    assert records.values == records.broken == ()
    with pytest.raises(Unavailable, match=FOREIGN):
        records.begin("a", MadeFunctions(PciAddress("0000:81:00.0"), "1"))
    assert records.get("a") is None
    await records.refuse_foreign("b")
    with pytest.raises(Unavailable, match=FOREIGN):
        await records.refuse_foreign("b", "a")
