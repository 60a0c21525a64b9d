"""The labels of a node: as its cards are, one patch for each change, none of others touched."""

from contextlib import asynccontextmanager

import msgspec
import pytest

from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.agent.compose import AgentOptions, LabelMode, labelling
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.agent.node.node_labels import LabelSources, NodeLabels, host_release, run_labeller
from kube_rdma.pools.rules import labels as table
from kube_rdma.pools.rules.labels import NFD_LIST, HostRelease
from kube_rdma.reports.node_keeper import WritePace
from kube_rdma_lab.installation import objects
from tests.kit.beside import beside
from tests.unit.agent.world import LABEL, NODE_NAME, VKE, World, hard_card, until

CARDS = [hard_card(n) for n in range(4)]
HOST = HostRelease("6.8.0-45-generic", (("ID", "ubuntu"), ("VERSION_ID", "24.04")))
PRESENT = f"{table.FEATURE}/pci-15b3.present"


class Meddler:
    """A way to the server on which somebody writes the node right before the first patch."""

    def __init__(self, line, meddle):
        self.line, self.meddle = line, meddle

    async def send(self, request):
        if request.verb == "patch" and self.meddle:
            meddle, self.meddle = self.meddle, None
            meddle()
        return await self.line.send(request)


class LabelWorld(World):
    """A node whose Node object people and other programs label too."""

    def register(self, labels=(), annotations=(), mode="shared"):
        wish = {LABEL: mode} if mode else {}
        meta = {"name": NODE_NAME, "labels": {**wish, **dict(labels)}}
        meta["annotations"] = dict(annotations)
        self.server.put(NODE, {"metadata": meta, "spec": {}, "status": {}})

    @property
    def metadata(self):
        """What the Node object has of labels and annotations."""
        meta = self.server.documents("nodes")[0]["metadata"]
        return {**(meta.get("labels") or {})}, {**(meta.get("annotations") or {})}

    def label_of(self, key):
        return self.metadata[0].get(key)

    @property
    def patches(self):
        requests = [one for line in self.server.lines for one in line.requests]
        bodies = [one.body for one in requests if (one.verb, one.resource) == ("patch", "nodes")]
        return [msgspec.json.decode(body)["metadata"]["labels"] for body in bodies]

    @asynccontextmanager
    async def serving(self, dependencies):
        """The agent in the background, once the kubelet has its list."""
        async with super().serving(dependencies) as task:
            await self.kubelet.until(lambda: self.kubelet.healthy(VKE) == len(CARDS))
            yield task

    def labels(self, line=None, *, removes=False):
        """The labels of an agent, those of Node Feature Discovery too."""
        nodes = Nodes(Cluster(line or self.server.line()))
        return NodeLabels(nodes, HOST, removes=removes, pace=WritePace(after=lambda *_: 0.0))


@pytest.fixture
def world(tmp_path_factory):
    world = LabelWorld(tmp_path_factory.mktemp("w"), *CARDS)
    world.register()
    return world


def alone(world, labels):
    cluster = Cluster(world.server.line())
    events = NodeEvents(cluster, NODE_NAME, Events(cluster, NODE_NAME))
    return beside(run_labeller(LabelSources(world.kernel, events, labels)))


@asynccontextmanager
async def told(world, wish, folder):
    """An agent of role node alone that is told this of labels, put together as the command does."""

    @asynccontextmanager
    async def connect():
        yield Cluster(world.server.line())

    places = dict.fromkeys(("state_dir", "cdi_dir", "runtime_socket", "socket", "host"), folder)
    options = AgentOptions(node=NODE_NAME, connect=connect, labels=wish, **places)
    async with labelling(options) as sources, alone(world, sources.labels):
        yield


def wish_of(preset):
    """What the agents of a preset are told of labels."""
    (daemon_set,) = [each for each in objects((), preset) if each["kind"] == "DaemonSet"]
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    words = [word.partition("=") for word in container["args"]]
    given = [value for option, _, value in words if option == "--node-labels"]
    return LabelMode(given[0] if given else "write")


@pytest.mark.parametrize("preset", ["vke", "ib"])
async def test_a_preset_writes_no_label_by_which_others_start_drivers(world, preset, tmp_path):
    async with told(world, wish_of(preset), tmp_path):
        await until(lambda: world.label_of(table.PORTS) == "4")
        await world.again(2)
        (first,) = world.patches
        assert {key.partition("/")[0] for key in first} == {"kube-rdma.io"}
        world.functions()
        world.change()
        await until(lambda: not world.label_of(table.PORTS))
        assert world.metadata == ({LABEL: "shared"}, {})


