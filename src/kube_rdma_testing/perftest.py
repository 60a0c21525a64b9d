"""A small cluster in memory in whose pods perftest runs: kubelet, shell and figures of a test.

It knows the commands that verify/pairs starts, and takes any other command for the probe of
devices. A client whose server does not listen cannot connect, and no server serves twice.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from kube_client.objects import Cluster
from kube_client.wire import Answer, ApiRequest
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.verify.rules.perftest import LISTENING
from kube_rdma.verify.rules.pods import END_OF_INPUT
from kube_rdma_testing.cluster.commands import PodCommand
from kube_rdma_testing.cluster.server import ClientLine, FakeServer


class Deadlines:
    """The time limits of commands in pods, which a test lets pass without a clock."""

    def __init__(self) -> None:
        self._running: list[tuple[float, asyncio.Timeout]] = []

    @property
    def seconds(self) -> list[float]:
        """Return the time limits of the running commands, in seconds."""
        return [seconds for seconds, _ in self._running]

    @asynccontextmanager
    async def __call__(self, seconds: float) -> AsyncIterator[None]:
        """Limit the time of the command in the `with`; `pass_all` lets that time pass."""
        entry = seconds, asyncio.timeout(None)
        self._running.append(entry)
        try:
            async with entry[1]:
                yield
        finally:
            self._running.remove(entry)

    def pass_all(self) -> None:
        """Let the time limits of all running commands pass."""
        for _, limit in self._running:
            limit.reschedule(asyncio.get_running_loop().time())


async def _at_once(_count: int) -> None:
    """Do nothing at the beginning of a measurement."""


HEADER = "#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]"
_WORD = re.compile(r"ib_\w+ .*")


@dataclass
class PerftestCluster:
    """A fake cluster with perftest in its pods.

    The pods "client server" measure their entry of `figures`, else `figure`, in Gb/s; with None
    they fail. `bad_cards`, by node and device, have a figure of their own. `rails` has the devices
    of pods by node, and other nodes have one; pods and nodes `without_devices` have none. Nodes
    that are `full` start no pod, nodes `without_image` pull no image, and nodes `over_quota` accept
    no pod. `meanwhile` is called as each measurement begins.
    """

    server: FakeServer = field(default_factory=FakeServer)
    figure: float | None = 97.5
    figures: dict[str, float | None] = field(default_factory=dict)
    rails: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bad_cards: dict[tuple[str, str], float | None] = field(default_factory=dict)
    meanwhile: Callable[[int], Awaitable[None]] = _at_once
    without_devices: set[str] = field(default_factory=set)
    without_image: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    over_quota: set[str] = field(default_factory=set)
    measured: list[tuple[str, str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))  # of pods that are made
    _listening: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server.program = self.run

    def node(self, name: str, shares: str = "8", *, ready: str = "True", **spec: Any) -> None:
        """Add a node with shares of rdma/hca; `ready` is the status of its condition Ready."""
        conditions = [{"type": "Ready", "status": ready, "message": "kubelet stopped posting"}]
        status = {"allocatable": {"rdma/hca": shares}, "conditions": conditions}
        self.server.put(NODE, {"metadata": {"name": name}, "spec": spec, "status": status})

    def report(
        self, node: str, pools: Sequence[dict[str, Any]], cards: Sequence[dict[str, Any]]
    ) -> None:
        """Store a NodeReport with these pools and cards for a node."""
        summary = {"cards": len(cards), "healthy": sum(not card.get("reasons") for card in cards)}
        status = {
            "agentVersion": "0.1.0",
            "summary": summary,
            "pools": [*pools],
            "cards": [*cards],
        }
        self.server.put(NODE_REPORT, {"metadata": {"name": node}, "status": status})

    def pod(self, name: str, number: int, namespace: str = "default") -> None:
        """Add a running pod on the node with this number."""
        meta = {"name": name, "namespace": namespace, "labels": {"app": "job"}}
        spec, status = {"nodeName": f"node-{number}"}, {"podIP": f"10.0.1.{number}"}
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": status})

    @property
    def pods(self) -> list[str]:
        """Return the names of all pods of the fake cluster."""
        return [pod["metadata"]["name"] for pod in self.server.documents("pods")]

    @asynccontextmanager
    async def open(self, *_: object) -> AsyncIterator[Cluster]:
        """Yield a client of the fake cluster."""
        line = KubeletLine(self)
        self.server.lines.append(line)
        yield Cluster(line)

    async def run(self, command: PodCommand) -> int:
        """Run a command in a pod as its shell would, and return its exit code."""
        script = command.argv[-1]
        if "ib_" not in script:
            return await self._probe(command)
        if LISTENING in script:
            return await self._serve(command, script)
        return await self._client(command, script)

    async def _probe(self, command: PodCommand) -> int:
        end = END_OF_INPUT.strip()
        if asked := end in command.argv[-1]:  # for the devices too, by the script of its input
            await command.read_until(end)
        node = self._node_of(command.pod)
        if not {command.pod, node} & self.without_devices:
            devices = self.rails.get(node, ("mlx5_0",))
            for device in devices:
                command.print(f"port {device} 1 card 100 Gb/sec (4X EDR)")
            if asked:
                names = ",".join(f"{device}:1" for device in devices)
                command.print(json.dumps({"UCX_NET_DEVICES": names, "UCX_IB_GID_INDEX": "3"}))
        return 0

    async def _serve(self, command: PodCommand, script: str) -> int:
        place = (self._address(command.pod), _option(script, "-p"))
        if place in self._listening:
            command.complain("Couldn't bind: Address already in use")
            return 1
        self._listening[place] = self._node_of(command.pod), _option(script, "-d")
        command.print(LISTENING)
        await asyncio.Event().wait()  # until somebody hangs up
        return 0

    async def _client(self, command: PodCommand, script: str) -> int:
        address = shlex.split(_WORD.findall(script)[0])[-1]
        place = (address, _option(script, "-p"))
        if place not in self._listening:
            command.complain(f"Couldn't connect to {':'.join(place)}")
            return 1
        ends = self._listening.pop(place), (self._node_of(command.pod), _option(script, "-d"))
        server = next(
            pod["metadata"]["name"]
            for pod in self.server.documents("pods")
            if pod["status"].get("podIP", "") == address
        )
        self.measured.append((command.pod, server))
        await self.meanwhile(len(self.measured))
        figure = self.figures.get(f"{command.pod} {server}", self.figure)
        for card in ends:
            figure = self.bad_cards.get(card, figure)
        if figure is None:
            command.complain("Completion with error at client\nFailed status 12: wr_id 0")
            return 1
        command.print(f"{HEADER}\n 65536 5000 {figure} {figure} 0.18")
        return 0

    def _address(self, name: str) -> str:
        return str(self._pod(name)["status"].get("podIP", ""))

    def _node_of(self, name: str) -> str:
        return str(self._pod(name)["spec"].get("nodeName", ""))

    def _pod(self, name: str) -> dict[str, Any]:
        (pod,) = (p for p in self.server.documents("pods") if p["metadata"]["name"] == name)
        return dict(pod)


class KubeletLine(ClientLine):
    """A transport whose server refuses pods over quota, and whose kubelets start pods at once."""

    def __init__(self, cluster: PerftestCluster) -> None:
        super().__init__(cluster.server)
        self._cluster = cluster

    async def send(self, request: ApiRequest) -> Answer:
        """Send a request; a pod that it creates runs at once if its node can start it."""
        if (request.verb, request.resource) != ("create", "pods"):
            return await super().send(request)
        document = msgspec.json.decode(request.body)
        name, node = document["metadata"]["name"], _node(document)
        if node in self._cluster.over_quota:
            why = f'pods "{name}" is forbidden: exceeded quota: rdma'
            body = {"kind": "Status", "message": why, "reason": "Forbidden", "code": 403}
            return Answer(403, msgspec.json.encode(body))
        answer = await super().send(request)
        stored = msgspec.json.decode(answer.body)
        number = next(self._cluster.numbers)
        conditions = [{"type": "Ready", "status": "True"}]
        stored["status"] = {"podIP": f"10.0.0.{number}", "conditions": conditions}
        if node in self._cluster.full:
            full = {"type": "PodScheduled", "status": "False", "message": "Insufficient rdma"}
            stored["status"] = {"phase": "Pending", "conditions": [full]}
        elif node in self._cluster.without_image:
            image = document["spec"]["containers"][0]["image"]
            state = {"waiting": {"reason": "ErrImagePull", "message": f"{image}: not found"}}
            stored["status"] = {"phase": "Pending", "containerStatuses": [{"state": state}]}
            stored["spec"]["nodeName"] = node
        else:
            stored["spec"]["nodeName"] = node
        self._cluster.server.put(POD, stored)
        return answer


def _node(pod: dict[str, Any]) -> str:
    required = pod["spec"]["affinity"]["nodeAffinity"]
    terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])


def _option(script: str, name: str) -> str:
    words = shlex.split(_WORD.findall(script)[0])
    return words[words.index(name) + 1]
