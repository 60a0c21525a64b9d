"""How `doctor`, `bundle` and `top` reach nodes elsewhere: through the agents of a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kube_rdma.cli.progress import ProgressLine

if TYPE_CHECKING:
    from kube_rdma.cli.options import ClusterOptions, Opener
    from kube_rdma.model.doctor import Observation
    from kube_rdma.model.fleet import NodeAnswer
    from kube_rdma.model.late_binding.binding import PodName

AGENT_NAMESPACE = click.option(
    "--agent-namespace",
    default="",
    metavar="NAME",
    help="Namespace of the agents through which nodes are reached. Default: the namespaces that "
    "the presets install them in.",
)


async def every_node(
    options: ClusterOptions, agents: str, opener: Opener | None
) -> tuple[NodeAnswer, ...]:
    """What all nodes with an agent see of themselves."""
    from kube_rdma.doctor.agents import find_agents

    with ProgressLine("Asking the agents of all nodes.") as line:

        def tell(over: int, nodes: int) -> None:
            line.tell(f"Asking the agents of all nodes: {over} of {nodes} have answered.")

        async with options.open(opener) as cluster:
            return await (await find_agents(cluster, agent_namespaces(agents))).every_node(tell)


async def seen_by_agent(
    target: str | PodName, options: ClusterOptions, agents: str, opener: Opener | None
) -> Observation:
    """What a node of this name sees of itself, or a pod's node of itself and of the pod."""
    from kube_rdma.doctor.agents import find_agents

    with ProgressLine("Asking the node's agent."):
        async with options.open(opener) as cluster:
            asked = await find_agents(cluster, agent_namespaces(agents))
            if isinstance(target, str):
                return await asked.node(target)
            return await asked.pod(target)


def agent_namespaces(agents: str) -> tuple[str, ...]:
    """Where agents are looked for."""
    from kube_rdma.install.rules.presets import namespaces

    return (agents,) if agents else namespaces()
