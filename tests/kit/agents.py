"""A cluster in memory whose agents' containers run a doctor: for `kube-rdma doctor` from elsewhere.

Each command answers with the bundle of its node; a test makes nodes hang, fail or answer garbage.
"""

from __future__ import annotations

import asyncio

from kube_base.frozen import replace
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.files import bundle
from kube_rdma.model.doctor import Observation, ObservedPod
from kube_rdma_testing.cluster.server import FakeServer

NAMESPACE = "kube-rdma"
ARGS = ("agent", "--role=plugin", "--role=node", "--networks")


def agent_pod(node, *, name="", waiting="", args=ARGS):
    """The pod of an agent; `waiting` is why its container does not run."""
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    container = {"name": "agent", "image": "example.com/kube-rdma:1", "args": list(args)}
    return {
        "metadata": {"name": name or f"agent-{node}", "namespace": NAMESPACE},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {
            "phase": "Pending" if waiting else "Running",
            "containerStatuses": [{"name": "agent", "ready": not waiting, "state": state}],
        },
    }


class FleetOfAgents:
    """Nodes with an agent each; `seen` is what a node without an own Observation shows.

    `hanging` are nodes whose command waits for `release`, `failing` those whose command prints this
    to stderr and ends with 2, `texts` what a node prints instead of its bundle.
    """

    def __init__(self, *nodes, pods=None, seen=None, server=None):
        self.nodes, self.pods = nodes, dict(pods or {})
        self.hanging, self.failing, self.texts = set(), {}, {}
        self.seen = {node: replace(seen or Observation(node), node=node) for node in nodes}
        self.release, self._ended, self._changed = asyncio.Event(), set(), asyncio.Event()
        self.commands, self.at_once, self.most_at_once = [], 0, 0
        self.server = server or FakeServer(())
        self.server.program = self._program
        for node in nodes:
            self.server.put(POD, agent_pod(node))
        for (namespace, name), node in self.pods.items():
            self.put_pod(namespace, name, node)

    def put_pod(self, namespace, name, node):
        """A pod of somebody."""
        spec = {"containers": [{"name": "main", "image": "x"}]} | (
            {"nodeName": node} if node else {}
        )
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        self.server.put(POD, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

    async def _program(self, command):
        self.commands.append(command)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._run(command)
        finally:
            self.at_once -= 1
            self._ended.add(command.pod.removeprefix("agent-"))
            self._changed.set()

    async def until_ended(self, *nodes):
        """Wait for the commands of these nodes."""
        while not self._ended >= set(nodes):
            self._changed.clear()
            await self._changed.wait()

    async def _run(self, command):
        node = command.pod.removeprefix("agent-")
        await asyncio.sleep(0)
        if node in self.hanging:
            await self.release.wait()
        if node in self.failing:
            command.complain(self.failing[node])
            return 2
        command.print(self.texts.get(node, self._bundle(node, command.argv[2])))
        return 0

    def _bundle(self, node, target):
        seen = self.seen[node]
        if target != "node":
            _, namespace, name = target.split("/")
            at = self.pods[namespace, name]
            seen = replace(seen, pod=ObservedPod(namespace, name, at, "Running"))
        return bundle.encode(seen).decode()
