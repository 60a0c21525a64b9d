"""One node of `scale`: the agent's own code towards the API server, over eight made-up cards.

    loop of role plugin ─ keepers (labels, condition, report, slices), Events, policies ─┐
    addresses of pods, watch of the node's pods ─────────────────────────────────────────┴─► Counted
      ─► kube_client ─► a real API server

It runs many times in a process (scale_agents.py). Real: all of that, with journals on a disk. Made
up: the survey, which is taken once of a tree of files and then shared, and the kernel's
announcements. Left out: the kubelet's sockets, the CNI socket and folder, netlink, cgroups, late
binding. Nobody asks this node for claims or networks.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from bench.standin import card, write_node
from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_client import wire
from kube_client.calls import RequestTiming
from kube_client.connect import Http
from kube_client.kubeconfig import Access
from kube_client.objects import Cluster
from kube_client.route import find_route
from kube_rdma.adapters.bulkhead import kept
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.nodes import Nodes
from kube_rdma.adapters.journal.codec import POOLS, RAILS
from kube_rdma.adapters.journal.disk import Folder
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.netlink.events import Uevent
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.agent.compose import AgentOptions, with_claims
from kube_rdma.agent.loop import AgentDependencies, run_plugin
from kube_rdma.agent.node.marks import CardCondition
from kube_rdma.agent.node.node_events import NodeEvents
from kube_rdma.agent.node.node_labels import NodeLabels
from kube_rdma.agent.node.report import NodePolicies, NodeReporter
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.repair import NodePodWatch, PodWatchDependencies
from kube_rdma.hardware.kernel_events import KernelSources
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.ipam.node_addresses import IpamDependencies, NodeAddresses
from kube_rdma.model.device import Device
from kube_rdma.model.holdings import Allocatable, NodeHoldings
from kube_rdma.model.ipam import (
    AddressRequest,
    BootId,
    ContainerId,
    InterfaceName,
    NicRequest,
    NodeName,
    PodUid,
    PoolName,
)
from kube_rdma.model.pools import Offer
from kube_rdma.model.survey import Survey
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails
from kube_rdma.reports.node_report import NodeReports
from kube_rdma_testing.kernel.listeners import FakeUevents

CARDS = 8
POOL = PoolName("scale")  # of addresses
FOLLOWED = frozenset(
    {"nodes", "nodepolicies", "nodereports", "resourceslices", "pods", "ippools", "ipblocks"}
)
"""What each node follows, in a stream each."""
_ERROR = b'{"type":"ERROR"'
_BOOKMARK = b'{"type":"BOOKMARK"'


@asynccontextmanager
async def _opened(transport: wire.Transport) -> AsyncIterator[Cluster]:
    yield Cluster(transport, RequestTiming(), program="kube-rdma")


class Traffic:
    """What some nodes asked and got: requests by verb, resource and status, bytes by resource."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()  # bytes of answers, by verb and resource
        self.changes: Counter[str] = Counter()  # bytes of watches, by resource; bookmarks apart
        self.errors: Counter[str] = Counter()  # by which watches ended, by resource and code

    def clear(self) -> None:
        """Begin anew."""
        for counter in vars(self).values():
            counter.clear()

    def document(self) -> dict[str, dict[str, int]]:
        """All of it, for JSON."""
        return {name: dict(counter) for name, counter in vars(self).items()}


