"""Messages of the device plugin API, and its service."""

import asyncio

import pytest
from grpclib import GRPCError, Status
from grpclib.client import Channel
from grpclib.server import Server
from hypothesis import given
from hypothesis import strategies as st

from kube_base.backoff import FIRST, LONGEST, full_jitter
from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_rdma.adapters.kubelet import device_plugin
from kube_rdma.adapters.kubelet.device_plugin import PoolService
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import DevicePluginStub
from kube_rdma.model.pools import FileMount, Grant, Share
from tests.unit.adapters.kubelet.conftest import Desk, make_offer


def test_shares_carry_health_and_numa_nodes():
    shares = (Share("a", True, (0, 1)), Share("b", False), Share("c", True, (0,)))
    devices = device_plugin.device_list(make_offer(shares=shares)).devices
    assert [(d.ID, d.health) for d in devices] == [
        ("a", "Healthy"),
        ("b", "Unhealthy"),
        ("c", "Healthy"),
    ]
    assert [[node.ID for node in d.topology.nodes] for d in devices] == [[0, 1], [], [0]]
    assert [d.HasField("topology") for d in devices] == [True, False, True]


def test_device_nodes_never_allow_mknod():
    response = device_plugin.container_response(
        Grant("rdma/hca", ("hca-1",), ("/dev/infiniband/uverbs3",))
    )
    (spec,) = response.devices
    assert spec.container_path == spec.host_path == "/dev/infiniband/uverbs3"
    assert spec.permissions == "rw"


def test_mounts_are_read_only():
    mounts = (FileMount("/var/lib/a", "/usr/share/a"),)
    response = device_plugin.container_response(Grant("rdma/hca", ("hca-1",), (), mounts=mounts))
    (mount,) = response.mounts
    assert (mount.host_path, mount.container_path) == ("/var/lib/a", "/usr/share/a")
    assert mount.read_only


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused("no", remedy="Do"), Status.FAILED_PRECONDITION),
        (Unavailable("later"), Status.UNAVAILABLE),
        (Broken("odd"), Status.INTERNAL),
    ],
)
def test_an_error_keeps_its_sentence(error, status):
    with pytest.raises(GRPCError) as found, device_plugin.errors():
        raise error
    assert (found.value.status, found.value.message) == (status, str(error))


def test_every_kind_of_error_has_a_status():
    assert {kind for kind, _ in device_plugin.STATUS} == set(KubeError.__subclasses__())


@given(st.integers(0, 10**6))
def test_the_pause_is_bounded(failures):
    assert 0 <= full_jitter(failures) <= min(LONGEST, FIRST * 2 ** min(failures, 20))


def test_the_pause_grows():
    """The mean of many is about half of the longest: 0.1 s at first, 15 s after eight failures."""
    for failures, mean in ((0, FIRST / 2), (3, FIRST * 4), (20, LONGEST / 2)):
        pauses = [full_jitter(failures) for _ in range(2000)]
        assert sum(pauses) / 2000 == pytest.approx(mean, rel=0.2)


class Watcher:
    def __init__(self, path):
        self.channel = Channel(path=str(path))
        self.ended = False
        self.call = DevicePluginStub(self.channel).ListAndWatch.open()

    async def __aenter__(self):
        self.stream = await self.call.__aenter__()
        await self.stream.send_message(pb.Empty(), end=True)
        return self

    async def __aexit__(self, *error):
        if not self.ended:
            await self.stream.cancel()
        await self.call.__aexit__(*error)
        self.channel.close()

    async def count(self):
        state = await self.stream.recv_message()
        self.ended = state is None
        return None if self.ended else len(state.devices)


async def test_every_watcher_hears_everything_and_only_the_last_is_missed(directory):
    left = asyncio.Queue()
    service = PoolService(make_offer(1), Desk().answers(), left.put_nowait)
    server = Server([service])
    await server.start(path=str(directory / "s"))
    async with Watcher(directory / "s") as first:
        async with Watcher(directory / "s") as second:
            for count in (1, 2, 3):
                service.publish(make_offer(count))
                assert [await first.count(), await second.count()] == [count, count]
        service.publish(make_offer(4))
        assert await first.count() == 4
        assert left.empty()
    assert await left.get() >= 0
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("withdrawn", [False, True])
async def test_the_end_comes_in_good_order(directory, withdrawn):
    service = PoolService(make_offer(1), Desk().answers(), lambda _: None)
    server = Server([service])
    await server.start(path=str(directory / "s"))
    async with Watcher(directory / "s") as watcher:
        assert await watcher.count() == 1
        await service.end(withdrawn=withdrawn)
        if withdrawn:
            assert await watcher.count() == 0
        assert await watcher.count() is None
    server.close()
    await server.wait_closed()
