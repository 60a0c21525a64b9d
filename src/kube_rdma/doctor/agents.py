"""Runs commands in the containers of agents, and so asks nodes for their Observation.

    namespaces ─► agents' pods ─► exec `doctor --collect -` ─► bundles ─► doctor/rules/diagnose

cli/doctor and cli/top call it from wherever the API server is reached. An agent's container has the
mounts and rights that a doctor needs; the agent itself is not asked. The output of a command is
foreign text, with a bound of bytes and of seconds, and is decoded as a bundle is. A node that hangs
fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from shlex import quote
from typing import TypeVar

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import replace
from kube_base.plain_text import plain
from kube_client.objects import Cluster
from kube_client.pod_commands import PodCommands
from kube_rdma.adapters.files import bundle
from kube_rdma.doctor.api_pod import pod_by_api
from kube_rdma.doctor.cluster import NoSuchPod, agent_pods
from kube_rdma.model.doctor import AgentPod, NodeAnswer, Observation, ObservedPod
from kube_rdma.model.late_binding import PodName
from kube_rdma.reports.rules.cluster import says, serves_cards

T = TypeVar("T")
AT_ONCE = 16  # commands under way; a bundle has up to a few MiB
MOST = 8 << 20  # bytes of one bundle; a node with a thousand functions has one MiB
PATIENCE = 20.0  # seconds for a node; a doctor of a node ends within 3, behind Python's start
_DOCTOR = ("kube-rdma", "doctor")
_COLLECT = ("--collect", "-")


class Agents:
    """The agents of a cluster, as containers in which a doctor can be run."""

    def __init__(
        self,
        cluster: Cluster,
        agents: Iterable[AgentPod],
        at_once: int = AT_ONCE,
        seconds: float = PATIENCE,
    ) -> None:
        """Ask at most `at_once` nodes at a time, each for at most `seconds` seconds."""
        self._cluster = cluster
        self._commands = PodCommands(cluster, most=MOST)
        self._at_once, self._seconds = at_once, seconds

        def rank(agent: AgentPod) -> tuple[bool, bool]:
            return agent.ready, says(agent.argv, "--role", "node")

        # Of two agents of a node the one that can answer, then the one that knows the API server.
        self._agents = {one.node: one for one in sorted(agents, key=rank)}
        # Two threads that make msgspec's decoder of one type at a time can crash the process.
        self._decoding = asyncio.Lock()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that have an agent."""
        return tuple(sorted(self._agents))

    async def every_node(
        self, progress: Callable[[int, int], None] = lambda _, __: None
    ) -> tuple[NodeAnswer, ...]:
        """Return the answers of all nodes with an agent.

        After each node `progress` is called with the number of nodes that answered or failed, and
        of all nodes.
        """
        over = count(1)

        async def ask(node: str) -> NodeAnswer:
            try:
                answer = NodeAnswer(node, await self.node(node))
            except KubeError as error:
                answer = NodeAnswer(node, why=plain(str(error)))
            progress(next(over), len(self.nodes))
            return answer

        return await self.ask_all(ask)

    async def ask_all(self, ask: Callable[[str], Awaitable[T]]) -> tuple[T, ...]:
        """Return the result of `ask` for each node; several nodes are asked at once."""
        room = asyncio.Semaphore(self._at_once)

        async def in_turn(node: str) -> T:
            async with room:
                return await ask(node)

        return tuple(await asyncio.gather(*map(in_turn, self.nodes)))

    async def node(self, name: str) -> Observation:
        """Return the Observation that a node's agent makes of its own node.

        Raise as `output` does, and Unavailable for an answer that is no Observation.
        """
        return await self._seen(name, "node")

    async def pod(self, pod: PodName) -> Observation:
        """Return the Observation of the pod's node, with the pod in it.

        Raise Refused where there is no such pod, Unavailable where the pod is on no node yet, and
        both as `node` does. Agents may read all pods; so a caller without that right has any agent
        read the pod to learn its node.
        """
        target = f"pod/{pod.namespace}/{pod.name}"
        own = await self._observed(pod)  # with its Events, which an agent may not read
        node = own.node if own else None
        if node is None:
            ready = (one.node for one in self._agents.values() if one.ready)
            seen = await self._seen(next(ready, next(iter(self._agents))), target)
            node = seen.pod.node if seen.pod else ""
            if node == seen.node:
                return seen
        if not node:
            why = f": {plain(own.why)}" if own and own.why else ""
            command = f"kube-rdma explain pod/{quote(str(pod))}"
            raise Unavailable(f"Pod {pod} is on no node yet{why}. {command} says what it needs.")
        seen = await self._seen(node, target)
        if own:
            inside = seen.pod or own
            seen = replace(seen, pod=replace(inside, why=own.why or inside.why))
        return seen

    async def _observed(self, pod: PodName) -> ObservedPod | None:
        """Return the pod as the API server describes it; None where reading it is refused.

        Raise NoSuchPod where the API server has no such pod.
        """
        try:
            return (await pod_by_api(self._cluster, pod))[0]
        except NoSuchPod:
            raise
        except Refused:
            return None

    async def _seen(self, node: str, target: str) -> Observation:
        text = await self.output(node, (*_DOCTOR, target, *_COLLECT))
        try:
            async with self._decoding:
                seen = await asyncio.to_thread(bundle.decode, text.encode(), f"node {node}")
        except Refused as error:
            raise Unavailable(f"The doctor on node {node} answers no bundle: {error}") from error
        return replace(seen, node=node)  # whatever it calls itself

    async def output(self, node: str, argv: Sequence[str]) -> str:
        """Run a command in the node's agent and return its output.

        Raise Refused where the node has no agent or the caller may not exec. Raise Unavailable
        where the agent does not run, or the command fails or takes too long.
        """
        agent = self._agent(node)
        run = self._commands.run(agent.namespace, agent.name, argv, container=agent.container)
        try:
            async with asyncio.timeout(self._seconds):
                return await run
        except TimeoutError:
            raise Unavailable(f"Node {node} does not answer within {self._seconds:g} s.") from None

    def _agent(self, node: str) -> AgentPod:
        agent = self._agents.get(node)
        if agent is None:
            raise Refused(
                f"there is no agent on node {node!r}",
                remedy=f"Name one of {len(self._agents)} nodes with an agent, such as "
                f"{next(iter(self.nodes))}",
                where="node",
            )
        if not agent.ready:
            raise Unavailable(
                f"The agent on node {node} does not run ({agent.namespace}/{agent.name}: "
                f"{plain(agent.why) or 'no reason is given'}); kubectl describe pod has its events."
            )
        return agent


async def find_agents(
    cluster: Cluster, namespaces: Sequence[str], at_once: int = AT_ONCE, seconds: float = PATIENCE
) -> Agents:
    """Return the agents in the namespaces whose pods may be listed.

    Raise Refused where no agent is found.
    """
    refused: Refused | None = None
    read: list[str] = []
    agents: list[AgentPod] = []
    for namespace in namespaces:
        try:
            agents += await agent_pods(cluster, namespace, serves_cards)
            read.append(namespace)
        except Refused as error:
            refused = refused or error
    if agents:
        return Agents(cluster, agents, at_once, seconds)
    if refused and not read:
        raise Refused(
            f"pods of namespace {namespaces[0]} may not be listed",
            remedy="Name the agents' namespace by --agent-namespace, and have its Role "
            "kube-rdma-doctor bound to you (docs/doctor.md)",
            where="--agent-namespace",
        ) from refused
    raise Refused(
        f"no agent runs in namespace {', '.join(read)}",
        remedy="Name the namespace of the agents",
        where="--agent-namespace",
    )
