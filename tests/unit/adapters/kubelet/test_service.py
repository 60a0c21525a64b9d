"""One pool on a socket with several watchers, as after a kubelet that registered us twice."""

import asyncio

import pytest
from grpclib.client import Channel
from grpclib.server import Server

from kube_rdma.adapters.kubelet.device_plugin import PoolService
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import DevicePluginStub
from tests.unit.adapters.kubelet.conftest import Desk, make_offer


class Watcher:
    """A connection that reads ListAndWatch."""

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
    assert await asyncio.wait_for(left.get(), 30) >= 0
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("withdrawn", [False, True])
async def test_the_end_comes_in_good_order(directory, withdrawn):
    """Each stream is closed as a stream, not cut; `end` returns when all are."""
    service = PoolService(make_offer(1), Desk().answers(), lambda _: None)
    server = Server([service])
    await server.start(path=str(directory / "s"))
    async with Watcher(directory / "s") as watcher:
        assert await watcher.count() == 1
        await asyncio.wait_for(service.end(withdrawn=withdrawn), 30)
        if withdrawn:
            assert await watcher.count() == 0
        assert await watcher.count() is None
    server.close()
    await server.wait_closed()
