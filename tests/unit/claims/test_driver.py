"""When the kubelet hears of the driver, and what it is told of devices."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from grpclib.client import Channel

from kube_base.frozen import replace
from kube_rdma.adapters.kubelet.proto import dra_health_v1alpha1_pb2 as v1alpha1
from kube_rdma.adapters.kubelet.proto import dra_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.dra_health_v1alpha1_grpc import DRAResourceHealthStub
from kube_rdma.adapters.kubelet.proto.dra_v1_grpc import DRAPluginStub
from kube_rdma.claims.driver import ClaimDriver
from kube_rdma.claims.prepared_claims import ClaimStatuses
from kube_rdma.model.claims.devices import DRIVER
from tests.kit.beside import beside
from tests.kit.nodes import DOWN
from tests.unit.agent.world import until
from tests.unit.claims.test_prepared_claims import CLAIM, FIRST, NODES_OF_FIRST, SECOND, World


async def works():
    return True, "containerd is v2.4.2 and CDI is on."


async def ignores():
    return False, "containerd is v2.0.0 and CDI is off in its configuration (enable_cdi)."


@pytest.fixture
def registry(tmp_path_factory):
    """Not tmp_path: with the name of the test in it no socket would fit (107 characters)."""
    return tmp_path_factory.mktemp("r")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@asynccontextmanager
async def driving(world, registry, asks=works):
    """The driver of an agent that has not looked at its node yet."""
    told = ClaimStatuses(world.say).run
    driver = ClaimDriver(world.agent(offered=False), registry, "node-1", asks, told, frozenset)
    async with beside(driver.run()):
        yield driver


async def test_the_kubelet_hears_of_it_when_every_file_is_there_again(world, registry):
    devices = await world.agent().prepare(CLAIM)
    world.reboot()
    socket = registry / f"{DRIVER}.sock"
    async with driving(world, registry) as driver:
        await asyncio.sleep(0)
        assert not socket.exists(), "nobody has looked at the cards"
        driver.offered(world.pools())
        await until(socket.exists)
        assert world.container(*devices).char_paths == NODES_OF_FIRST
        channel = Channel(path=str(socket))
        claim = pb.Claim(namespace=CLAIM.namespace, name=CLAIM.name, uid=CLAIM.uid)
        stub = DRAPluginStub(channel)
        answer = await stub.NodePrepareResources(pb.NodePrepareResourcesRequest(claims=[claim]))
        (device,) = answer.claims[CLAIM.uid].devices
        assert list(device.cdi_device_ids) == list(devices[0].cdi)
        await stub.NodeUnprepareResources(pb.NodeUnprepareResourcesRequest(claims=[claim]))
        assert world.files == []
        channel.close()
    assert not socket.exists()


async def test_where_containers_would_start_without_their_cards_there_is_no_driver(
    world, registry, recording
):
    async with driving(world, registry, ignores) as driver:
        await asyncio.sleep(0)
        assert not recording.of("claims not served"), "nobody has looked at the cards"
        driver.offered(world.pools())
        await until(lambda: recording.of("claims not served"))
        assert not (registry / f"{DRIVER}.sock").exists()
    (line,) = recording.of("claims not served")
    assert "CDI is off" in line["why"]


async def test_the_kubelet_is_told_of_a_card_that_fails(world, registry):
    socket = registry / f"{DRIVER}.sock"
    async with driving(world, registry) as driver:
        driver.offered(world.pools())
        await until(socket.exists)
        channel = Channel(path=str(socket))
        async with DRAResourceHealthStub(channel).NodeWatchResources.open() as stream:
            await stream.send_message(v1alpha1.NodeWatchResourcesRequest(), end=True)
            cards = ("0000-81-00-0", "0000-a1-00-0")
            parts = ("", "-s0", "-s1", "-s2", "-s3")
            assert set(told(await stream.recv_message())) == {
                (f"{card}{part}", v1alpha1.HEALTHY, "") for card in cards for part in parts
            }
            world.cards = (replace(FIRST, reasons=(DOWN,)), SECOND)
            driver.offered(world.pools())
            now = told(await stream.recv_message())
            assert all((f"{cards[0]}{part}", v1alpha1.UNHEALTHY, DOWN) in now for part in parts)
            await stream.cancel()
        channel.close()


def told(message):
    return [(one.device.device_name, one.health, one.message) for one in message.devices]
