"""The pods of agents in some namespaces, for who runs a command in their containers.

`kube-rdma doctor` asks with the right to list pods of these namespaces and no other.
"""

from __future__ import annotations

from collections.abc import Callable

from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import FULL_POD, Container, FullPod, status_of
from kube_rdma.model.fleet import AgentPod
from kube_rdma.model.reports.cluster import ProgramTemplate

IsAgent = Callable[[ProgramTemplate], bool]


async def agent_pods(cluster: Cluster, namespace: str, is_agent: IsAgent) -> tuple[AgentPod, ...]:
    """The agents of a namespace that are on a node; raise Refused without the right to list."""
    pods = await cluster.list(FULL_POD, Where(namespace=namespace))
    return tuple(agent for pod in pods if (agent := _agent(pod, is_agent)))


def _agent(pod: FullPod, is_agent: IsAgent) -> AgentPod | None:
    """The pod as an agent's, None for another's."""
    every = pod.spec.containers
    container = next((one for one in every if is_agent(_template(pod, one))), None)
    if container is None or not pod.spec.node_name:
        return None
    status = status_of(pod)
    states = [one for one in status.container_statuses if one.name == container.name]
    running = any(not one.state.waiting and not one.state.terminated for one in states)
    waiting = next((one.state.waiting for one in states if one.state.waiting), None)
    why = waiting.reason if waiting else status.phase
    ready = running and status.phase == "Running" and not pod.deleting
    return AgentPod(
        pod.namespace,
        pod.name,
        pod.spec.node_name,
        container.name,
        ready,
        "" if ready else "Terminating" if pod.deleting else why,
        (*container.command, *container.args),
    )


def _template(pod: FullPod, container: Container) -> ProgramTemplate:
    return ProgramTemplate(pod.name, container.image, (*container.command, *container.args))
