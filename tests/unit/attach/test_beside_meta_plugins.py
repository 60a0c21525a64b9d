"""Behind meta-plugins: which pods wait for us, and which are told that nobody reads them."""

import json

import pytest

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, RESOURCE
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.attach.rules.conflist import CELLO_RDMA, RDMA_CONF
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
    """With Cello's plugins too."""
    socket = tmp_path_factory.mktemp("r") / "s"
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as runtime:
        found = Node(tmp_path, runtime, socket)
        (found.host / "opt/cni/bin/cello-meta").touch()
        yield found


def put(node, name, document):
    """A file of the node's CNI configuration."""
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


async def test_behind_cello_there_is_a_configuration_for_blocks_that_name_rdma(node):
    """So a pod with them waits for us. When Cello goes, so does the file."""
    rdma = node.conf.parent / RDMA_CONF
    async with node.agent() as side:
        await behind(node, "01-cello-meta.conflist", CELLO)
        await until(rdma.exists)
        assert await side.concerned(pod(BLOCKS))
        assert not await side.concerned(pod({POD_NETWORKS: '[{"cniConf": {"name": "vpc"}}]'}))
        assert not await side.concerned(pod({POD_NETWORKS: "not understood"}))
        (node.conf.parent / "01-cello-meta.conflist").unlink()
        await until(lambda: node.is_chained)
        assert not rdma.exists()


async def test_behind_cello_the_network_rdma_of_another_plugin_is_its_own(node):
    """It is not overwritten; the node's event says who gets the pods, and until when."""
    (node.host / "opt/cni/bin" / CELLO_RDMA).touch()
    put(node, "20-rdma.conflist", LEFT)
    async with node.agent() as side:
        await behind(node, "01-cello-meta.conflist", CELLO)
        assert not await side.concerned(pod(BLOCKS))
        note = "Pods that name rdma go to cello-rdma until 20-rdma.conflist is removed"
        await until(lambda: any(note in one["note"] for one in node.server.documents("events")))
        (node.conf.parent / "20-rdma.conflist").unlink()
        await until((node.conf.parent / RDMA_CONF).exists)
        assert await side.concerned(pod(BLOCKS))


async def test_behind_cello_a_left_configuration_without_its_plugin_is_one_sentence(node):
    """Cello calls the plugin that is gone: nothing passes the file over, and nobody says so."""
    put(node, "20-rdma.conflist", LEFT)
    async with node.agent():
        await behind(node, "01-cello-meta.conflist", CELLO)
        note = "Pods that name rdma fail until 20-rdma.conflist is removed"
        await until(lambda: any(note in one["note"] for one in node.server.documents("events")))
        notes = [one["note"] for one in node.server.documents("events") if note in one["note"]]
        assert not [note for note in notes if "go to cello-rdma" in note or "passed over" in note]


async def test_what_vke_left_behind_is_in_nobodys_way(node):
    """Without Cello and without its plugin: a block rdma is a share of a card, as ever."""
    put(node, "20-rdma.conflist", LEFT)
    async with node.agent() as side:
        assert {one.name for one in side._wired.confs()} == {node.conf.name}
        note = "20-rdma.conflist is passed over, for its plugin cello-rdma is not there."
        await until(lambda: any(note in one["note"] for one in node.server.documents("events")))
        (node.host / "opt/cni/bin" / CELLO_RDMA).touch()
        assert {one.name for one in side._wired.confs()} == {node.conf.name, "20-rdma.conflist"}
