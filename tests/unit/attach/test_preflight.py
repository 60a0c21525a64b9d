"""A pod that asks for a preflight and lacks the init containers for it never gets past an ADD."""

import json

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.attach.rules.requests import ANNOTATION
from kube_rdma.model.attach.cni import ANNOTATIONS, CniResult, Wiring
from kube_rdma.model.pools import Mode
from kube_rdma.model.preflight import AWAITS, MEASURES, REQUEST
from tests.unit.attach.delegate_world import NETWORK, DelegateWorld
from tests.unit.attach.network_world import RESOURCE, card, share
from tests.unit.attach.test_delegate import ipam

WORDS = f"its first init containers are not {MEASURES} and {AWAITS}"


@pytest.fixture
def world(tmp_path):
    shares = [share(card(0), Mode.SHARED_MULTI)]
    made = DelegateWorld(tmp_path / "w", [card(0)], shares, {})
    made.node.networks = {"default/rail": (RESOURCE, json.dumps(NETWORK))}
    made.node.annotations = {REQUEST: "ring"}
    made.sandbox()
    return made


def told(world):
    return {"runtimeConfig": {ANNOTATIONS: world.node.annotations}}


@pytest.mark.parametrize("wiring", [Wiring.CHAIN, Wiring.DELEGATE])
@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("found", [(), (MEASURES,), (AWAITS, MEASURES), ("fetch", MEASURES)])
async def test_the_runtime_s_call_is_refused_with_what_to_do(world, wiring, is_told, found):
    """Also for a pod without networks, and where a meta-plugin would make them."""
    world.wiring, world.node.init_containers = wiring, found
    with pytest.raises(Refused) as refused:
        await world.chain("ADD", 1, **(told(world) if is_told else {}))
    assert refused.value.where == f"pod default/train-0: {REQUEST}"
    assert refused.value.problem.startswith(WORDS)
    assert "kube-rdma preflight lines" in refused.value.remedy
    world.nothing_left(1)


async def test_a_meta_plugin_s_call_is_refused_too(world):
    """For a network of kube-rdma, and for addresses of another plugin's interface."""
    for config in ({}, ipam(world)):
        with pytest.raises(Refused, match=WORDS):
            await world.meta("ADD", 1, **config)
    world.nothing_left(1)


@pytest.mark.parametrize("annotations", [{REQUEST: "star"}, {}])
async def test_a_pod_that_measures_or_does_not_ask_gets_its_network(world, annotations):
    world.wiring = Wiring.CHAIN
    world.node.init_containers = (MEASURES, AWAITS) if annotations else ("fetch",)
    world.node.annotations = {ANNOTATION: "rail", **annotations}
    assert await world.chain("ADD", 1, **told(world)) == CniResult()
    assert set(world.inside(1)[0]) == {"lo", "eth0", "net1"}


async def test_without_its_object_nobody_lets_it_start(world):
    world.node.failing = Unavailable("The API server does not answer.")
    with pytest.raises(Unavailable):
        await world.chain("ADD", 1, **told(world))
