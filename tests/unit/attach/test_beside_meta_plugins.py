"""Behind meta-plugins: which pods wait for us, and which are told that nobody reads them."""

import json

import pytest

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, RESOURCE
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.attach.rules.conflist import CELLO_RDMA
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.hardware.survey import SurveyCache
from kube_rdma.model.kubernetes import PodState
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.runtime.cri import FakeCriRuntime
from tests.unit.agent.world import until
from tests.unit.attach.test_network_side import MULTUS, Node

BLOCK = [{"cniConf": {"name": "rdma"}}]
BLOCKS = {POD_NETWORKS: json.dumps(BLOCK)}
CELLO = {"cniVersion": "0.3.1", "name": "cello-meta", "plugins": [{"type": "cello-meta"}]}
LEFT = {"cniVersion": "0.3.1", "name": "rdma", "plugins": [{"type": CELLO_RDMA}]}
NETWORKS = {ANNOTATION: "rdma"}


@pytest.fixture
async def node(tmp_path, tmp_path_factory):
    socket = tmp_path_factory.mktemp("r") / "s"
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as runtime:
        found = Node(tmp_path, runtime, socket)
        (found.host / "opt/cni/bin/cello-meta").touch()
        yield found


def put(node, name, document):
    (node.conf.parent / name).write_text(json.dumps(document))


async def behind(node, name, document):
    """Install a meta-plugin, and wait until it is the one that calls us."""
    put(node, name, document)
    await until(lambda: not node.is_chained)


def pod(annotations):
    return PodState("default", "a", "u", tuple(annotations.items()))


@pytest.mark.parametrize(
    ("name", "document", "asks", "product"),
    [
        ("00-multus.conf", MULTUS, BLOCKS, "Multus"),
        ("01-cello-meta.conflist", CELLO, NETWORKS, "Cello"),
    ],
)
async def test_a_pod_that_says_what_nobody_reads_is_held_and_told(
    node, name, document, asks, product
):
    """It would run without its networks; it is not evicted, for it was never owed any by us."""
    other = {"00-multus.conf": NETWORKS}.get(name, BLOCKS)
    async with node.agent() as side:
        await behind(node, name, document)
        node.sandbox("a", node.pod("a", asks))
        node.sandbox("b", node.pod("b", other))
        node.sandbox("c", node.pod("c"))
        with pytest.raises(
            Refused, match=f"made by {product}, which does not read {next(iter(asks))}"
        ):
            await side.concerned(pod(asks))
        await until(lambda: node.events_of("NetworksMissing") == {"a"})
        await node.many_rounds()
        assert node.events_of("NetworksMissing") == {"a"}
    notes = [
        one["note"] for one in node.server.documents("events") if one["reason"] == "NetworksMissing"
    ]
    assert f"Name them in the annotation {next(iter(other))}." in notes[0]
    assert (node.attached, node.pods) == (set(), {"a", "b", "c"})


async def test_the_text_of_a_network_is_as_it_is_written():
    """Also where it would be refused; without the resource in the cluster there is none."""
    server = FakeServer([DEFINITION])
    meta = {"name": "net", "namespace": "ml", "annotations": {RESOURCE: "rdma/a"}}
    server.put(DEFINITION, {"metadata": meta, "spec": {"config": "{"}})
    for resources, found in ((server, (b"{", "rdma/a")), (FakeServer(), None)):
        asked = NodeViewDependencies(
            Cluster(resources.line()), KubeletView(None), NodeContext({}), SurveyCache(), tuple
        )
        assert await NodeView(asked).written("ml", "net") == found
        assert await NodeView(asked).written("ml", "other") is None


async def test_what_vke_left_behind_is_in_nobodys_way(node):
    """Without Cello and without its plugin: a block rdma is a share of a card, as ever."""
    put(node, "20-rdma.conflist", LEFT)
    async with node.agent() as side:
        assert {one.name for one in side._wired.confs()} == {node.conf.name}
        note = "20-rdma.conflist is passed over, for its plugin cello-rdma is not there."
        await until(lambda: any(note in one["note"] for one in node.server.documents("events")))
        (node.host / "opt/cni/bin" / CELLO_RDMA).touch()
        assert {one.name for one in side._wired.confs()} == {node.conf.name, "20-rdma.conflist"}
