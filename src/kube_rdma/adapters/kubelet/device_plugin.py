"""Keeps one resource registered in ``device-plugins``, where it registers with the kubelet.

The kubelet listens on kubelet.sock there; each registration dials it, and it dials the plugin's
socket back. On its start it removes every socket of the folder and makes a new kubelet.sock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kube_rdma.adapters.grpc_calls import CallFailed, answered, calling
from kube_rdma.adapters.kubelet import wire
from kube_rdma.adapters.kubelet.directory import KUBELET_SOCKET, Identity, identity
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as pb
from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import RegistrationStub
from kube_rdma.adapters.kubelet.resource_server import Served
from kube_rdma.adapters.kubelet.service import Answers
from kube_rdma.model.pools.pool import Offer

_REGISTER_SECONDS = 15.0  # the kubelet dials back within this call, for up to 10 s


class DevicePlugin(Served):
    """One resource of this node, registered by a call to the kubelet."""

    def __init__(self, directory: Path, offer: Offer, answers: Answers) -> None:
        super().__init__(directory, offer, answers)
        self._kubelet = directory / KUBELET_SOCKET
        self._seen: Identity | None = None  # the kubelet's socket at the last look
        self._introduced: object = None  # the server that it was told of

    async def run(self) -> None:
        """Serve until cancelled; raise as every Served does."""
        if identity(self._kubelet) is None:
            self._log.info("waiting for the kubelet", socket=str(self._kubelet))
        await super().run()

    def _watched_names(self) -> Sequence[str]:
        return (KUBELET_SOCKET, self._socket.name)

    @property
    def _is_registered(self) -> bool:
        return self._stall is not None and self._stall is self._introduced and not self._lost

    async def _settle(self) -> float | None:
        kubelet = identity(self._kubelet)
        if kubelet != self._seen:
            await self._greet(kubelet)
        if kubelet is None:
            return None
        await self._mind_the_socket()
        if self._is_registered:
            return None
        if (pause := self._pause()) > 0:
            return pause
        if self._stall is None:
            await self._serve()
        await self._register()
        return None if self._is_registered else self._pause()

    async def _greet(self, kubelet: Identity | None) -> None:
        """Take note that a kubelet came, went or was replaced, and start from nothing."""
        if kubelet is None:
            self._log.warning("the kubelet is gone", socket=str(self._kubelet))
        elif self._seen or self._stall:
            self._log.info("the kubelet is back")
        self._seen = kubelet
        self._failures = 0
        self._retry_at = 0.0
        if kubelet is not None:
            await self._close()  # it has removed the socket and knows nothing of the plugin

    async def _register(self) -> None:
        request = pb.RegisterRequest(
            version=wire.VERSION,
            endpoint=self._socket.name,
            resource_name=self._offer.resource,
            options=wire.options(self._offer),
        )
        self._lost = False
        try:
            with calling(self._kubelet) as channel:
                stub = RegistrationStub(channel)
                await answered(stub.Register(request, timeout=_REGISTER_SECONDS))
        except CallFailed as failure:
            self._set_back()
            seconds = round(self._pause(), 1)
            self._log.warning(
                "registration failed, trying again", reason=failure.reason, seconds=seconds
            )
        else:
            self._introduced = self._stall
            self.registered.set()
            self._log.info("registered", shares=len(self._offer.shares), socket=str(self._socket))
