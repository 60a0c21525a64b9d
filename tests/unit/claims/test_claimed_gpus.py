"""Cards beside the GPUs of claims: what slices, pods and claims tell while the kubelet asks."""

from types import SimpleNamespace

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM, RESOURCE_SLICE
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.claims.publisher import ClaimedGpus, SlicePublisher
from kube_rdma.model.claims.devices import ClaimedDevice, SliceDevice
from kube_rdma.model.device import Gpu
from kube_rdma.model.pools import Grant, Mode, PoolSpec
from kube_rdma.pools import kubelet_view
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rules.nearness import claim_gpus
from kube_rdma.pools.rules.pools import resolve
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.kit.beside import beside
from tests.kit.nodes import hard_card, node, position
from tests.unit.agent.world import until

DRIVER, NODE, NIC = "gpu.nvidia.com", "node-1", "rdma/nic"
GPUS = tuple(
    Gpu(position(bus, numa=bus >> 7), 0x030200, 0x10DE, 0x2330, "nvidia") for bus in (3, 0x83)
)
PLACES = [gpu.position for gpu in GPUS]


def slice_of(node=NODE, *, name="gpus", words=("pciBusID", "resource.kubernetes.io/pciBusID")):
    """What NVIDIA's driver publishes of two GPUs: NVML's long form, and that of the standard."""
    texts = (f"0000{PLACES[0].pci.upper()}", str(PLACES[1].pci))
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                word: {"string": text},
                "uuid": {"string": f"GPU-{number}"},
                "index": {"int": number},
                "driverVersion": {"version": "580.1.0"},
            },
        }
        for number, (word, text) in enumerate(zip(words, texts, strict=True))
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    return {"metadata": {"name": f"{node}-{name}"}, "spec": spec}


def claim(name, *devices):
    results = [{"request": "r", "driver": DRIVER, "pool": NODE, "device": one} for one in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {}, "status": status}


def pod(name, *claims, template=(), resource=NIC, phase="Pending"):
    """A pod whose claims are named in its spec, and those of a `template` in its status."""
    listed = [{"name": f"c{at}", "resourceClaimName": one} for at, one in enumerate(claims)]
    made = [{"name": f"t{at}", "resourceClaimName": one} for at, one in enumerate(template)]
    wanted = [{"name": one["name"], "resourceClaimTemplateName": "gpu"} for one in made]
    spec = {
        "nodeName": NODE,
        "containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}],
        "resourceClaims": listed + wanted,
    }
    meta = {"name": name, "namespace": "team"}
    return {
        "metadata": meta,
        "spec": spec,
        "status": {"phase": phase, "resourceClaimStatuses": made},
    }


@pytest.fixture
def server():
    server = FakeServer([RESOURCE_SLICE, RESOURCE_CLAIM])
    server.put(RESOURCE_SLICE, slice_of())
    server.put(RESOURCE_SLICE, slice_of("node-2"))
    return server


@pytest.fixture
async def kubelet(tmp_path):
    async with FakeKubelet.at(tmp_path) as kubelet:
        yield kubelet


@pytest.fixture(params=["alone", "with own slices"])
async def view(server, kubelet, tmp_path, request):
    """The agent's view of the kubelet, and slices followed, by itself or by who publishes some."""
    view = KubeletView(PodResources(tmp_path / "pod-resources/kubelet.sock"))
    view.gpus = GPUS
    cluster = Cluster(server.line())
    gpus = view.slices = ClaimedGpus(cluster, NODE, wait=lambda *_: 0.0)
    own = SlicePublisher(cluster, NODE, lambda _: None, heard=gpus.hear)
    async with beside((gpus.follow if request.param == "alone" else own.run)()):
        yield view


async def positions(view):
    return [gpu.position for gpu in await view.free_gpus(NIC)]


async def followed(view):
    await until(lambda: claim_gpus(view.slices.slices(), GPUS))


async def test_every_gpu_that_nobody_holds_counts(view, kubelet):
    await followed(view)
    assert set(claim_gpus(view.slices.slices(), GPUS)) == {
        SliceDevice(DRIVER, NODE, "gpu-0"),
        SliceDevice(DRIVER, NODE, "gpu-1"),
    }
    assert await positions(view) == PLACES
    device = SliceDevice(DRIVER, NODE, "gpu-0")
    kubelet.pod_resources.claimed = [ClaimedDevice("team", "old", "c", device)]
    assert await positions(view) == PLACES[1:]


