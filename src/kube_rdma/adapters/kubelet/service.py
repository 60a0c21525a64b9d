"""The gRPC service that the kubelet calls: lists the shares of one resource and answers for them.

Holds the Offer as it is now; device_plugin gives it a socket and registers it. Decides nothing: the
answers come from the functions that the program handed in (pools/rules/allocation,
pools/rules/preference).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from grpclib import GRPCError, Status
from grpclib.server import Stream

from kube_base.frozen import Frozen
from kube_rdma.adapters.kubelet import wire
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import DevicePluginBase
from kube_rdma.adapters.kubelet.rpc import Requests
from kube_rdma.model.pools.pool import Grant, Offer, ShareId


class Choice(Frozen):
    """What GetPreferredAllocation asks for one container: `size` shares out of `available`.

    Those of `must` are given in any case; the kubelet names them among the available ones.
    """

    available: tuple[ShareId, ...]
    must: tuple[ShareId, ...]
    size: int


class Answers(Frozen):
    """Who answers the kubelet's calls about one resource; each raises KubeError.

    `prefer` and `start` are needed where the Offer says `prefers` and `gated`.
    """

    allocate: Callable[[Sequence[ShareId]], Awaitable[Grant]]
    prefer: Callable[[Choice], Awaitable[Sequence[ShareId]]] | None = None
    start: Callable[[Sequence[ShareId]], Awaitable[None]] | None = None


class PoolService(DevicePluginBase):
    """One resource on one socket. `unwatched` gets the seconds that the last watcher stayed."""

    def __init__(self, offer: Offer, answers: Answers, unwatched: Callable[[float], None]) -> None:
        self._offer = offer
        self._answers = answers
        self._unwatched = unwatched
        self._requests = Requests(offer.resource)
        self._watchers = 0
        self._ending = False
        self._withdrawn = False
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def watched(self) -> bool:
        """Whether a ListAndWatch is open."""
        return self._watchers > 0

    def publish(self, offer: Offer, *, again: bool = False) -> None:
        """Tell `offer` from now on; watchers hear of it when a share changed, or `again`."""
        previous, self._offer = self._offer, offer
        if again or offer.shares != previous.shares:
            self._wake()

    async def end(self, *, withdrawn: bool) -> None:
        """End every ListAndWatch in good order, so that the kubelet hangs up.

        Without it the kubelet would hold on to a connection whose server merely went silent.
        `withdrawn`: nobody serves the resource after this, and the last list is an empty one. The
        end alone is not enough: when two plugins of one name change places, the kubelet can forget
        the client of a list that it goes on reading, and the shares of that list then stay
        allocatable after its end, for good (runClient in pkg/kubelet/cm/devicemanager).
        """
        self._withdrawn = withdrawn
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
        await self._requests.receive(stream)
        await stream.send_message(wire.options(self._offer))

    async def ListAndWatch(  # noqa: N802
        self, stream: Stream[pb.Empty, pb.ListAndWatchResponse]
    ) -> None:
        """Send all shares now and whenever one changed, until the kubelet or the server ends it."""
        await self._requests.receive(stream)
        clock = asyncio.get_running_loop().time
        since = clock()
        self._watchers += 1
        self._idle.clear()
        try:
            while not self._ending:
                changed = self._changed
                await stream.send_message(wire.device_list(self._offer))
                await changed.wait()
            if self._withdrawn:
                await stream.send_message(pb.ListAndWatchResponse())
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._idle.set()
                self._unwatched(clock() - since)

    async def Allocate(  # noqa: N802
        self, stream: Stream[pb.AllocateRequest, pb.AllocateResponse]
    ) -> None:
        """Answer each container of the request, or refuse all with the sentence of the first."""
        request = await self._requests.receive(stream)
        answer = pb.AllocateResponse()
        for container in request.container_requests:
            with wire.errors():
                grant = await self._answers.allocate(_ids(container.devices_ids))
            answer.container_responses.append(wire.container_response(grant))
        await stream.send_message(answer)

    async def GetPreferredAllocation(  # noqa: N802
        self, stream: Stream[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse]
    ) -> None:
        """Say for each container which of the available shares it should get."""
        request = await self._requests.receive(stream)
        if self._answers.prefer is None:
            raise _not_offered("GetPreferredAllocation")
        answer = pb.PreferredAllocationResponse()
        for container in request.container_requests:
            choice = Choice(
                _ids(container.available_deviceIDs),
                _ids(container.must_include_deviceIDs),
                container.allocation_size,
            )
            with wire.errors():
                chosen = await self._answers.prefer(choice)
            answer.container_responses.add(deviceIDs=chosen)
        await stream.send_message(answer)

    async def PreStartContainer(  # noqa: N802
        self, stream: Stream[pb.PreStartContainerRequest, pb.PreStartContainerResponse]
    ) -> None:
        """Let the container that holds these shares start, or say why it cannot yet.

        The kubelet asks before every start, tells no pod, and tries a refused one again.
        """
        request = await self._requests.receive(stream)
        if self._answers.start is None:
            raise _not_offered("PreStartContainer")
        with wire.errors():
            await self._answers.start(_ids(request.devices_ids))
        await stream.send_message(pb.PreStartContainerResponse())


def _ids(names: Sequence[str]) -> tuple[ShareId, ...]:
    return tuple(ShareId(name) for name in names)


def _not_offered(call: str) -> GRPCError:
    return GRPCError(Status.UNIMPLEMENTED, f"{call} is not among the options of this plugin")
