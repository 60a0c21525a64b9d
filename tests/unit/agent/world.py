"""A node whose agent has everything: four cards, a kubelet, an API server, a journal, CDI files."""

import asyncio
import gc
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.adapters.journal.codec import BINDINGS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kubelet.device_plugin import Registry, serve
from kube_rdma.adapters.kubelet.folders import Folders
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import SettingsFolder
from kube_rdma.agent.loop import AgentDependencies, run_plugin
from kube_rdma.agent.node.node_events import NodeEvent, NodeEvents
from kube_rdma.attach.binder import Binder, BinderDependencies
from kube_rdma.attach.late_binding import EarlySettings, LateBindingChoice, NoLateBinding
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import PciAddress, PciPosition, PortState
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.kit.beside import beside
from tests.unit.agent.conftest import Node, card

NODE_NAME = "node-1"
VKE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"
SOCKETS = Path("/proc/net/unix")  # those of this process's network, with their paths


def position(number):
    """The place of a card; the first half of them is on NUMA node 0."""
    pci = PciAddress(f"0000:{0x81 + number:02x}:00.0")
    return PciPosition(pci, "pci0000:80", (pci,), numa_node=number // 2)


def hard_card(number, state=PortState.ACTIVE):
    place = position(number)
    return replace(
        card(number, state),
        name=f"mlx5_{number}",
        identity=place.pci,
        pci=place.pci,
        position=place,
        numa_node=place.numa_node,
    )


class World(Node):
    """The kernel's side, as in conftest, with functions below the cards, and all else around it.

    `networks`: the agent's pods get networks. `shim` is where the host has it.
    """

    def __init__(self, folder, *cards, functions=4):
        super().__init__(*cards)
        self.networks, self.shim, self.sandboxes = False, None, []
        up = [(Netdev(f"eth{n}", "ether", up=True, carrier=True),) for n in range(functions)]
        self.functions(
            *(Function(position(n), 0x15B3, 0x1017, "mlx5_core", up[n]) for n in range(functions))
        )
        self.folder = folder
        self.kubelet = FakeKubelet.at(folder)
        self.server = FakeServer()
        self.label(None)

    def functions(self, *functions):
        self.survey = replace(self.survey, functions=functions)

    def label(self, mode):
        """Somebody labels the node, or (None) takes the label away."""
        self.written = {LABEL: mode} if mode else {}
        self._put_node({})

    def address(self, text):
        self._put_node({"addresses": [{"type": "InternalIP", "address": text}]})

    def _put_node(self, status):
        meta = {"name": NODE_NAME, "labels": self.written}
        self.server.put(NODE, {"metadata": meta, "spec": {}, "status": status})

    def pod(self, name, annotations=None, host_network=False):
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        meta["annotations"] = annotations or {}
        spec = {"nodeName": NODE_NAME, "hostNetwork": host_network}
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    def events_of(self, reason):
        events = self.server.documents("events")
        return [event["note"] for event in events if event["reason"] == reason]

    def dependencies(self, config=None, *, late=False, kubelet=True):
        folders = Folders(self.folder / "device-plugins", self.folder / "plugins_registry", None)
        socket = self.folder / "pod-resources" / "kubelet.sock"
        view = KubeletView(PodResources(socket) if kubelet else None)
        cluster = Cluster(self.server.line())
        return AgentDependencies(
            config,
            self.kernel,
            partial(serve, Registry.DEVICE_PLUGINS, folders),
            view,
            node := NodeEvents(cluster, NODE_NAME, Events(cluster, NODE_NAME)),
            LateBindingChoice(self._binder(view, cluster, node) if late else self.never()),
        )

    async def again(self, count):
        """Let the agent look so many times more."""
        for _ in range(count):
            looks = self.looks
            self.change(*self.survey.devices)
            await until(lambda before=looks: self.looks > before)
        await asyncio.sleep(0)

    async def listed(self):
        return self.sandboxes

    def never(self):
        return NoLateBinding("the test has none", EarlySettings(self.folder / "early"))

    def _binder(self, view, cluster, node):
        journal = Journal(Folder(self.folder / "journal"), BINDINGS)
        cdi = CdiFolder(self.folder / "cdi")
        tell = partial(node.tell, NodeEvent.JOURNAL_TROUBLE)
        pods = Pods(cluster)
        to = BinderDependencies(journal, cdi, view, pods, lambda _: (), self.listed, tell=tell)
        to = replace(
            to, settings=SettingsFolder(self.folder / "settings"), early=self.folder / "early"
        )
        to = replace(to, networks=self.networks, shim=lambda: self.shim)
        self.binder = Binder(to)
        self.journal = journal
        return self.binder

    @asynccontextmanager
    async def serving(self, dependencies):
        """The agent in the background, with the kubelet up."""
        async with self.kubelet, running(dependencies) as task:
            yield task
        # Each side sees the other's end a few turns of the loop later, and more on a busy machine.
        await until(lambda: not self._left())

    def _left(self):
        """The sockets that are open, also those that nothing refers to but a cycle of errors."""
        lines = [one for one in SOCKETS.read_text().splitlines() if f"{self.folder}/" in one]
        if lines:
            gc.collect()
        return lines


def running(dependencies):
    """One life of the agent; an error of it comes out at the end."""
    return beside(run_plugin(dependencies))


async def until(condition):
    """Wait for a condition that nothing announces; each look lets everything else run."""
    while not condition():  # noqa: ASYNC110  what it looks at has no event
        await asyncio.sleep(0.005)
