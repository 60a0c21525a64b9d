"""A resource that the kubelet finds by itself: the socket is there, stays, and comes back."""

import socket

import pytest
from grpclib.client import Channel

from kube_rdma.adapters.kubelet.device_plugin import WatchedPlugin
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationStub
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.adapters.kubelet.conftest import make_offer, running

HCA = "rdma/hca"
SOCKET = "kube-rdma-rdma_hca.sock"


@pytest.fixture
def folder(directory):
    (directory / "plugins_registry").mkdir()
    return directory / "plugins_registry"


def watched(folder, offer, desk=None):
    return running(folder, offer, desk and desk.answers(), kind=WatchedPlugin)


async def test_the_kubelet_finds_it(directory, folder, recording):
    async with FakeKubelet.at(directory) as kubelet, watched(folder, make_offer()):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        await recording.wait_for("registered")
        await kubelet.allocate(HCA, 1)
        assert kubelet.registrations == [HCA]
        assert [path.name for path in folder.iterdir()] == [SOCKET]
    assert not list(folder.iterdir())


async def test_it_says_who_it_is(directory, folder):
    """Without an endpoint: a path of our mount namespace means nothing to the kubelet."""
    async with FakeKubelet.at(directory) as kubelet, watched(folder, make_offer()):
        await kubelet.until(lambda: kubelet.healthy(HCA))
        channel = Channel(path=str(folder / SOCKET))
        info = await RegistrationStub(channel).GetInfo(pb.InfoRequest())
        channel.close()
        assert info == pb.PluginInfo(type="DevicePlugin", name=HCA, supported_versions=["v1beta1"])


@pytest.mark.parametrize("crash", [False, True])
async def test_the_kubelet_restarts(directory, folder, crash):
    async with FakeKubelet.at(directory) as kubelet, watched(folder, make_offer()):
        for _ in range(3):
            await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
            await kubelet.allocate(HCA, 1)
            await kubelet.restart(crash=crash)


async def test_the_kubelet_hangs_up(directory, folder):
    async with FakeKubelet.at(directory) as kubelet, watched(folder, make_offer()):
        await kubelet.until(lambda: kubelet.healthy(HCA))
        kubelet.hang_up(HCA)
        await kubelet.until(lambda: len(kubelet.registrations) > 1 and kubelet.healthy(HCA))


async def test_a_refusal_is_told_and_the_kubelet_tries_again(directory, folder, recording):
    kubelet = FakeKubelet.at(directory, refusals=2)
    async with kubelet, watched(folder, make_offer()):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        await recording.wait_for("registered")
    failed = recording.of("registration failed, the kubelet tries again")
    assert len(failed) == 2
    assert "context deadline exceeded" in failed[0]["reason"]


async def test_the_kubelet_looks_past_what_is_no_plugin(directory, folder):
    (folder / "notes.txt").touch()
    for name in (".hidden.sock", "dead.sock"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / name))
        listener.close()
    async with FakeKubelet.at(directory) as kubelet, watched(folder, make_offer()):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        assert kubelet.registrations == [HCA]
    assert sorted(p.name for p in folder.iterdir()) == [".hidden.sock", "dead.sock", "notes.txt"]
