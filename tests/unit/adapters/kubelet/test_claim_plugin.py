"""A driver of claims at the kubelet's door: who it is, what it prepares, what fails alone."""

import asyncio

import pytest
from grpclib.client import Channel

from kube_base.errors import Refused
from kube_rdma.adapters.kubelet.claim_plugin import ClaimAnswers, ClaimPlugin
from kube_rdma.adapters.kubelet.proto import dra_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as registration
from kube_rdma.adapters.kubelet.proto.dra_v1_grpc import DRAPluginStub
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationStub
from kube_rdma.model.claims.prepared import ClaimName, PreparedDevice
from tests.unit.programs.agent.world import until

DRIVER = "rdma.example.com"
GOOD, BAD = (pb.Claim(namespace="team", name=word, uid=f"uid-{word}") for word in ("good", "bad"))


class Cards:
    """A driver that does not know the claim `bad`."""

    def __init__(self):
        self.asked = []

    async def prepare(self, claim):
        self.asked.append(claim)
        if claim.name == "bad":
            raise Refused("there is no card", remedy="Create the claim again")
        return [PreparedDevice("node-1", "mlx5-0", ("nic",), ("kube-rdma.io/nic=a",), "share")]

    async def unprepare(self, claim):
        await self.prepare(claim)


@pytest.fixture
def cards():
    return Cards()


@pytest.fixture
async def channel(directory, cards):
    plugin = ClaimPlugin(directory, DRIVER, ClaimAnswers(cards.prepare, cards.unprepare))
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
        type="DRAPlugin", name=DRIVER, supported_versions=["v1.DRAPlugin"]
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


async def test_every_claim_that_ends_has_an_entry(channel):
    request = pb.NodeUnprepareResourcesRequest(claims=[GOOD, BAD])
    answer = await DRAPluginStub(channel).NodeUnprepareResources(request)
    assert set(answer.claims) == {"uid-good", "uid-bad"}
    assert not answer.claims["uid-good"].error
    assert "Create the claim again" in answer.claims["uid-bad"].error


async def test_a_folder_that_is_not_there_is_refused(directory):
    plugin = ClaimPlugin(
        directory / "none", DRIVER, ClaimAnswers(Cards().prepare, Cards().unprepare)
    )
    with pytest.raises(Refused, match="plugins_registry"):
        await plugin.run()
