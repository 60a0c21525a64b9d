"""The node of `attach`: `unshare --net python -m bench.attach_node FOLDER`, one process.

Pod networks as role `node` runs them: journals are on the disk of FOLDER, IPAM is the real one, as
are planning, netlink, late binding and the socket of the shim. The API server is in this process's
memory, the kubelet is another process. Every sandbox has a network namespace of its own.

Run so, the node is a namespace with eight Ethernet rails, and its RDMA devices are a made-up tree:
without them in the kernel no share is held and no GID is waited for. attach_inside.py runs it on a
machine that has some.

It does what it is told, a line of JSON for each, and answers with one. Namespaces are kept to the
end: the kernel takes a while to clear one away, which would be in the next figure.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from bench.attach_floor import Act, Noting, Trace, run
from kube_base.errors import Unavailable
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, RESOURCE
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.nodes import Pods
from kube_rdma.adapters.cni.conf.places import inside
from kube_rdma.adapters.cni.plugins import HostPlugins, Plugins
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.adapters.journal.codec import ATTACHMENTS, BINDINGS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, links_inside
from kube_rdma.adapters.kernel.pod.steps import PodNetwork, open_pod
from kube_rdma.adapters.kubelet.folders import KUBELET_SOCKET, POD_RESOURCES
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.cri import read_sandboxes
from kube_rdma.attach import binder
from kube_rdma.attach.attach import AttachDependencies
from kube_rdma.attach.calls import CniRouter, SandboxNetworks
from kube_rdma.attach.executor import AttachmentJournal, PlanExecutor
from kube_rdma.attach.late_binding import LateBindingChoice
from kube_rdma.attach.node_networks import host_functions, host_links
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.attach.rules.requests import ANNOTATION
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, LEASE
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.lib import logs
from kube_rdma.model.attach.attachment import AttachmentKey
from kube_rdma.model.attach.cni import Call, Verb
from kube_rdma.model.ipam import BootId, InterfaceName, NodeName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import Pool
from kube_rdma.model.survey import Survey
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.cluster.server import ClientLine, FakeServer

RAILS, SETTLE_SECONDS = 8, 0.1
SOCKET, KUBELET, TREE = "run/kube-rdma/agent.sock", "kubelet", "tree"
WRITES = ("create", "update", "patch", "delete")
T = TypeVar("T")
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod's, with what the runtime says of it; the path holds while this process lives."""

    pod: str
    uid: str
    container: str
    netns: int
    path: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What this process has spent so far."""

    cpu_ms: float
    requests: int  # to the API server, without the node's own lease
    status_writes: int  # patches of pods
    other_writes: int  # of everything else: address blocks, which are taken ahead for many pods


@dataclass(frozen=True)
class Scene:
    """What the node has, and what its pods ask for.

    `networks` are CNI configurations by name, without addresses, each with its resource; `pools`
    are what the kubelet is offered.
    """

    networks: Mapping[str, tuple[dict[str, Any], str]]
    survey: Callable[[], Survey]
    pools: Mapping[str, Pool] = field(default_factory=dict)


class Node:
    """Pod networks, and what it takes to give them pods."""

    def __init__(
        self, folder: Path, scene: Scene, server: FakeServer, line: ClientLine, acts: list[Act]
    ) -> None:
        self._names = tuple(scene.networks)
        self._server = server
        self._line = line
        self._acts = acts
        self._floor = Folder(folder / "floor")
        self._traces: dict[int, Trace] = {}
        self._made = 0
        self._open: list[Sandbox] = []
        self._before = self.spent()
        self._resident = 0.0
        self.attachments: PlanExecutor
        self.networks: SandboxNetworks

    def spent(self) -> Spent:
        """Until now."""
        requests = Counter(
            (one.verb in WRITES, one.plural)
            for one in self._line.requests
            if one.plural != LEASE.plural
        )
        writes = Counter({plural: n for (is_write, plural), n in requests.items() if is_write})
        status = writes.pop(POD.plural, 0)
        return Spent(time.process_time() * 1000, requests.total(), status, writes.total())

    def sandbox(self, nics: int) -> Sandbox:
        """A new pod with the first networks, and its namespace."""
        name, self._made = f"train-{self._made}", self._made + 1
        wanted = ", ".join(self._names[:nics])
        meta = {"name": name, "namespace": "default", "annotations": {ANNOTATION: wanted}}
        self._server.put(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}})
        uid = self._server.documents(POD.plural)[-1]["metadata"]["uid"]
        netns = new_namespace()
        path = f"/proc/{os.getpid()}/fd/{netns}"
        return Sandbox(name, uid, f"{self._made:064x}", netns, path)

    async def answer(self, verb: Verb, of: Sandbox) -> float:
        """Do one call inside of this process; how many ms it took."""
        call = Call(
            verb,
            "1.1.0",
            "cluster",
            b"{}",
            ContainerId(of.container),
            InterfaceName("eth0"),
            netns=of.netns,
            netns_path=of.path,
            pod=PodName("default", of.pod),
            uid=of.uid,
        )
        begin = time.perf_counter()
        await self.networks.answer(call)
        return (time.perf_counter() - begin) * 1000

    async def inside(self, nics: int) -> dict[str, Any]:
        """ADD and DEL, timed here."""
        sandbox = self.sandbox(nics)
        await settled()
        self._acts.clear()
        before = self.spent()
        took = await self.answer(Verb.ADD, sandbox)
        spent = since(before, self.spent())
        attachment = self.attachments.of(AttachmentKey(ContainerId(sandbox.container)))
        assert attachment
        assert len(attachment.plans) == nics
        self._traces[nics] = Trace(attachment.plans, tuple(self._acts))
        return {"ms": took, "del_ms": await self.answer(Verb.DEL, sandbox), **spent}

    async def floor(self, nics: int) -> dict[str, Any]:
        """The last ADD with so many NICs once more, bare."""
        namespace = new_namespace()
        await settled()
        return asdict(run(self._traces[nics], namespace, self._floor))

    async def open(self, nics: int, pods: int) -> dict[str, Any]:
        """Sandboxes, for the shim to call about; what is spent from now on is theirs."""
        self._open = [self.sandbox(nics) for _ in range(pods)]
        await settled()
        forget_peak()
        self._before, self._resident = self.spent(), resident("VmRSS")
        return {"sandboxes": [asdict(one) for one in self._open]}

    async def end(self) -> dict[str, Any]:
        """End whatever of them there is."""
        for sandbox in self._open:
            await self.answer(Verb.DEL, sandbox)
        return {}

    async def close(self) -> dict[str, Any]:
        """End them; what they have cost."""
        spent = since(self._before, self.spent())
        grown = resident("VmHWM") - self._resident
        for sandbox in self._open:
            attachment = self.attachments.of(AttachmentKey(ContainerId(sandbox.container)))
            assert attachment
            assert attachment.complete
            await self.answer(Verb.DEL, sandbox)
        return {"grown_mib": grown, **spent}


def since(before: Spent, after: Spent) -> dict[str, float]:
    """What was spent in between."""
    first, last = asdict(before), asdict(after)
    return {key: last[key] - first[key] for key in last}


async def settled() -> None:
    """Let the kernel end what earlier pods left it to do: it removes links in the background."""
    await asyncio.sleep(SETTLE_SECONDS)


def forget_peak() -> None:
    """Let VmHWM begin anew (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(which: str) -> float:
    """MiB of this process, by the kernel's name."""
    match = re.search(rf"{which}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) / 1024


def new_namespace() -> int:
    """A descriptor of a new network namespace; the thread that made it ends at once."""

    def make() -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def make_rails() -> None:
    """The rails: veths, whose other ends stand for the switch."""
    for number in range(RAILS):
        name, far = f"rail{number}", f"far{number}"
        for words in (
            ("link", "add", name, "mtu", "9000", "type", "veth", "peer", "name", far),
            ("link", "set", far, "up"),
            ("link", "set", name, "up"),
        ):
            subprocess.run(("ip", *words), check=True)


def rails(tree: Path) -> Scene:
    """A macvlan on each rail; the cards are those of a made-up tree."""
    networks = {
        f"rail-{number}": ({"type": "macvlan", "master": f"rail{number}"}, "")
        for number in range(RAILS)
    }
    return Scene(networks, partial(survey_at, tree))


def documents(server: FakeServer, scene: Scene) -> None:
    """The networks, each with a pool of its own."""
    for number, (name, (wanted, resource)) in enumerate(scene.networks.items()):
        ranges = [{"subnet": f"10.{number}.0.0/16", "gateway": f"10.{number}.0.1"}]
        version = f"{IP_POOL.group}/{IP_POOL.version}"
        pool = {"apiVersion": version, "kind": IP_POOL.kind, "metadata": {"name": name}}
        server.put(IP_POOL, {**pool, "spec": {"ranges": ranges}})
        ipam = {"type": "kube-rdma-ipam", "pool": name}
        config = {"cniVersion": "1.0.0", **wanted, "ipam": ipam}
        version = f"{DEFINITION.group}/{DEFINITION.version}"
        meta = {"name": name, "namespace": "default", "annotations": {RESOURCE: resource}}
        network = {"apiVersion": version, "kind": DEFINITION.kind, "metadata": meta}
        server.put(DEFINITION, {**network, "spec": {"config": json.dumps(config)}})


class Watch:
    """What looks at the parts of the agent while they work; this one does not."""

    def part(self, name: str, part: T) -> T:
        """What the agent gets in place of a part of it."""
        return part

    def pod(self, pod: PodNetwork) -> PodNetwork:
        """What does a pod's Steps in place of the kernel's own."""
        return pod


UNWATCHED = Watch()


def attachments(folder: Path, stack: AsyncExitStack, acts: list[Act], watch: Watch) -> PlanExecutor:
    """The agent's own, over journals that note what they write."""
    records = [Noting(folder / name, acts) for name in ("attachments", "delegated")]
    pods, interfaces = [stack.enter_context(Journal(one, ATTACHMENTS)) for one in records]
    binaries = HostPlugins(folder, PurePosixPath("/opt/cni/bin"), partial(inside, folder))
    journal = watch.part("journal", AttachmentJournal(pods, interfaces))

    @contextmanager
    def opened(namespace: Namespace | None) -> Iterator[PodNetwork]:
        with open_pod(namespace) as pod:
            yield watch.pod(pod)

    return PlanExecutor(journal, opened, Plugins(binaries))


@asynccontextmanager
async def running(folder: Path, scene: Scene, watch: Watch = UNWATCHED) -> AsyncIterator[Node]:
    """Pod networks, wired as in attach/node_networks; they give addresses."""
    server, acts = FakeServer([IP_POOL, IP_BLOCK, LEASE, DEFINITION]), list[Act]()
    documents(server, scene)
    line = server.line()
    cluster = Cluster(line)
    node = Node(folder, scene, server, line, acts)
    kubelet = KubeletView(PodResources(folder / KUBELET / POD_RESOURCES / KUBELET_SOCKET))
    async with AsyncExitStack() as stack:
        dependencies = IpamDependencies(cluster, "kube-rdma", Noting(folder / "addresses", acts))
        giver = NodeAddresses(NodeName("node-1"), BootId("boot-1"), dependencies)
        await stack.enter_async_context(giver)
        bound = stack.enter_context(Journal(Folder(folder / "bindings"), BINDINGS))
        cdi, listed = CdiFolder(folder / "cdi"), partial(read_sandboxes, folder / "runtime.sock")
        late = binder.Binder(
            binder.BinderDependencies(
                bound, cdi, kubelet, Pods(cluster), links_inside, listed, networks=True
            )
        )
        stack.enter_context(kubelet.connected())
        context = NodeContext(scene.pools)
        asked = NodeViewDependencies(
            cluster=cluster,
            kubelet=kubelet,
            context=context,
            survey=SurveyCache(scene.survey),
            links=host_links,
            functions=host_functions,
            watched=giver.pools,
        )
        node.attachments = attachments(folder, stack, acts, watch)
        to = AttachDependencies(
            node=watch.part("node", NodeView(asked)),
            giver=watch.part("addresses", giver),
            late=LateBindingChoice(watch.part("binding", late)),
            attachments=node.attachments,
            inode=lambda at: os.fstat(at).st_ino,
        )
        node.networks = CniRouter(to, context).pods
        socket = CniSocket(folder / SOCKET, node.networks.answer)
        await stack.enter_async_context(socket)
        await ready(giver)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(socket.serve())
            yield node
            serving.cancel()


async def ready(giver: NodeAddresses) -> None:
    """Return when the node may give addresses."""
    while True:
        try:
            await giver.check()
        except Unavailable:
            await asyncio.sleep(0.05)
        else:
            return


async def main(folder: Path) -> None:
    """Do what standard input says until it ends."""
    # The bare machine, which runs attach_inside.py, has no package of the lab to write trees with.
    from bench.standin import card, write_node

    logs.configure()
    make_rails()
    write_node(folder / TREE, [card(number) for number in range(RAILS)])
    async with running(folder, rails(folder / TREE)) as node:
        print(json.dumps({}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            print(json.dumps(await getattr(node, order.pop("do"))(**order)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
