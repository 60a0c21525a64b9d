"""Nodes that are asked through their agents: an API server in memory, whose pods run a doctor."""

from __future__ import annotations

import asyncio

import pytest

from kube_base.errors import Refused, Unavailable
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.files import bundle
from kube_rdma.doctor.agents import MOST, find_agents
from kube_rdma.model.doctor import Observation
from kube_rdma.model.late_binding import PodName
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.agents import NAMESPACE, FleetOfAgents, agent_pod

WORKER = PodName("train", "w-0")


@pytest.fixture
def fleet():
    """Three nodes with an agent, all well, and a pod on the second one."""
    return FleetOfAgents("node-1", "node-2", "node-3", pods={("train", "w-0"): "node-2"})


async def agents_of(fleet, **limits):
    return await find_agents(Cluster(fleet.server.line()), (NAMESPACE,), **limits)


async def test_a_node_is_asked_in_its_agents_container(fleet):
    seen = await (await agents_of(fleet)).node("node-2")
    assert seen.node == "node-2"
    (command,) = fleet.commands
    assert (command.namespace, command.pod) == (NAMESPACE, "agent-node-2")
    assert command.argv == ["kube-rdma", "doctor", "node", "--collect", "-"]
    assert command.container == "agent"


async def test_all_nodes_are_asked_some_at_once(fleet):
    answers = await (await agents_of(fleet, at_once=2)).every_node()
    assert [(one.node, one.why) for one in answers] == [(n, "") for n in fleet.nodes]
    assert fleet.most_at_once == 2


async def test_a_node_that_hangs_holds_up_no_other(fleet):
    """All others have answered before it ends."""
    fleet.hanging.add("node-1")
    agents = await agents_of(fleet)
    asking = asyncio.create_task(agents.every_node())
    await fleet.until_ended("node-2", "node-3")
    assert not asking.done()
    fleet.failing["node-1"] = "it was killed"
    fleet.release.set()
    answers = await asking
    assert [bool(one.seen) for one in answers] == [False, True, True]


async def test_a_node_that_hangs_is_given_up(fleet):
    fleet.hanging |= set(fleet.nodes)
    answers = await (await agents_of(fleet, seconds=0.01)).every_node()
    assert all("does not answer within 0.01 s" in one.why for one in answers)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a bundle"),
        ("{}", "is not a bundle"),
        ('{"document": 99, "node": "x"}', "format 99"),
        ("[" * 9999, "is not a bundle"),
        ("x" * (MOST + 1), f"more than {MOST} bytes"),
    ],
    ids=["nothing", "empty", "newer", "deep", "large"],
)
async def test_what_is_no_bundle_is_an_answer_of_nobody(fleet, text, why):
    fleet.texts["node-1"] = text
    answers = await (await agents_of(fleet)).every_node()
    assert why in answers[0].why
    assert answers[1].seen


async def test_a_node_has_its_own_name_whatever_it_calls_itself(fleet):
    fleet.texts["node-1"] = bundle.encode(Observation("node-3")).decode()
    assert (await (await agents_of(fleet)).node("node-1")).node == "node-1"


async def test_a_pod_is_asked_about_on_its_node(fleet):
    seen = await (await agents_of(fleet)).pod(WORKER)
    assert (seen.node, seen.pod.title) == ("node-2", "train/w-0")
    assert [one.pod for one in fleet.commands] == ["agent-node-2"]


async def test_without_the_right_to_read_it_any_agent_says_where_a_pod_is(fleet):
    """The Role of a doctor is of the agents' namespace alone."""
    agents = await agents_of(fleet)
    fleet.server.forbidden.add(("get", "pods"))
    seen = await agents.pod(WORKER)
    assert (seen.node, seen.pod.title) == ("node-2", "train/w-0")
    assert [one.pod for one in fleet.commands] == ["agent-node-1", "agent-node-2"]


async def test_a_pod_that_is_not_there_or_on_no_node_is_told_so(fleet):
    agents = await agents_of(fleet)
    with pytest.raises(Refused, match="there is no pod gone in namespace train"):
        await agents.pod(PodName("train", "gone"))
    fleet.put_pod("train", "waits", "")
    with pytest.raises(Unavailable, match="Pod train/waits is on no node yet"):
        await agents.pod(PodName("train", "waits"))


async def test_a_node_without_an_agent_is_refused_with_one_that_has_one(fleet):
    with pytest.raises(Refused, match=r"no agent on node 'node-9'.* such as node-1"):
        await (await agents_of(fleet)).node("node-9")


async def test_an_agent_that_does_not_run_is_named_with_its_reason(fleet):
    fleet.server.put(POD, agent_pod("node-1", waiting="ImagePullBackOff"))
    answers = await (await agents_of(fleet)).every_node()
    assert "does not run (kube-rdma/agent-node-1: ImagePullBackOff)" in answers[0].why
    assert answers[1].seen


async def test_of_two_agents_of_a_node_the_ready_one_is_asked(fleet):
    leaving = agent_pod("node-1", name="agent-old", waiting="CrashLoopBackOff")
    fleet.server.put(POD, leaving)
    assert (await (await agents_of(fleet)).node("node-1")).node == "node-1"
    assert fleet.commands[0].pod == "agent-node-1"


@pytest.mark.parametrize("name", ["agent-a", "agent-z"])
async def test_of_two_agents_the_one_that_knows_the_api_server_is_asked(fleet, name):
    """Seed S2's agent has no account, and a doctor in its container can read no pod."""
    alone = agent_pod("node-2", name=name, args=["agent", "--role=plugin"])
    fleet.server.put(POD, alone)
    assert (await (await agents_of(fleet)).pod(WORKER)).node == "node-2"
    assert fleet.commands[0].pod == "agent-node-2"


async def test_who_may_not_list_the_agents_is_told_of_the_role(fleet):
    fleet.server.forbidden.add(("list", "pods"))
    with pytest.raises(Refused, match="pods of namespace kube-rdma may not be listed"):
        await agents_of(fleet)
    fleet.server.forbidden = {("list", "kube-rdma/pods")}
    with pytest.raises(Refused, match=r"no agent runs in namespace other\."):
        await find_agents(Cluster(fleet.server.line()), (NAMESPACE, "other"))


async def test_other_pods_and_labellers_are_no_agents():
    server = FakeServer(())
    other = agent_pod("node-1", name="labels", args=["agent", "--role=node", "--node-labels=x"])
    server.put(POD, other)
    with pytest.raises(Refused, match="no agent runs in namespace kube-rdma"):
        await find_agents(Cluster(server.line()), (NAMESPACE,))


async def test_agents_are_found_in_every_namespace_that_may_be_read(fleet):
    agents = await find_agents(Cluster(fleet.server.line()), ("nowhere", NAMESPACE))
    assert agents.nodes == fleet.nodes
