"""A pod that wants another network in place of the cluster's, on a node without Multus."""

import json

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.attach.rules.requests import DEFAULT_NETWORK
from kube_rdma.model.attach.cni import ANNOTATIONS, CniResult, ConfFile, Wiring
from kube_rdma.model.pools import Mode
from tests.unit.attach.delegate_world import NETWORK, DelegateWorld
from tests.unit.attach.network_world import RESOURCE, card, share

CLUSTER = {"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "ptp"}]}
PREFIX = "kube-rdma runs behind the cluster's network cluster, which has made eth0 already"


@pytest.fixture
def world(tmp_path):
    """A node behind the network `cluster`, and documents about it and about another one."""
    shares = [share(card(0), Mode.SHARED_MULTI)]
    made = DelegateWorld(tmp_path / "w", [card(0)], shares, {})
    made.wiring = Wiring.CHAIN
    made.node.confs = (ConfFile("10-cluster.conflist", json.dumps(CLUSTER)),)
    made.node.networks = {
        "default/rail": (RESOURCE, json.dumps(NETWORK)),
        "kube-system/cluster": (None, " "),
        "kube-system/same": (None, json.dumps({"name": "cluster", "type": "ptp"})),
        "kube-system/named-so": (None, json.dumps({"name": "cluster", "type": "bridge"})),
        "kube-system/lan": (None, json.dumps({"cniVersion": "1.0.0", "type": "bridge"})),
        "default/lan": (None, ""),
    }
    made.sandbox()
    return made


def wants(world, text, **annotations):
    """The pod's annotations, as the runtime tells them too."""
    world.node.annotations = {DEFAULT_NETWORK: text, **annotations}
    return {"runtimeConfig": {ANNOTATIONS: world.node.annotations}}


@pytest.mark.parametrize(
    "text",
    [
        "cluster",
        "kube-system/cluster",
        "same",
        '[{"name": "cluster"}]',
        '[{"name": "same", "namespace": "kube-system"}]',
    ],
)
async def test_the_cluster_s_own_network_is_what_the_pod_has(world, text):
    """By an empty document, as Multus reads it from the node, or by the same configuration."""
    assert await world.chain("ADD", 1, **wants(world, text)) == CniResult()
    world.nothing_left(1)


async def test_the_cluster_s_network_needs_no_document(world):
    del world.node.networks["kube-system/cluster"]
    assert await world.chain("ADD", 1, **wants(world, "cluster")) == CniResult()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("lan", "kube-system/lan"),
        ("default/lan", "default/lan"),
        ("default/cluster", "default/cluster"),
        ("named-so", "kube-system/named-so"),
        ("nowhere", "kube-system/nowhere"),
        ('[{"name": "rail", "namespace": "default"}]', "default/rail"),
    ],
)
async def test_another_network_in_its_place_refuses_the_pod(world, text, name):
    """It would run in a network that it does not want; the sentence says what can be done."""
    with pytest.raises(Refused) as refused:
        await world.chain("ADD", 1, **wants(world, text))
    assert refused.value.where == f"pod default/train-0: {DEFAULT_NETWORK}"
    assert refused.value.problem == f"{PREFIX}, and cannot put {name} in its place"
    assert "k8s.v1.cni.cncf.io/networks" in refused.value.remedy
    world.nothing_left(1)


async def test_two_networks_in_its_place_are_refused(world):
    with pytest.raises(Refused, match="it names 2 networks, and a pod has one default network"):
        await world.chain("ADD", 1, **wants(world, "cluster,lan"))


async def test_a_pod_whose_further_networks_could_be_had_is_refused_all_the_same(world):
    """Before anything is taken for it; with the cluster's own network it gets them."""
    asked = {"k8s.v1.cni.cncf.io/networks": "rail"}
    with pytest.raises(Refused, match="cannot put kube-system/lan in its place"):
        await world.chain("ADD", 1, **wants(world, "lan", **asked))
    world.nothing_left(1)
    await world.chain("ADD", 1, **wants(world, "cluster", **asked))
    assert set(world.inside(1)[0]) == {"lo", "eth0", "net1"}


async def test_an_annotation_of_blanks_says_nothing(world):
    """The runtime's word is enough; no API server is asked."""
    world.node.failing = Unavailable("The API server is away.")
    assert await world.chain("ADD", 1, **wants(world, " ")) == CniResult()


async def test_in_the_moment_of_change_the_pod_waits_for_the_meta_plugin(world):
    """That one can put the network in place of the cluster's."""
    world.wiring = Wiring.DELEGATE
    with pytest.raises(Unavailable, match="A meta-plugin has just become this node's network"):
        await world.chain("ADD", 1, **wants(world, "lan"))


async def test_behind_multus_the_document_of_the_default_network_says_the_resource(world):
    """Multus calls kube-rdma for eth0; without the document two resources' shares look alike."""
    world.wiring = Wiring.DELEGATE
    world.node.networks["kube-system/rail"] = (RESOURCE, json.dumps(NETWORK))
    wants(world, "rail")
    link = next(one for one in world.kernel.links if one.name == "eth0")
    world.kernel.remove(link)
    await world.meta("ADD", 1, "eth0")
    (own,) = json.loads(world.node.own)
    assert (own["name"], own["interface"]) == ("kube-system/rail", "eth0")
