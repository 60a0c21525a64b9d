"""NodePolicies of the cluster: wishes of the nodes that they select, beside file and label."""

import asyncio
from functools import partial

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.agent.node import report as policies
from kube_rdma.agent.node.report import NodePolicies, NodeReporter
from kube_rdma.model.pools import Mode, NodeSpecs, PoolSpec, Serving
from kube_rdma.pools.config import ConfigSource
from kube_rdma.pools.kind import NODE_POLICY, policy_of
from kube_rdma.reports.node_keeper import WritePace
from kube_rdma.reports.node_report import NodeReports
from kube_rdma_testing.cluster.server import FakeServer
from tests.unit.agent.world import LABEL, NODE_NAME, VKE, World, hard_card, until

CARDS = [hard_card(n) for n in range(4)]
EAGER = RequestTiming(pause=lambda _: 0.0)
AT_ONCE = WritePace(after=lambda *_: 0.0)


class PolicyWorld(World):
    def serve(self, *kinds):
        self.server = FakeServer(kinds)
        self.label(None)

    def label(self, mode, **more):
        labels = ({LABEL: mode} if mode else {}) | more
        meta = {"name": NODE_NAME, "labels": labels}
        self.server.put(NODE, {"metadata": meta, "spec": {}, "status": {}})

    def policy(self, name, *pools, **spec):
        """A policy as somebody writes it; a pool is a resource and a mode."""
        entries = [{"resource": resource, "mode": mode} for resource, mode in pools]
        document = {"metadata": {"name": name}, "spec": {"pools": entries, **spec}}
        self.server.put(NODE_POLICY, document)

    def following(self, config=None):
        """The agent's dependencies with the policies of the cluster."""
        cluster = Cluster(self.server.line(), EAGER)
        policies = NodePolicies(partial(cluster.watch, NODE_POLICY), wait=lambda *_: 0.0)
        return replace(self.dependencies(config), policies=policies)

    def offers(self):
        """The healthy shares of each resource at the kubelet."""
        return {name: self.kubelet.healthy(name) for name in self.kubelet.devices}


@pytest.fixture
def world(tmp_path_factory):
    world = PolicyWorld(tmp_path_factory.mktemp("w"), *CARDS)
    world.serve(NODE_POLICY)
    return world


def test_refusals_stand_while_their_policies_do():
    source = ConfigSource(None, lambda: None)
    error = Refused("it has no mode", remedy="Write one", where="NodePolicy a")
    claimed = PoolSpec("rdma/a", Mode.HCA, "NodePolicy a", serve=Serving.CLAIMS)
    source.policies(NodeSpecs(), (error,))
    assert source.refusals == (str(error),)
    source.policies(NodeSpecs((claimed,)), ())
    (why,) = source.refusals
    assert "this agent does not serve claims" in why
    source.policies(NodeSpecs(), ())
    assert source.refusals == ()


async def test_a_policy_makes_a_resource_and_its_end_takes_it_away(world):
    world.policy("a", ("rdma/hca", "hca"))
    async with world.serving(world.following()):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        world.server.remove(NODE_POLICY, "a")
        await world.kubelet.until(lambda: not world.kubelet.healthy("rdma/hca"))


async def test_it_is_for_the_nodes_that_it_selects(world):
    """A label that comes makes the resource."""
    world.policy("a", ("rdma/hca", "hca"), nodeSelector={"gpu": "yes"})
    world.policy("b", ("rdma/all", "hca"))
    async with world.serving(world.following()):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/all") == 1000)
        assert "rdma/hca" not in world.offers()
        world.label(None, gpu="yes")
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)


async def test_a_resource_is_the_file_s_then_the_policy_s_then_the_label_s(world, tmp_path):
    """A card of two wishes would be another matter: all modes here share cards."""
    config = tmp_path / "config.json"
    config.write_text('{"mode": "hca"}')
    world.label("shared")
    world.policy("a", ("rdma/hca", "shared"), (VKE, "shared-multi"))
    async with world.serving(world.following(config)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 64)
        world.server.remove(NODE_POLICY, "a")
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)


