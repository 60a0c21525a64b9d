"""The kubelet's door for a driver of dynamic resource allocation: one socket in plugins_registry.

    plugins_registry ─ GetInfo ─► DRAPlugin ─► NodePrepareResources, NodeUnprepareResources
                               └► DRAResourceHealth ─► NodeWatchResources (claim_health.py)

The kubelet finds the socket, and again whenever it starts (pkg/kubelet/pluginmanager), so a kubelet
that restarts registers the driver by itself; a socket that somebody removed is made anew. The
kubelet calls once for a claim, however many pods share it; a claim that failed it asks for again.
Decides nothing: the answers are those of the functions that the program handed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog
from grpclib.server import Server, Stream

from kube_base.backoff import LONGEST, full_jitter
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.kubelet.claim_health import SERVICES, ClaimHealth
from kube_rdma.adapters.kubelet.directory import Identity, identity, watching
from kube_rdma.adapters.kubelet.proto import dra_v1_pb2 as pb
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as registration
from kube_rdma.adapters.kubelet.proto.dra_v1_grpc import DRAPluginBase
from kube_rdma.adapters.kubelet.proto.pluginregistration_v1_grpc import RegistrationBase
from kube_rdma.adapters.kubelet.rpc import Requests
from kube_rdma.model.claims.prepared import ClaimName, PreparedDevice

TYPE = "DRAPlugin"  # what the kubelet calls plugins of this kind
SERVICE = "v1.DRAPlugin"  # k8s.io/kubelet/pkg/apis/dra/v1/types.go; Kubernetes 1.34 and later

log = structlog.get_logger()


class ClaimAnswers(Frozen):
    """Who answers for a claim; each raises KubeError, which the kubelet shows as an Event."""

    prepare: Callable[[ClaimName], Awaitable[Sequence[PreparedDevice]]]
    unprepare: Callable[[ClaimName], Awaitable[None]]


class ClaimPlugin:
    """One driver on one node; `folder` is the kubelet's plugins_registry.

    Without `health` the kubelet is told nothing of devices, and says so of none.
    """

    def __init__(
        self, folder: Path, driver: str, answers: ClaimAnswers, health: ClaimHealth | None = None
    ) -> None:
        self._folder = folder
        self._socket = folder / f"{driver}.sock"
        services = (SERVICE, *(SERVICES if health else ()))
        self._services = (
            _DriverInfo(driver, services),
            _ClaimService(driver, answers),
            *(health.services(driver) if health else ()),
        )

    async def run(self) -> None:
        """Serve until cancelled, then remove the socket; raise Refused where it cannot be made."""
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            since = clock()
            await self._serve()
            log.warning("socket removed", socket=str(self._socket))
            # Two drivers of one name would else fight at full speed.
            failures = 0 if clock() - since > LONGEST else failures + 1
            await asyncio.sleep(full_jitter(failures))

    async def _serve(self) -> None:
        """Serve until the socket is not there any more, or another one is."""
        server = Server(self._services)
        try:
            # asyncio removes a socket that an earlier process left under this name.
            await server.start(path=str(self._socket))
        except OSError as error:
            raise Refused(
                f"the socket cannot be made ({error.strerror or error})",
                remedy="Mount the kubelet's plugins_registry writable and run as uid 0",
                where=str(self._socket),
            ) from error
        own = identity(self._socket)
        try:
            await self._while_there(own)
        finally:
            if own and identity(self._socket) == own:
                self._socket.unlink(missing_ok=True)
            server.close()

    async def _while_there(self, own: Identity | None) -> None:
        with watching(self._folder, (self._socket.name,)) as changes:
            while own and identity(self._socket) == own:
                await anext(changes)


class _DriverInfo(RegistrationBase):
    """Who the driver is, for the plugin watcher."""

    def __init__(self, driver: str, services: Sequence[str]) -> None:
        self._driver = driver
        self._versions = services
        self._requests = Requests(driver)

    async def GetInfo(  # noqa: N802  names of the wire
        self, stream: Stream[registration.InfoRequest, registration.PluginInfo]
    ) -> None:
        """Name the driver; without an endpoint the kubelet calls the socket that it asked."""
        await self._requests.receive(stream)
        answer = registration.PluginInfo(
            type=TYPE, name=self._driver, supported_versions=self._versions
        )
        await stream.send_message(answer)

    async def NotifyRegistrationStatus(  # noqa: N802
        self,
        stream: Stream[registration.RegistrationStatus, registration.RegistrationStatusResponse],
    ) -> None:
        """Hear whether the kubelet accepted the driver; a failed registration it tries again."""
        status = await self._requests.receive(stream)
        if status.plugin_registered:
            log.info("registered", driver=self._driver)
        else:
            log.warning("registration failed", driver=self._driver, reason=status.error)
        await stream.send_message(registration.RegistrationStatusResponse())


class _ClaimService(DRAPluginBase):
    """What the kubelet asks for pods."""

    def __init__(self, driver: str, answers: ClaimAnswers) -> None:
        self._answers = answers
        self._requests = Requests(driver)

    async def NodePrepareResources(  # noqa: N802
        self, stream: Stream[pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse]
    ) -> None:
        """Prepare each claim; one that fails holds up no other."""
        request = await self._requests.receive(stream)
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            try:
                devices = await self._answers.prepare(_name(claim))
            except Exception as error:  # noqa: BLE001  of one claim
                answer.claims[claim.uid].error = _why(claim, error)
            else:
                answer.claims[claim.uid].devices.extend(map(_device, devices))
        await stream.send_message(answer)

    async def NodeUnprepareResources(  # noqa: N802
        self, stream: Stream[pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse]
    ) -> None:
        """Give back what claims held; each claim has an entry in the answer."""
        request = await self._requests.receive(stream)
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            try:
                await self._answers.unprepare(_name(claim))
                answer.claims[claim.uid].SetInParent()
            except Exception as error:  # noqa: BLE001  of one claim
                answer.claims[claim.uid].error = _why(claim, error)
        await stream.send_message(answer)


def _why(claim: pb.Claim, error: Exception) -> str:
    """What the kubelet shows as an Event of the pod."""
    is_meant = isinstance(error, KubeError)
    return str(error) if is_meant else object_failed("ResourceClaim", _name(claim), error)


def _name(claim: pb.Claim) -> ClaimName:
    return ClaimName(claim.namespace, claim.name, claim.uid)


def _device(device: PreparedDevice) -> pb.Device:
    return pb.Device(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi,
        share_id=device.share,
    )
