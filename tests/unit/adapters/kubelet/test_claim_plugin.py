"""A driver of claims at the kubelet: who it is, what it prepares, what fails alone."""

import asyncio
import socket as sockets
from contextlib import suppress

import pytest
from grpclib.client import Channel

from kube_base.errors import Refused
from kube_rdma.adapters.kubelet import claim_plugin
from kube_rdma.adapters.kubelet.proto import dra_health_v1_pb2 as v1
from kube_rdma.adapters.kubelet.proto import dra_health_v1alpha1_pb2 as v1alpha1
from kube_rdma.adapters.kubelet.proto import dra_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as registration
from kube_rdma.adapters.kubelet.proto.dra_health_v1_grpc import DRAResourceHealthStub as V1Stub
from kube_rdma.adapters.kubelet.proto.dra_health_v1alpha1_grpc import (
    DRAResourceHealthStub as V1Alpha1Stub,
)
from kube_rdma.adapters.kubelet.proto.dra_v1_grpc import DRAPluginStub
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationStub
from kube_rdma.model.claims.claim import ClaimName, PreparedDevice
from kube_rdma.model.claims.devices import DeviceHealth
from tests.kit.beside import beside
from tests.unit.adapters.kubelet.test_device_plugin import none_open_in
from tests.unit.agent.world import until

DRIVER = "rdma.example.com"
GOOD, BAD, NASTY = (
    pb.Claim(namespace="team", name=word, uid=f"uid-{word}") for word in ("good", "bad", "nasty")
)


class Cards:
    def __init__(self):
        self.asked = []

    async def prepare(self, claim):
        self.asked.append(claim)
        if claim.name == "nasty":
            raise AttributeError("x")
        if claim.name == "bad":
            raise Refused("there is no card", remedy="Create the claim again")
        return [PreparedDevice("node-1", "mlx5-0", ("nic",), ("kube-rdma.io/nic=a",), "share")]

    async def unprepare(self, claim):
        await self.prepare(claim)


@pytest.fixture
def cards():
    return Cards()


@pytest.fixture
def health():
    return claim_plugin.ClaimHealth(clock=lambda: 1700000000.5, repeat=0.01)


@pytest.fixture
async def channel(directory, cards, health):
    answers = claim_plugin.ClaimHandlers(cards.prepare, cards.unprepare)
    plugin = claim_plugin.ClaimPlugin(directory, DRIVER, answers, health)
    socket = directory / f"{DRIVER}.sock"
    task = asyncio.create_task(plugin.run())
    await until(socket.exists)
    channel = Channel(path=str(socket))
    yield channel
    channel.close()
    task.cancel()
    await asyncio.wait([task])
    assert not socket.exists()


async def test_it_says_who_it_is(channel, recording):
    stub = RegistrationStub(channel)
    info = await stub.GetInfo(registration.InfoRequest())
    assert info == registration.PluginInfo(
        type="DRAPlugin",
        name=DRIVER,
        supported_versions=["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"],
    )
    await stub.NotifyRegistrationStatus(registration.RegistrationStatus(plugin_registered=True))
    await recording.wait_for("registered")
    failed = registration.RegistrationStatus(error="no such version")
    await stub.NotifyRegistrationStatus(failed)
    await recording.wait_for("registration failed")


async def test_a_claim_that_fails_holds_up_no_other(channel, cards):
    request = pb.NodePrepareResourcesRequest(claims=[BAD, GOOD])
    answer = await DRAPluginStub(channel).NodePrepareResources(request)
    assert answer.claims["uid-bad"].error.startswith("there is no card")
    assert list(answer.claims["uid-good"].devices) == [
        pb.Device(
            request_names=["nic"],
            pool_name="node-1",
            device_name="mlx5-0",
            cdi_device_ids=["kube-rdma.io/nic=a"],
            share_id="share",
        )
    ]
    assert cards.asked[1] == ClaimName("team", "good", "uid-good")