@pytest.mark.parametrize("preset", ["vke", "ib"])
async def test_labels_that_an_older_agent_wrote_stay_until_all_are_to_go(world, preset, tmp_path):
    """Even when the last card goes: drivers run where they are, and are unloaded without them."""
    async with alone(world, world.labels()):
        await until(lambda: world.label_of(PRESENT))
    older = {key: value for key, value in world.metadata[0].items() if table.is_nfd(key)}
    async with told(world, wish_of(preset), tmp_path):
        await world.again(2)
        assert len(world.patches) == 1
        world.functions()
        world.change()
        await until(lambda: not world.label_of(table.PORTS))
        assert world.metadata[0] == {LABEL: "shared", **older}
    async with told(world, LabelMode.REMOVE, tmp_path):
        await until(lambda: world.metadata == ({LABEL: "shared"}, {}))


async def test_labels_of_node_feature_discovery_are_written_on_demand(world, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=ubuntu\n")
    async with told(world, LabelMode.WRITE_NFD, tmp_path):
        await until(lambda: world.label_of(PRESENT))
        assert world.label_of(f"{table.RELEASE}.ID") == "ubuntu"


async def test_a_node_is_labelled_by_one_patch_and_each_change_is_another(world):
    """Looks that see nothing new write nothing; the mode is the one that the label wished for."""
    dependencies = replace(world.dependencies(), keepers=(world.labels(),))
    async with world.serving(dependencies):
        await until(lambda: world.label_of(table.PORTS) == "4")
        await world.again(3)
        (first,) = world.patches
        assert first[PRESENT] == "true"
        assert first[f"{table.RELEASE}.ID"] == "ubuntu"
        assert (first[table.MODE], first[table.LINK_LAYER]) == ("shared", "ethernet")
        world.functions(*world.survey.functions[:3])
        world.change(*CARDS[:3])
        await until(lambda: world.label_of(table.PORTS) == "3")
        await world.again(3)
        assert world.patches[1][table.PORTS] == "3"
        assert len(world.patches) == 2


async def test_labels_go_with_the_last_card_and_not_with_the_agent(world):
    async with alone(world, world.labels()):
        await until(lambda: world.label_of(PRESENT))
    assert world.label_of(PRESENT) == "true"
    async with alone(world, world.labels()):
        await world.again(2)
        assert len(world.patches) == 1
        world.functions()
        world.change()
        await until(lambda: not world.label_of(PRESENT))
        assert world.label_of(f"{table.KERNEL}.full") == "6.8.0-45-generic"


async def test_what_node_feature_discovery_wrote_is_its_own(world):
    """By its list; what it does not write is written."""
    theirs = {f"{table.KERNEL}.full": "of-nfd", f"{table.FEATURE}/cpu-model.id": "1"}
    names = ",".join(key.partition("/")[2] for key in theirs)
    world.register(theirs, {NFD_LIST: f"{names},kernel-version.major"})
    async with alone(world, world.labels()):
        await until(lambda: world.label_of(PRESENT))
        labels, annotations = world.metadata
        assert theirs.items() <= labels.items()
        assert f"{table.KERNEL}.major" not in labels
        assert f"{table.KERNEL}.full" not in annotations[table.REMEMBERED]
        world.functions()
        world.change()
        await until(lambda: not world.label_of(PRESENT))
        assert theirs.items() <= world.metadata[0].items()


async def test_a_label_that_is_written_meanwhile_is_not_overwritten(world, recording):
    """The patch names the version that it was made from."""
    by_hand = {PRESENT: "by-hand"}
    line = Meddler(world.server.line(), lambda: world.register(by_hand))
    async with alone(world, world.labels(line)):
        await until(lambda: world.label_of(table.PORTS))
        assert world.label_of(PRESENT) == "by-hand"
        assert PRESENT not in world.metadata[1][table.REMEMBERED]
        assert not recording.of("node labels not written")


async def test_switched_off_it_takes_away_what_an_agent_wrote(world):
    """And writes nothing on a node that has none."""
    async with alone(world, world.labels()):
        await until(lambda: world.label_of(PRESENT))
    async with alone(world, world.labels(removes=True)):
        await until(lambda: world.metadata == ({LABEL: "shared"}, {}))
        await world.again(2)
        assert len(world.patches) == 2


def test_without_os_release_the_log_says_once_what_to_mount(tmp_path, recording):
    host = host_release(tmp_path)
    (warning,) = recording.of("labels of the distribution left out")
    assert f"{tmp_path}/etc/os-release" in warning["remedy"]
    assert host.kernel
    assert host.fields is None


async def test_role_node_alone_labels_its_node_and_follows_the_kernel(world):
    """It knows of no pools, so not of their mode."""
    async with alone(world, world.labels()):
        await until(lambda: world.label_of(table.PORTS) == "4")
        assert world.label_of(table.MODE) is None
        world.functions()
        world.change()
        await until(lambda: not world.label_of(PRESENT))
        assert len(world.patches) == 2
