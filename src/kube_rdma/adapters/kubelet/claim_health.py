"""The health of devices that claims hold, as a stream to the kubelet (KEP-4680).

    program ─ publish ─► ClaimHealth ─ NodeWatchResources ─► kubelet ─► status of pods

The kubelet of 1.34 to 1.36 calls v1alpha1, that of 1.37 calls v1 with the same messages; both stand
on the driver's one socket. What the kubelet does not hear again within 30 s it calls Unknown
(pkg/kubelet/cm/dra/healthinfo.go of Kubernetes 1.36.3, DefaultHealthTimeout), so the list is sent
again although nothing changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from grpclib.server import Stream

from kube_rdma.adapters.kubelet.proto import dra_health_v1_pb2 as v1
from kube_rdma.adapters.kubelet.proto import dra_health_v1alpha1_pb2 as v1alpha1
from kube_rdma.adapters.kubelet.proto.dra_health_v1_grpc import DRAResourceHealthBase as V1Base
from kube_rdma.adapters.kubelet.proto.dra_health_v1alpha1_grpc import (
    DRAResourceHealthBase as V1Alpha1Base,
)
from kube_rdma.adapters.kubelet.rpc import Requests
from kube_rdma.model.claims.health import DeviceHealth

SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
REPEAT_SECONDS = 10.0
LONGEST_MESSAGE = 1024  # bytes, ResourceHealthMessageMaxLength of core/v1: the kubelet cuts runes


class ClaimHealth:
    """The devices of one driver as they are now. `clock` is the wall clock, `repeat` for tests."""

    def __init__(
        self, clock: Callable[[], float] = time.time, repeat: float = REPEAT_SECONDS
    ) -> None:
        self._clock = clock
        self._repeat = repeat
        self._devices: tuple[DeviceHealth, ...] | None = None  # None: nobody has looked yet
        self._changed = asyncio.Event()

    def publish(self, devices: Sequence[DeviceHealth]) -> None:
        """Tell all devices from now on; every stream hears of a change at once."""
        if (listed := tuple(devices)) != self._devices:
            self._devices = listed
            # Each state has its own event, so that no stream can miss one or clear another's.
            self._changed.set()
            self._changed = asyncio.Event()

    def services(self, driver: str) -> tuple[_V1, _V1Alpha1]:
        """What has to stand on the driver's socket."""
        return _V1(driver, self), _V1Alpha1(driver, self)

    async def send(self, stream: Stream[Any, Any], wire: ModuleType) -> None:
        """Send all devices now, at each change and again in between, until the stream ends."""
        while True:
            changed = self._changed
            if self._devices is not None:
                await stream.send_message(self._message(wire, self._devices))
            try:
                async with asyncio.timeout(self._repeat):
                    await changed.wait()
            except TimeoutError:
                continue

    def _message(self, wire: ModuleType, devices: Sequence[DeviceHealth]) -> object:
        now = int(self._clock())
        return wire.NodeWatchResourcesResponse(
            devices=[
                wire.DeviceHealth(
                    device=wire.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
                    health=_status(wire, one.healthy),
                    last_updated_time=now,
                    message=shortened(one.message),
                )
                for one in devices
            ]
        )


class _V1(V1Base):
    """The service of Kubernetes 1.37 and later."""

    def __init__(self, driver: str, health: ClaimHealth) -> None:
        self._requests = Requests(driver)
        self._health = health

    async def NodeWatchResources(  # noqa: N802  names of the wire
        self, stream: Stream[v1.NodeWatchResourcesRequest, v1.NodeWatchResourcesResponse]
    ) -> None:
        """Tell how the devices are until the kubelet hangs up."""
        await self._requests.receive(stream)
        await self._health.send(stream, v1)


class _V1Alpha1(V1Alpha1Base):
    """The service of Kubernetes 1.34 to 1.36."""

    def __init__(self, driver: str, health: ClaimHealth) -> None:
        self._requests = Requests(driver)
        self._health = health

    async def NodeWatchResources(  # noqa: N802
        self,
        stream: Stream[v1alpha1.NodeWatchResourcesRequest, v1alpha1.NodeWatchResourcesResponse],
    ) -> None:
        """Tell how the devices are until the kubelet hangs up."""
        await self._requests.receive(stream)
        await self._health.send(stream, v1alpha1)


def shortened(message: str) -> str:
    """The message within what the kubelet keeps, cut between characters."""
    content = message.encode()
    if len(content) <= LONGEST_MESSAGE:
        return message
    return content[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "..."


def _status(wire: ModuleType, healthy: bool | None) -> int:
    if healthy is None:
        return int(wire.UNKNOWN)
    return int(wire.HEALTHY if healthy else wire.UNHEALTHY)