async def test_a_claim_whose_handling_raises_something_holds_up_no_other(channel):
    request = pb.NodePrepareResourcesRequest(claims=[NASTY, GOOD])
    answer = await DRAPluginStub(channel).NodePrepareResources(request)
    assert "cannot handle this ResourceClaim (AttributeError" in answer.claims["uid-nasty"].error
    assert answer.claims["uid-good"].devices
    request = pb.NodeUnprepareResourcesRequest(claims=[NASTY, GOOD])
    answer = await DRAPluginStub(channel).NodeUnprepareResources(request)
    assert answer.claims["uid-nasty"].error
    assert not answer.claims["uid-good"].error


async def test_every_claim_that_ends_has_an_entry(channel):
    request = pb.NodeUnprepareResourcesRequest(claims=[GOOD, BAD])
    answer = await DRAPluginStub(channel).NodeUnprepareResources(request)
    assert set(answer.claims) == {"uid-good", "uid-bad"}
    assert not answer.claims["uid-good"].error
    assert "Create the claim again" in answer.claims["uid-bad"].error


async def test_a_folder_that_is_not_there_is_refused(directory):
    plugin = claim_plugin.ClaimPlugin(
        directory / "none", DRIVER, claim_plugin.ClaimHandlers(Cards().prepare, Cards().unprepare)
    )
    with pytest.raises(Refused, match="folder writable"):
        await plugin.run()


async def test_a_socket_that_was_removed_is_made_anew(channel, directory, recording):
    socket = directory / f"{DRIVER}.sock"
    socket.unlink()
    await recording.wait_for("socket removed")
    await until(socket.exists)
    again = Channel(path=str(socket))
    info = await RegistrationStub(again).GetInfo(registration.InfoRequest())
    assert info.name == DRIVER
    again.close()


@pytest.mark.parametrize(("stub", "wire"), [(V1Stub, v1), (V1Alpha1Stub, v1alpha1)])
async def test_the_health_of_devices_is_told_at_once_and_again(channel, health, stub, wire):
    """In both versions; the kubelet calls Unknown what it does not hear of again in time."""

    def answer(status, message=""):
        device = wire.DeviceIdentifier(pool_name="node-1", device_name="mlx5-0")
        one = wire.DeviceHealth(
            device=device,
            health=status,
            last_updated_time=1700000000,
            health_check_timeout_seconds=claim_plugin.TIMEOUT_SECONDS,
            message=message,
        )
        return wire.NodeWatchResourcesResponse(devices=[one])

    health.publish([DeviceHealth("node-1", "mlx5-0", healthy=True)])
    async with stub(channel).NodeWatchResources.open() as stream:
        await stream.send_message(wire.NodeWatchResourcesRequest(), end=True)
        assert await stream.recv_message() == answer(wire.HEALTHY)
        assert await stream.recv_message() == answer(wire.HEALTHY), "repeated, nothing changed"
        health.publish([DeviceHealth("node-1", "mlx5-0", healthy=False, message="port is down")])
        while (heard := await stream.recv_message()) == answer(wire.HEALTHY):
            pass
        assert heard == answer(wire.UNHEALTHY, "port is down")
        health.publish([DeviceHealth("node-1", "mlx5-0", healthy=None)])
        while (heard := await stream.recv_message()) != answer(wire.UNKNOWN):
            pass
        await stream.cancel()


def test_a_message_is_as_long_as_the_kubelet_keeps_it():
    assert claim_plugin.shortened("é" * 512) == "é" * 512
    cut = claim_plugin.shortened("é" * 513)
    assert cut.endswith("é...")
    assert len(cut.encode()) <= 1024


@pytest.mark.parametrize("turns", range(24))
async def test_an_end_at_any_moment_leaves_no_socket_open(directory, turns):
    """The kubelet calls meanwhile."""
    answers = claim_plugin.ClaimHandlers(Cards().prepare, Cards().unprepare)
    plugin = claim_plugin.ClaimPlugin(directory, DRIVER, answers)

    async def call():
        while not (directory / f"{DRIVER}.sock").exists():  # noqa: ASYNC110  each turn counts
            await asyncio.sleep(0)
        with (
            sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK) as calling,
            suppress(OSError),
        ):
            calling.connect(str(directory / f"{DRIVER}.sock"))
            await asyncio.Event().wait()

    async with beside(call()), beside(plugin.run()):
        for _ in range(turns):
            await asyncio.sleep(0)
    await none_open_in(directory)
