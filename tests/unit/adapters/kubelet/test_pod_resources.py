"""Who holds what: from the pod resources API, and from its older and its absent forms."""

import asyncio

import pytest
from grpclib import GRPCError, Status
from grpclib.server import Server

from kube_base.errors import Unavailable
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.kubelet.proto import podresources_v1_pb2 as pb
from kube_rdma.model.claims.devices import ClaimedDevice, SliceDevice
from kube_rdma.model.holdings import Allocatable, Holding, NodeHoldings
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import Share
from kube_rdma_testing.kubelet.devices import ContainerPlace, Devices
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.kubelet.pod_resources import FakePodResources
from tests.unit.adapters.kubelet.conftest import make_offer, running

HCA = "rdma/hca"
SHARES = (
    Share("hca-a", True, (0,)),
    Share("hca-b", True, (0, 1)),
    Share("hca-c", True),
    Share("hca-d", False, (1,)),
)
MINE = Holding("team", "train-0", "c", HCA, ("hca-a", "hca-b"), (0, 1))
OTHER = Holding("default", "train-0", "c", HCA, ("hca-c",))


@pytest.fixture
async def kubelet(directory):
    offer = make_offer(shares=SHARES)
    kubelet = FakeKubelet.at(directory)
    async with kubelet, running(kubelet.directory, offer):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 3)
        init = ContainerPlace("train-0", "init", "team")
        kubelet.store.init.add(init)
        await kubelet.allocate(HCA, 1, place=init)
        await kubelet.allocate(HCA, 2, place=ContainerPlace("train-0", "c", "team"))
        await kubelet.allocate(HCA, 1, place=ContainerPlace("train-0"))
        yield kubelet


@pytest.fixture
def client(directory):
    return PodResources(directory / "pod-resources/kubelet.sock")


async def test_everything_that_is_held(kubelet, client):
    assert await client.holdings() == (MINE, OTHER)


async def test_what_is_held_by_claims(kubelet, client):
    device = SliceDevice("gpu.example.com", "node-1", "gpu-0")
    mine, alone = (
        ClaimedDevice("team", "train-0", "c", device),
        ClaimedDevice("team", "b", "c", device),
    )
    kubelet.pod_resources.claimed = [mine, alone]
    pods = (PodName("team", "train-0"), PodName("default", "train-0"), PodName("team", "b"))
    assert await client.all_held() == NodeHoldings((MINE, OTHER), (mine, alone), pods)
    assert await client.holdings() == (MINE, OTHER)
    assert await client.holdings_of("team", "b") == ()


async def test_everything_that_is_healthy(kubelet, client):
    assert await client.allocatable() == (
        Allocatable(HCA, "hca-a", (0,)),
        Allocatable(HCA, "hca-b", (0, 1)),
        Allocatable(HCA, "hca-c"),
    )


@pytest.mark.parametrize("has_get", [True, False])
async def test_what_one_pod_holds(kubelet, client, has_get):
    kubelet.pod_resources.has_get = has_get
    assert await client.holdings_of("team", "train-0") == (MINE,)
    assert await client.holdings_of("default", "train-0") == (OTHER,)
    assert await client.holdings_of("default", "train-1") == ()


async def test_a_pod_that_left_holds_nothing(kubelet, client):
    kubelet.remove_pod("train-0", "team")
    assert await client.holdings() == (OTHER,)


async def test_holdings_outlive_a_restart(kubelet, client):
    await kubelet.restart()
    assert [held.shares for held in await client.holdings()] == [MINE.shares, OTHER.shares]


async def test_one_connection_for_many_calls(kubelet, client):
    with client.connected():
        assert await client.holdings_of("team", "train-0") == (MINE,)
        assert await client.holdings_of("default", "train-1") == ()
        assert await client.holdings() == (MINE, OTHER)
    assert await client.holdings() == (MINE, OTHER)


async def test_a_kubelet_that_ends_during_a_call_is_asked_again(directory):
    path = directory / "s"
    devices = Devices()
    devices.holdings[ContainerPlace("train-0"), HCA] = ("hca-c",)
    server = Server([FakePodResources(devices)])

    async def end(reader, writer):
        await reader.read(1)
        dying.close()
        path.unlink()
        await server.start(path=str(path))
        writer.close()

    dying = await asyncio.start_unix_server(end, path)
    client = PodResources(path)
    with client.connected():
        assert await client.holdings() == (OTHER,)
    server.close()
    await server.wait_closed()
    with client.connected(), pytest.raises(Unavailable, match="hostPath"):
        await client.holdings()


async def test_no_kubelet(client):
    for call in (client.holdings(), client.allocatable(), client.holdings_of("a", "b")):
        with pytest.raises(Unavailable, match=r"No such file or directory.*hostPath"):
            await call


async def test_a_kubelet_that_refuses(directory):
    class Busy(FakePodResources):
        async def List(self, stream):  # noqa: N802
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")

        async def Get(self, stream):  # noqa: N802
            raise GRPCError(Status.UNIMPLEMENTED)

    server = Server([Busy(Devices())])
    await server.start(path=str(directory / "s"))
    client = PodResources(directory / "s")
    for call in (client.holdings(), client.holdings_of("a", "b")):
        with pytest.raises(Unavailable, match="rejected by rate limit"):
            await call
    server.close()
    await server.wait_closed()


async def test_an_answer_of_20_mebibytes(directory):
    """Nothing in our client bounds an answer."""
    devices = Devices()
    share = "x" * 63
    for number in range(110):
        names = tuple(f"{share}-{n}" for n in range(3000))
        devices.holdings[ContainerPlace(f"pod-{number}"), HCA] = names

    class Whole(FakePodResources):
        def _entries(self, resource, ids):
            yield pb.ContainerDevices(resource_name=resource, device_ids=ids)

    server = Server([Whole(devices)])
    await server.start(path=str(directory / "s"))
    holdings = await PodResources(directory / "s").holdings()
    assert [len(held.shares) for held in holdings] == [3000] * 110
    server.close()
    await server.wait_closed()
