"""The fake kubelet refuses what the real one refuses."""

import pytest
from grpclib import GRPCError, Status
from grpclib.client import Channel

from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import RegistrationStub
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.adapters.kubelet.conftest import make_offer, running

GOOD = {"version": "v1beta1", "endpoint": "kube-rdma-rdma_hca.sock", "resource_name": "rdma/hca"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": "v1beta2"}, "version"),
        ({"version": ""}, "version"),
        ({"resource_name": "hca"}, "invalid"),
        ({"resource_name": "kubernetes.io/hca"}, "invalid"),
        ({"endpoint": "nobody.sock"}, "dial"),
        ({"endpoint": "/kube-rdma/kube-rdma-rdma_hca.sock"}, "dial"),
    ],
)
async def test_a_bad_registration_is_refused(directory, change, reason):
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
        await kubelet.until(lambda: kubelet.healthy("rdma/hca"))
        channel = Channel(path=str(directory / "kubelet.sock"))
        with pytest.raises(GRPCError, match=reason) as caught:
            await RegistrationStub(channel).Register(pb.RegisterRequest(**{**GOOD, **change}))
        channel.close()
        assert caught.value.status is Status.UNKNOWN, "what grpc-go makes of a plain error"
        assert kubelet.registrations == ["rdma/hca"]


async def test_it_allocates_like_the_device_manager(directory):
    async with FakeKubelet(directory) as kubelet:
        with pytest.raises(RuntimeError, match="unregistered device"):
            await kubelet.allocate("rdma/hca", 1)
        async with running(directory, make_offer(2)) as plugin:
            await kubelet.until(lambda: kubelet.healthy("rdma/hca") == 2)
            with pytest.raises(RuntimeError, match="requested 3"):
                await kubelet.allocate("rdma/hca", 3)
            plugin.publish(make_offer(2, healthy=False))
            await kubelet.until(lambda: kubelet.healthy("rdma/hca") == 0)
            with pytest.raises(RuntimeError, match="no healthy devices"):
                await kubelet.allocate("rdma/hca", 1)


async def test_its_start_removes_sockets_and_nothing_else(directory):
    (directory / "kubelet_internal_checkpoint").touch()
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer()):
        await kubelet.until(lambda: kubelet.healthy("rdma/hca"))
        await kubelet.stop(crash=True)
        assert len([path for path in directory.iterdir() if path.is_socket()]) == 2
        await kubelet.start()
        await kubelet.until(lambda: kubelet.healthy("rdma/hca"))
        assert (directory / "kubelet_internal_checkpoint").exists()