async def test_one_that_is_not_understood_keeps_its_last_good_state(world):
    """And is named with its field; corrected, it counts again."""
    world.policy("a", ("rdma/hca", "hca"))
    async with world.serving(world.following()):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        world.policy("a", ("rdma/hca", "hcas"))
        await until(lambda: world.events_of("ConfigurationRefused"))
        assert "NodePolicy a: spec.pools[0].mode" in world.events_of("ConfigurationRefused")[0]
        assert world.kubelet.healthy("rdma/hca") == 1000
        world.policy("a", ("rdma/other", "hca"))
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/other") == 1000)


async def test_one_whose_reader_raises_something_takes_no_other_along(world, monkeypatch):
    """The watch of the policies ended, and began anew for ever."""

    def read(stored):
        if stored.name == "bad":
            raise RecursionError
        return policy_of(stored)

    monkeypatch.setattr(policies, "policy_of", read)
    world.policy("bad", ("rdma/bad", "hca"))
    async with world.serving(world.following()):
        world.policy("good", ("rdma/hca", "hca"))
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        await until(lambda: world.events_of("ConfigurationRefused"))
    assert "RecursionError" in world.events_of("ConfigurationRefused")[0]


async def test_the_report_says_what_became_of_each_policy_that_selects_the_node(world):
    world.serve(NODE_POLICY, NODE_REPORT)
    world.policy("a", ("rdma/hca", "hca"))
    world.policy("b", ("rdma/hca", "shared"), priority=1)
    world.policy("c", ("rdma/more", "hca"), nodeSelector={"no": "node"})
    report = NodeReporter(NodeReports(Cluster(world.server.line(), EAGER), NODE_NAME), AT_ONCE)

    def outcomes():
        documents = world.server.documents("nodereports")
        entries = documents[0].get("status", {}).get("policies", ()) if documents else ()
        return {each["name"]: each["state"] for each in entries}

    async with world.serving(replace(world.following(), keepers=(report,))):
        await until(lambda: outcomes() == {"a": "overruled", "b": "applied"})
        requests = (each for line in world.server.lines for each in line.requests)
        statuses = [each.body for each in requests if each.resource == "nodereports/status"]
        assert all(b'"name":"a"' in body for body in statuses)  # or it would count as waiting
        world.server.remove(NODE_POLICY, "b")
        await until(lambda: outcomes() == {"a": "applied"})


async def test_without_the_kind_the_node_serves_and_follows_it_later(world, recording):
    world.serve()
    world.label("shared")
    async with world.serving(world.following()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        await until(lambda: len(recording.of("node policies not followed")) == 1)
        world.server.add(NODE_POLICY)
        world.policy("a", ("rdma/hca", "hca"))
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)


async def test_what_is_refused_is_asked_for_again_after_a_pause():
    asked, paused = [], asyncio.Event()

    async def watch():
        asked.append(len(asked))
        assert len(asked) == 1, "it asks again at once"
        raise Refused("you may not read it", remedy="Ask for the right")
        yield

    def wait(error, failures):
        paused.set()
        return 3600.0

    following = asyncio.create_task(NodePolicies(watch, wait=wait).follow(lambda *_: None))
    pausing = asyncio.create_task(paused.wait())
    await asyncio.wait({following, pausing}, return_when=asyncio.FIRST_COMPLETED)
    assert not following.done()
    following.cancel()
    await asyncio.wait({following})


async def test_an_api_server_that_is_away_takes_no_wish_along(world):
    world.policy("a", ("rdma/hca", "hca"))
    async with world.serving(world.following()):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        for line in world.server.lines:
            line.cut()
        looks = world.looks
        world.change(*CARDS)
        await until(lambda: world.looks > looks)
        assert world.kubelet.healthy("rdma/hca") == 1000