class Counted:
    """A Transport that counts, and remembers when this node wrote what, and was last told what."""

    def __init__(self, transport: Http, traffic: Traffic, clock: Callable[[], float]) -> None:
        self._transport, self._traffic, self._clock = transport, traffic, clock
        self.streams: Counter[str] = Counter()  # by resource
        self.written: dict[str, list[float]] = defaultdict(list)
        self.told: dict[str, float] = {}  # by resource
        self.local_address = transport.local_address
        self.websocket = transport.websocket

    async def send(self, request: wire.ApiRequest) -> wire.Answer:
        """Carry a request; count it, also without an answer."""
        verb = "check" if ("limit", "1") in request.query else request.verb  # see kube_client/calls
        place = f"{verb} {request.resource}"
        try:
            answer = await self._transport.send(request)
        except Unavailable:
            self._traffic.requests[f"{place} none"] += 1
            raise
        self._traffic.requests[f"{place} {answer.status}"] += 1
        self._traffic.answers[place] += len(answer.body)
        if answer.status < 300 and request.verb not in {"get", "list"}:
            self.written[request.resource].append(self._clock())
        return answer

    @asynccontextmanager
    async def stream(self, request: wire.ApiRequest, seconds: float) -> AsyncIterator[wire.Stream]:
        """Carry a watch, and count what it tells."""
        place, refused = f"watch {request.resource}", True
        try:
            async with self._transport.stream(request, seconds) as stream:
                refused = False
                status = stream.failure.status if stream.failure else 200
                self._traffic.requests[f"{place} {status}"] += 1
                if stream.failure:
                    yield stream
                    return
                self.streams[request.resource] += 1
                try:
                    yield wire.Stream(self._counted(request.resource, stream.lines))
                finally:
                    self.streams[request.resource] -= 1
        except Unavailable:
            if refused:
                self._traffic.requests[f"{place} none"] += 1
            raise

    async def _counted(self, resource: str, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            told = "bookmarks" if line.startswith(_BOOKMARK) else resource
            self._traffic.changes[told] += len(line) + 1
            self.told[told] = self._clock()
            if line.startswith(_ERROR):
                self._traffic.errors[f"{resource} {json.loads(line)['object'].get('code')}"] += 1
            yield line


class _Idle(PodResources):
    """A kubelet on which no pod runs; it tells nothing of what it was offered."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))

    async def all_held(self) -> NodeHoldings:
        return NodeHoldings((), (), ())

    async def allocatable(self) -> tuple[Allocatable, ...]:
        raise Unavailable("no kubelet runs here")


class _Unserved:
    """A resource that no kubelet hears of."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.is_registered = True

    async def run(self) -> None:
        await asyncio.Event().wait()

    def publish(self, offer: Offer, *, again: bool = False) -> None:
        self.offer = offer

    def register_again(self) -> None:
        return


class Surveys(Frozen):
    """The node with all cards, and with the last one gone."""

    whole: Survey
    less: Survey


def surveys() -> Surveys:
    """Read the trees of eight RoCE cards, and of seven, as sysfs is read."""
    cards = [card(number) for number in range(CARDS)]
    return Surveys(_read(cards), _read(cards[:-1]))


def _read(cards: Sequence[Device]) -> Survey:
    with tempfile.TemporaryDirectory() as folder:
        write_node(Path(folder) / "sys", cards)
        return replace(survey_at(Path(folder) / "sys"), faults=())


class ScaleNode:
    """One node. `folder` is its disk, `access` the way to the API server with its own token."""

    def __init__(
        self, name: str, folder: Path, access: Access, shown: Surveys, traffic: Traffic
    ) -> None:
        self.name = name
        self._folder, self._shown = folder, shown
        self.survey = shown.whole
        self._uevents = FakeUevents()
        self._transport = Http(access, find_route(access.server, {}), "kube-rdma/scale")
        self.counted = Counted(self._transport, traffic, lambda: asyncio.get_running_loop().time())
        self._addresses: NodeAddresses | None = None

    @property
    def follows_all(self) -> bool:
        """Whether all of its watches go on."""
        return all(self.counted.streams[resource] for resource in FOLLOWED)

    def is_settled(self, wanted: frozenset[str]) -> bool:
        """Whether it has written what is `wanted`, and follows all that it watches."""
        return self.follows_all and self.counted.written.keys() >= wanted

    def lose_card(self) -> float:
        """Let the last card go, and announce it; the loop's time."""
        self.survey = self._shown.less
        path = f"/devices/infiniband/mlx5_{CARDS - 1:02}"
        self._uevents.push(Uevent("remove", "infiniband", path))
        return asyncio.get_running_loop().time()

    async def ask_addresses(self) -> float:
        """Ask for an address for each card, as for one pod; the seconds until they are there."""
        clock = asyncio.get_running_loop().time
        begin, pod = clock(), f"{self.name}-pod"
        nics = tuple(NicRequest(InterfaceName(f"net{n}"), POOL) for n in range(CARDS))
        request = AddressRequest(ContainerId(pod), PodUid(pod), nics)
        while True:
            assert self._addresses
            try:
                await self._addresses.add(request)
            except Unavailable:
                await asyncio.sleep(0.2)
            else:
                return clock() - begin

    async def run(self, namespace: str) -> None:
        """Run the agent's side of the API server until cancelled."""
        self._folder.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            stack.callback(self._transport.close)
            cluster = await stack.enter_async_context(_opened(self.counted))
            events = Events(cluster, self.name)
            dependencies = self._dependencies(cluster, events, stack)
            boot = BootId(f"boot of {self.name}")
            needs = IpamDependencies(cluster, namespace, Folder(self._folder / "addresses"))
            self._addresses = await stack.enter_async_context(
                NodeAddresses(NodeName(self.name), boot, needs)
            )
            pods = NodePodWatch(
                PodWatchDependencies(
                    cluster, self.name, self._folder, NodeContext(), lambda *_: None
                )
            )
            follow = partial(pods.follow, lambda: None)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(kept("pods of the node", follow))
                tasks.create_task(run_plugin(dependencies))

    def _dependencies(
        self, cluster: Cluster, events: Events, stack: AsyncExitStack
    ) -> AgentDependencies:
        def journal(name: str, kind: Any) -> Callable[[], Journal[Any]]:
            return lambda: stack.enter_context(Journal(Folder(self._folder / name), kind))

        dependencies = AgentDependencies(
            config=None,
            kernel=KernelSources(lambda: self.survey, (("devices", lambda: self._uevents),)),
            serve=lambda offer, _: _Unserved(offer),  # type: ignore[arg-type,return-value]
            kubelet=KubeletView(_Idle()),
            node=NodeEvents(cluster, self.name, events),
            applied=journal("pools", POOLS),
            rails=NodeRails(journal("rails", RAILS), boot=self.name),
            keepers=(
                CardCondition(Nodes(cluster)),
                NodeLabels(Nodes(cluster)),
                NodeReporter(NodeReports(cluster, self.name)),
            ),
            policies=NodePolicies(partial(cluster.watch, NODE_POLICY)),
        )

        async def works() -> tuple[bool, str]:
            return False, "no runtime runs here"  # so no kubelet is waited for

        folder = self._folder
        options = AgentOptions(
            node=self.name,
            connect=lambda: nullcontext(cluster),
            state_dir=folder,
            cdi_dir=folder / "cdi",
            runtime_socket=folder / "runtime.sock",
            socket=folder / "agent.sock",
            host=folder,
        )
        registry = folder / "plugins_registry"
        return with_claims(dependencies, options, cluster, works, registry, stack)


async def until(condition: Callable[[], bool], seconds: float, tick: float = 0.05) -> bool:
    """Wait for it, so long at most; whether it came."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  of many nodes, each with events of its own
                await asyncio.sleep(tick)
    return condition()
