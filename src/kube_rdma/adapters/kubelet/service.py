"""The gRPC service that the kubelet calls: lists one pool's shares and answers Allocate.

Holds the pool as it is now; device_plugin gives it a socket and registers it. Decides nothing: what
an Allocate gets is asked from the function that the program handed in (rules/allocation).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from grpclib import GRPCError, Status
from grpclib.server import Stream

from kube_rdma.adapters.kubelet import wire
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import DevicePluginBase
from kube_rdma.model.errors import KubeRdmaError
from kube_rdma.model.pool import Grant, Pool, ShareId

Allocate = Callable[[Pool, Sequence[ShareId]], Grant]  # raises KubeRdmaError


class PoolService(DevicePluginBase):
    """One pool on one socket. `unwatched` gets the seconds that the last watcher stayed."""

    def __init__(self, pool: Pool, allocate: Allocate, unwatched: Callable[[float], None]) -> None:
        self._pool = pool
        self._allocate = allocate
        self._unwatched = unwatched
        self._watchers = 0
        self._ending = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def publish(self, pool: Pool) -> None:
        """Show `pool` from now on; watchers hear of it only when a share changed."""
        told, self._pool = self._pool, pool
        if pool.shares != told.shares:
            self._wake()

    async def end(self) -> None:
        """End every ListAndWatch in good order, so that the kubelet hangs up.

        Without it the kubelet would hold on to a connection whose server merely went silent.
        """
        self._ending = True
        self._wake()
        await self._idle.wait()

    def _wake(self) -> None:
        # Each state has its own event, so that no watcher can miss one or clear another's.
        self._changed.set()
        self._changed = asyncio.Event()

    async def GetDevicePluginOptions(  # noqa: N802  names of the wire
        self, stream: Stream[pb.Empty, pb.DevicePluginOptions]
    ) -> None:
        """Tell the kubelet which of the optional calls it should make."""
        await stream.recv_message()
        await stream.send_message(wire.options())

    async def ListAndWatch(  # noqa: N802
        self, stream: Stream[pb.Empty, pb.ListAndWatchResponse]
    ) -> None:
        """Send all shares now and whenever one changed, until the kubelet or the server ends it."""
        await stream.recv_message()
        clock = asyncio.get_running_loop().time
        since = clock()
        self._watchers += 1
        self._idle.clear()
        try:
            while not self._ending:
                changed = self._changed
                await stream.send_message(wire.device_list(self._pool))
                await changed.wait()
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._idle.set()
                self._unwatched(clock() - since)

    async def Allocate(  # noqa: N802
        self, stream: Stream[pb.AllocateRequest, pb.AllocateResponse]
    ) -> None:
        """Answer each container of the request, or refuse all with the sentence of the first."""
        request = await stream.recv_message()
        assert request
        answer = pb.AllocateResponse()
        for container in request.container_requests:
            wanted = [ShareId(name) for name in container.devices_ids]
            try:
                grant = self._allocate(self._pool, wanted)
            except KubeRdmaError as error:
                raise wire.grpc_error(error) from error
            answer.container_responses.append(wire.container_response(grant))
        await stream.send_message(answer)

    async def GetPreferredAllocation(  # noqa: N802
        self, stream: Stream[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse]
    ) -> None:
        """Refuse: our options say that we have no preference."""
        raise _not_offered("GetPreferredAllocation")

    async def PreStartContainer(  # noqa: N802
        self, stream: Stream[pb.PreStartContainerRequest, pb.PreStartContainerResponse]
    ) -> None:
        """Refuse: our options say that nothing has to be done before a start."""
        raise _not_offered("PreStartContainer")


def _not_offered(call: str) -> GRPCError:
    return GRPCError(Status.UNIMPLEMENTED, f"{call} is not among the options of this plugin")
