"""All of pod networks on one node: start, missed DELs, the shim's list, the host's files."""

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path, PurePosixPath
from stat import S_IMODE

import pytest

from kube_base.errors import Broken, Refused, Unavailable
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.adapters.cni.shim_files import AskingPods
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.attach.late_binding import LateBindingChoice
from kube_rdma.attach.node_networks import (
    HostPlaces,
    NetworkSite,
    NodeNetworks,
    NodeSources,
    tell_trouble,
)
from kube_rdma.attach.repair import RepairTiming
from kube_rdma.attach.rules.repair import FAILURES
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.controller.evictions import Evictions
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.attach.attachment import RESTART, SeenLink
from kube_rdma.model.attach.cni import PLUGIN
from kube_rdma.model.device import PciAddress
from kube_rdma.model.errors import Outdated
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import PodName, PodSandbox
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kernel.network_kernel import FakeKernel
from kube_rdma_testing.runtime.cri import FakeCriRuntime
from tests.kit.beside import beside
from tests.unit.agent.conftest import card
from tests.unit.agent.world import NODE_NAME, until

NETWORK = {"cniVersion": "1.0.0", "type": "macvlan", "master": "ens0f0"}
CLUSTER = {"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "bridge"}]}
MULTUS = {"cniVersion": "1.0.0", "name": "m", "type": "multus"}
OWN_POD = PodSandbox("agent", PodName("kube-rdma", "agent"), "uid-agent", ready=True)
ASKS = {ANNOTATION: "rdma"}
WRONG = {ANNOTATION: "rdm"}
EAGER = RepairTiming(
    0.0, 0.01, count(1000.0, 1000.0).__next__
)  # no grace, and always the next round


class Kubelet(KubeletView):
    async def holdings_of(self, pod):
        return ()


class Late:
    async def attach(self, sandbox, edits, annotations, holdings):
        pass

    async def detach(self, container):
        pass


class Node:
    """One machine with an interface, a runtime and an API server; they outlive the agent."""

    def __init__(self, folder, runtime, socket):
        self.folder, self.runtime = folder, runtime
        self.cards = (card(0),)
        self.host = folder / "host"
        self.conf = self.host / "etc/cni/net.d/10-cbr0.conflist"
        self.conf.parent.mkdir(parents=True)
        (self.host / "opt/cni/bin").mkdir(parents=True)
        for plugin in ("bridge", "multus"):
            (self.host / "opt/cni/bin" / plugin).touch()
        self.conf.write_text(json.dumps(CLUSTER))
        run = socket.parent / "run"
        self.site = NetworkSite(
            NODE_NAME, "kube-rdma", self.host, folder / "state", run / "a", socket
        )
        self.kernel = FakeKernel()
        pci = PciAddress("0000:10:00.0")
        self.kernel.add_link("ens0f0", mac="02:00:00:00:00:10", pci=pci, mtu=9000, up=True)
        self.server = FakeServer([IP_POOL, ipam.IP_BLOCK, ipam.LEASE, DEFINITION])
        meta = {"name": "rdma", "namespace": "default"}
        self.server.put(DEFINITION, {"metadata": meta, "spec": {"config": json.dumps(NETWORK)}})
        runtime.run(OWN_POD)

    @asynccontextmanager
    async def agent(self, pace=EAGER, *, looked=True, chained=True, **facts):
        """One life of it, from when it serves and, where it can be, is chained."""
        kept = SurveyCache(self._survey)
        facts = {"open_pod": self._open, "shim": lambda: b"shim", "pace": pace, **facts}
        machine = NodeSources(kept, self._links, **facts)
        cluster = Cluster(self.server.line())
        events = Events(cluster, NODE_NAME)
        side = NodeNetworks(self.site, cluster, events, Kubelet(None), machine)
        if looked:
            kept.take()
            side.offered({})
        first = self.runtime.lists - (not looked)
        online = NodeEvents(cluster, NODE_NAME, events).follow(lambda _: None)
        async with beside(side.run(LateBindingChoice(Late())), online) as task:
            await until(
                lambda: (
                    task.done() or ((not chained or self.is_chained) and self.runtime.lists > first)
                )
            )
            yield side

    @property
    def is_chained(self):
        return "kube-rdma" in self.conf.read_text()

    @property
    def asking(self):
        """The pods that the shim holds back while the agent is away."""
        return {one.name for one in AskingPods(self.site.state / "asking").present()}

    @property
    def attached(self):
        return {link.space.path.name for link in self.kernel.links if link.name == "net1"}

    def pod(self, name, annotations=None, phase="Running", **spec):
        """A pod of this node, as the API server has it from now on; its uid."""
        meta = {"name": name, "namespace": "default", "annotations": annotations or {}}
        spec["nodeName"] = NODE_NAME
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
        (mine,) = (one for one in self.server.documents("pods") if one["metadata"]["name"] == name)
        return mine["metadata"]["uid"]

    def sandbox(self, name, uid, ago=0):
        """The runtime made it so many seconds ago, without asking us; its namespace."""
        path = self.folder / f"netns-{name}"
        path.touch()
        self.kernel.add_pod(path)
        self.kernel.space(path).inode = path.stat().st_ino
        created = time.time_ns() - ago * 10**9
        one = PodSandbox(f"c-{name}", PodName("default", name), uid, True, created)
        self.runtime.run(one, str(path))
        return path

    async def many_rounds(self):
        """Wait for more of them than a pod without its networks is given."""
        lists = self.runtime.lists
        await until(lambda: self.runtime.lists > lists + FAILURES + 3)

    @property
    def pods(self):
        return {one["metadata"]["name"] for one in self.server.documents("pods")}

    @property
    def restarts(self):
        """The names of the pods for which the agent asks for a restart."""
        marked = (one["metadata"] for one in self.server.documents("pods"))
        return {meta["name"] for meta in marked if RESTART in (meta.get("labels") or {})}

    def events_of(self, reason):
        """The names of the pods that have an Event with this reason."""
        found = (one for one in self.server.documents("events") if one["reason"] == reason)
        return {one["regarding"]["name"] for one in found}

    @property
    def records(self):
        return sorted(path.name for path in (self.site.state / "attachments").glob("att*-*"))

    def _survey(self):
        return Survey(self.cards, None, NamespaceMode.SHARED)

    def _links(self, names):
        links = self.kernel.within(self.kernel.node)
        return tuple(SeenLink(o.name, o.index, o.mtu, o.mac, o.up, pci=o.pci) for o in links)

    @contextmanager
    def _open(self, namespace):
        if isinstance(namespace, int):
            namespace = Path(os.readlink(f"/proc/self/fd/{namespace}"))  # noqa: PTH115
        with self.kernel.open_pod(namespace) as pod:
            yield pod


@pytest.fixture
async def node(tmp_path, tmp_path_factory):
    socket = tmp_path_factory.mktemp("r") / "s"
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as runtime:
        yield Node(tmp_path, runtime, socket)


async def test_a_node_without_cards_is_left_as_it_is_until_one_comes(node, recording):
    """No entry, no shim; when it has had a card, all of it stays, for its pods have to end."""
    before = node.conf.read_bytes()
    node.cards = ()
    kept = SurveyCache(node._survey)
    facts = {"open_pod": node._open, "shim": lambda: b"shim", "pace": EAGER}
    machine = NodeSources(kept, node._links, **facts)
    cluster = Cluster(node.server.line())
    side = NodeNetworks(node.site, cluster, Events(cluster, NODE_NAME), Kubelet(None), machine)
    assert side.cards() is None, "the journal is not read"
    async with beside(side.run(LateBindingChoice(Late()))):
        kept.take()
        side.offered({})
        assert side.shim_of_host() is None
        await until(lambda: recording.of("CNI configuration not needed"))
        assert side.cards() == frozenset()
        assert node.site.socket.is_socket(), "pods of other nodes' kind are answered all the same"
        assert node.conf.read_bytes() == before
        assert not list((node.host / "opt/cni/bin").glob("kube-rdma*"))
        node.cards = (card(0),)
        kept.take()
        side.offered({})
        await until(lambda: node.is_chained)
    node.conf.write_bytes(before)
    node.cards = ()
    async with node.agent():
        assert node.is_chained


async def test_what_is_told_waits_in_the_one_table_of_the_process(node):
    """Pod networks have no writer of their own: what role node writes has their Events too."""
    cluster = Cluster(node.server.line())
    events = Events(cluster, NODE_NAME)
    kept = SurveyCache(node._survey)
    machine = NodeSources(kept, node._links, open_pod=node._open, shim=lambda: b"shim", pace=EAGER)
    side = NodeNetworks(node.site, cluster, events, Kubelet(None), machine)
    kept.take()
    side.offered({})
    async with beside(side.run(LateBindingChoice(Late()))):
        await until(lambda: node.is_chained)
        await node.many_rounds()
        assert not node.server.documents("events")
        async with beside(NodeEvents(cluster, NODE_NAME, events).follow(lambda _: None)):
            await until(lambda: node.events_of("NetworkConfiguration") == {NODE_NAME})
    assert {one["type"] for one in node.server.documents("events")} == {"Normal"}


async def test_the_host_is_wired_and_the_socket_is_there(node):
    """The shim is installed, and called behind the cluster's plugin and for containers."""
    async with node.agent() as side:
        assert side.shim_of_host() == "/opt/cni/bin/kube-rdma-hook"
        assert node.site.socket.is_socket()
        assert S_IMODE(node.site.socket.parent.stat().st_mode) == 0o700
        types = [one["type"] for one in json.loads(node.conf.read_text())["plugins"]]
        assert types == ["bridge", "kube-rdma"]
        assert (node.host / "opt/cni/bin/kube-rdma").read_bytes() == b"shim"
    assert not node.site.socket.exists()


async def test_the_shim_has_a_list_of_the_pods_that_ask(node):
    """By either annotation; pods on the host's network and pods that are gone are not on it."""
    node.pod("a", ASKS)
    node.pod("b", {POD_NETWORKS: "[]"})
    node.pod("c", ASKS, hostNetwork=True)
    node.pod("d")
    async with node.agent():
        await until(lambda: node.asking == {"a", "b"})
        node.server.remove(POD, "a", "default")
        node.pod("d", ASKS)
        await until(lambda: node.asking == {"b", "d"})
        node.pod("b")
        await until(lambda: node.asking == {"d"})
    assert node.asking == {"d"}


async def test_a_pod_that_started_without_us_gets_its_network(node):
    """It was there before the agent, or comes while it is; the pod is told by an Event."""
    node.sandbox("a", node.pod("a", ASKS))
    node.sandbox("x", node.pod("x"))
    async with node.agent():
        await until(lambda: node.attached == {"netns-a"})
        node.sandbox("b", node.pod("b", ASKS))
        await until(lambda: node.attached == {"netns-a", "netns-b"})
        await until(lambda: node.events_of("NetworksAttachedLate") == {"a", "b"})
    assert node.records == ["attached-c-a.json", "attached-c-b.json"]


async def test_until_the_node_was_looked_at_no_pod_is_given_what_it_lacks(node):
    """Its card would look like one that nobody holds. An earlier life has left the shim."""
    (node.host / "opt/cni/bin" / PLUGIN).touch()
    node.sandbox("a", node.pod("a", ASKS))
    async with node.agent(looked=False) as side:
        await until(lambda: node.asking == {"a"})
        assert node.runtime.lists == 0
        side.offered({})
        await until(lambda: node.attached == {"netns-a"})


async def test_for_a_pod_that_cannot_get_its_network_a_restart_is_asked(node):
    """It asked before it started, and we were chained; the controller evicts it, nobody else."""
    uid = node.pod("a", WRONG, "Pending")
    async with node.agent():
        await until(lambda: node.asking == {"a"})
        node.sandbox("a", uid)
        node.pod("a", WRONG)
        await until(lambda: node.restarts == {"a"})
        await until(lambda: node.events_of("NetworksMissing") == {"a"})
        assert node.pods == {"a"}
        cluster = Cluster(node.server.line())
        assert await Evictions(cluster, Events(cluster, "controller")).round() == 1
    assert (node.pods, node.attached) == (set(), set())


async def test_a_pod_with_outdated_device_nodes_is_ended_though_it_waits(node):
    """Refused twice it is marked by the agent, and evicted, while a bare one is only told."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "u"}
    for name, owners in (("a", [{**owner, "controller": True}]), ("bare", [])):
        meta = {"name": name, "namespace": "default", "ownerReferences": owners}
        spec, status = {"nodeName": NODE_NAME}, {"phase": "Pending"}
        node.server.put(POD, {"metadata": meta, "spec": spec, "status": status})
    cluster = Cluster(node.server.line())
    events, pods = Events(cluster, NODE_NAME), Pods(cluster)
    async with AsyncExitStack() as stack:
        machine = NodeSources(SurveyCache(node._survey), node._links, open_pod=node._open)
        side = NodeNetworks(node.site, cluster, events, Kubelet(None), machine)
        to = await side._attach_dependencies(stack, LateBindingChoice(Late()))
        for name in ("a", "bare", "a", "bare"):
            pod = await pods.read("default", name)
            await to.outdated.refused(pod, None, Outdated("mlx5_0 is uverbs3"))
    async with beside(events.run()):
        await until(lambda: node.events_of("DeviceNodesOutdated") == {"a", "bare"})
        assert node.restarts == {"a"}
        assert await Evictions(cluster, events).round() == 1
        assert node.pods == {"bare"}
        await until(lambda: node.events_of("EvictedForDeviceNodes") == {"a"})


async def test_while_the_configuration_is_refused_nobody_is_known_to_call_us(node):
    """Pods that start then are owed nothing; when it is mended, those that come are."""
    mark = node.site.state / "chained"
    async with node.agent():
        await until(mark.exists)
        node.conf.write_text(json.dumps(CLUSTER | {"cniVersion": "0.2.0"}))
        await until(lambda: not mark.exists())
        node.conf.write_text(json.dumps(CLUSTER))
        await until(mark.exists)


async def test_the_node_is_told_when_addresses_cannot_be_given(node):
    """As long as it lasts; a runtime that asks is told that all is well."""
    node.server.forbidden.add(("list", "ippools"))
    async with node.agent(look=0.01):
        await until(lambda: node.events_of("AddressTrouble") == {NODE_NAME})


async def test_a_del_that_nobody_heard_is_made_up_for(node):
    """At the next start, by the file that the shim left."""
    node.sandbox("a", node.pod("a", ASKS))
    async with node.agent():
        await until(lambda: node.records and node.attached)
    (node.site.socket.parent / "missed" / "c-a@eth0").touch()
    node.runtime.remove("c-a")
    node.server.remove(POD, "a", "default")
    async with node.agent():
        assert (node.attached, node.records) == (set(), [])
    assert not list((node.site.socket.parent / "missed").iterdir())


async def test_behind_a_meta_plugin_only_networks_of_our_type_concern_us(node):
    """A pod whose networks are all made by others starts without us; the node has an Event."""
    meta = {"name": "ours", "namespace": "default"}
    config = json.dumps({"plugins": [{"type": "kube-rdma"}]})
    node.server.put(DEFINITION, {"metadata": meta, "spec": {"config": config}})
    pods = [PodState("default", "a", "u", ((ANNOTATION, text),)) for text in ("rdma", "rdma,ours")]
    async with node.agent() as side:
        assert [await side.concerned(pod) for pod in pods] == [True, True]
        (node.conf.parent / "00-multus.conf").write_text(json.dumps(MULTUS))
        await until(lambda: not node.is_chained)
        assert [await side.concerned(pod) for pod in pods] == [False, True]
        await until(lambda: node.events_of("NetworkConfiguration") == {NODE_NAME})


async def test_a_node_is_settled_once_it_is_chained(node):
    async with node.agent() as side:
        await until(lambda: not side.unsettled())


async def test_a_cluster_s_network_that_is_not_there_yet_is_waited_for(node):
    """A pod that started then would start without its networks."""
    text = node.conf.read_text()
    node.conf.unlink()
    async with node.agent(chained=False) as side:
        await until(lambda: node.events_of("NetworkConfiguration") == {NODE_NAME})
        assert side.unsettled()
        node.conf.write_text(text)
        await until(lambda: not side.unsettled())
        assert node.is_chained


async def test_a_configuration_that_is_refused_settles_it(node):
    """The agent has said why it stays out; nothing changes before somebody mends the file."""
    node.conf.write_text(json.dumps(CLUSTER | {"cniVersion": "0.2.0"}))
    async with node.agent(chained=False) as side:
        await until(lambda: not side.unsettled())
        await until(lambda: node.events_of("NetworkConfigurationRefused") == {NODE_NAME})


async def test_behind_a_meta_plugin_it_is_settled_without_being_chained(node):
    (node.conf.parent / "00-multus.conf").write_text(json.dumps(MULTUS))
    async with node.agent(chained=False) as side:
        await until(lambda: not side.unsettled())
        assert not node.is_chained


async def test_a_node_without_cards_is_settled_when_it_was_looked_at(node):
    node.cards = ()
    async with node.agent(chained=False, looked=False) as side:
        await asyncio.sleep(0)
        assert side.unsettled()
        side.offered({})
        await until(lambda: not side.unsettled())
        assert not node.is_chained


class AddressProvider:
    """`trouble` is raised or answered; `looks` counts the questions."""

    def __init__(self):
        self.trouble, self.looks = (), 0

    async def check(self):
        self.looks += 1
        if isinstance(self.trouble, Exception):
            raise self.trouble
        return self.trouble

    async def become(self, trouble):
        self.trouble, looks = trouble, self.looks
        await until(lambda: self.looks > looks + 2)


async def test_each_change_is_told_once(recording):
    """A lapsed lease, an address that was lost, and that all is well again."""
    giver, told = AddressProvider(), []
    async with beside(tell_trouble(giver.check, lambda *what: told.append(what), 0.0)):
        await giver.become(())
        assert told == []
        await giver.become(Unavailable("The lease has lapsed."))
        await giver.become((Broken("one is lost."), Broken("two are lost.")))
        await giver.become(())
    assert told == [
        ("AddressTrouble", "The lease has lapsed.", True),
        ("AddressTrouble", "one is lost. two are lost.", True),
        ("AddressTroubleOver", "Pods get addresses on this node as they should.", False),
    ]
    assert len(recording.of("address allocation unavailable")) == 2


SAID = {"PluginDirs": ["/data/cni"], "PluginConfDir": "/etc/cni/net.d", "Prefix": "eth"}


@pytest.fixture
async def runtime(tmp_path_factory):
    socket = tmp_path_factory.mktemp("r") / "s"
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as found:
        found.socket = socket
        yield found


@pytest.fixture
def host(tmp_path):
    """With the usual folders, as the default manifest mounts them."""
    for folder in ("etc/cni/net.d", "opt/cni/bin"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


async def test_the_runtime_has_the_word(host, runtime):
    """Also where its folder is not mounted: the files that we see say nothing then."""
    places = HostPlaces(host, runtime.socket)
    assert (await places.find()).binaries == PurePosixPath("/opt/cni/bin")
    runtime.cni = SAID
    found = await places.find()
    assert (str(found.conf), str(found.binaries)) == ("/etc/cni/net.d", "/data/cni")
    assert found.source == f"containerd on {runtime.socket}"
    assert places.now == found


async def test_what_it_said_holds_while_it_is_away(host, runtime):
    """It restarts: its folders do not change by that."""
    runtime.cni = SAID
    places = HostPlaces(host, runtime.socket)
    found = await places.find()
    runtime.failing = True
    assert await places.find() == found
    runtime.failing, runtime.cni = False, SAID | {"PluginDirs": ["/a", "/b"]}
    moved = await places.find()
    assert (str(moved.binaries), moved.more) == ("/a", (PurePosixPath("/b"),))


async def test_one_that_never_answered_is_judged_by_its_files(host, tmp_path):
    """As one that says nothing; without files there is nothing to go by."""
    places = HostPlaces(host, tmp_path / "none")
    assert (await places.find()).source == "the list of usual folders"
    with pytest.raises(Refused, match="no container runtime says"):
        await HostPlaces(tmp_path / "empty", tmp_path / "none").find()


async def test_other_plugins_are_called_where_they_are_now(host, runtime):
    """After an upgrade in the new folder, whose name they are told."""
    places = HostPlaces(host, runtime.socket)
    await places.find()
    assert (places.root, places.folder, places.names()) == (str(host), "/opt/cni/bin", ())
    plugin = host / "data/cni/ptp"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("")
    plugin.chmod(0o755)
    runtime.cni = SAID
    await places.find()
    assert (places.folder, places.names()) == ("/data/cni", ("ptp",))
    assert places.inode("/data/cni/ptp") == plugin.stat().st_ino