@pytest.mark.parametrize("way", ["spec", "template"])
async def test_the_gpus_of_a_starting_pod_alone_count(view, server, way):
    """The scheduler has allocated them, and the kubelet has not prepared them."""
    await followed(view)
    server.put(RESOURCE_CLAIM, claim("mine", "gpu-1"))
    named = {"template": ("mine",)} if way == "template" else {}
    server.put(POD, pod("train", *(() if named else ("mine",)), **named))
    assert await positions(view) == PLACES[1:]


@pytest.mark.parametrize(
    "document",
    [
        pod("train", "mine", resource="rdma/other"),
        pod("train", "mine", phase="Running"),
        pod("train", "missing"),
        pod("train", "waiting"),
        pod("train"),
    ],
    ids=["another resource", "running", "no such claim", "not allocated", "no claim"],
)
async def test_other_pods_say_nothing(view, server, document):
    await followed(view)
    server.put(RESOURCE_CLAIM, claim("mine", "gpu-1"))
    server.put(RESOURCE_CLAIM, claim("waiting"))
    server.put(POD, document)
    assert await positions(view) == PLACES


@pytest.mark.parametrize("right", [("get", "resourceclaims"), ("list", "pods")])
async def test_without_a_right_all_free_ones_count(view, server, right):
    await followed(view)
    server.put(RESOURCE_CLAIM, claim("mine", "gpu-1"))
    server.put(POD, pod("train", "mine"))
    server.forbidden.add(right)
    assert await positions(view) == PLACES


async def test_a_slice_that_goes_takes_its_gpus_along(view, server):
    await followed(view)
    server.remove(RESOURCE_SLICE, f"{NODE}-gpus")
    await until(lambda: not claim_gpus(view.slices.slices(), GPUS))
    assert await positions(view) == []


async def test_where_the_kind_is_not_served_it_is_waited_for(view, server):
    """As before Kubernetes 1.34."""
    await followed(view)
    server.uninstall(RESOURCE_SLICE, seen=True)
    await until(lambda: not claim_gpus(view.slices.slices(), GPUS))
    server.add(RESOURCE_SLICE)
    server.put(RESOURCE_SLICE, slice_of(name="again"))
    await followed(view)


async def test_a_distance_is_told_once_the_claim_is_prepared(
    view, kubelet, tmp_path, recording, monkeypatch
):
    """The kubelet prepares claims after it has allocated shares."""
    monkeypatch.setattr(kubelet_view, "LATER_SECONDS", (0.2,))
    await followed(view)
    cards = [hard_card(0x81, numa=1), hard_card(0x82, 1, numa=1)]
    ((pool,), _) = resolve([PoolSpec(NIC, Mode.EXCLUSIVE, "c:1")], cards, node().survey)
    offers = SimpleNamespace(pools={NIC: pool})
    place = ContainerPlace("train", "c", "team")
    kubelet.store.holdings[place, NIC] = (pool.shares[0].id,)
    async with beside(view.report(offers)):
        view.granted(Grant(NIC, (pool.shares[0].id,), ()))
        await until(lambda: view._without_gpu)
        device = SliceDevice(DRIVER, NODE, "gpu-1")
        kubelet.pod_resources.claimed = [ClaimedDevice("team", "train", "c", device)]
        await until(lambda: recording.of("GPU distance measured"))
    (line,) = recording.of("GPU distance measured")
    assert (line["container"], line["card"]) == ("team/train/c", cards[0].id)
    assert line["what"].startswith(f"{cards[0].id} to GPU {PLACES[1].pci}: ")
    assert await view.distances(offers) == ()
    view.granted(Grant(NIC, (pool.shares[0].id,), ()))  # to a pod of the same name
    assert len(await view.distances(offers)) == 1
    kubelet.store.holdings[place, NIC] = (pool.shares[1].id,)  # and one with another share
    assert [told.card for _, told in await view.distances(offers)] == [cards[1].id]
    assert await KubeletView(PodResources(tmp_path / "nobody.sock")).distances(offers) == ()
