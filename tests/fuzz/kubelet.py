"""Readers of what the kubelet, the container runtime and callers of a socket say.

One of the tables of target.py. Calls go through the services and clients themselves, over streams
in memory, so what is tried is what a socket would meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError

from kube_base.errors import KubeError, Refused
from kube_rdma.adapters import grpc_calls
from kube_rdma.adapters import http_server as server
from kube_rdma.adapters.cni import protocol
from kube_rdma.adapters.kubelet.claim_plugin import ClaimHandlers, _ClaimService
from kube_rdma.adapters.kubelet.device_plugin import Choice, PluginHandlers, PoolService
from kube_rdma.adapters.kubelet.pod_resources import PodResources
from kube_rdma.adapters.kubelet.proto import deviceplugin_v1beta1_pb2 as plugin_pb
from kube_rdma.adapters.kubelet.proto import dra_v1_pb2 as dra_pb
from kube_rdma.adapters.kubelet.proto import pluginregistration_v1_pb2 as registration_pb
from kube_rdma.adapters.kubelet.proto import podresources_v1_pb2 as resources_pb
from kube_rdma.adapters.kubelet.rpc import PluginRegistration
from kube_rdma.adapters.runtime import cri
from kube_rdma.adapters.runtime.proto import cri_v1_pb2 as cri_pb
from kube_rdma.model.claims.claim import PreparedDevice
from kube_rdma.model.pools import Grant, Offer, ShareId
from tests.fuzz.target import FuzzTarget, Reader
from tests.kit.foreign_parsers import CONF, ENVIRONMENT, text_of

POD = resources_pb.PodResources(
    name="a",
    namespace="b",
    containers=[
        resources_pb.ContainerResources(
            name="c",
            devices=[
                resources_pb.ContainerDevices(
                    resource_name="rdma/hca",
                    device_ids=["1", "2"],
                    topology=resources_pb.TopologyInfo(nodes=[resources_pb.NUMANode(ID=1)]),
                )
            ],
            dynamic_resources=[
                resources_pb.DynamicResource(
                    claim_name="x",
                    claim_namespace="b",
                    claim_resources=[
                        resources_pb.ClaimResource(
                            driver_name="kube-rdma.io", pool_name="n", device_name="mlx5-0"
                        )
                    ],
                )
            ],
        )
    ],
)
LIST = resources_pb.ListPodResourcesResponse(pod_resources=[POD])
GET = resources_pb.GetPodResourcesResponse(pod_resources=POD)
ALLOCATABLE = resources_pb.AllocatableResourcesResponse(devices=POD.containers[0].devices)
ALLOCATE = plugin_pb.AllocateRequest(
    container_requests=[plugin_pb.ContainerAllocateRequest(devices_ids=["1", "2"])]
)
PREFER = plugin_pb.PreferredAllocationRequest(
    container_requests=[
        plugin_pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=["1", "2"], must_include_deviceIDs=["1"], allocation_size=2
        )
    ]
)
START = plugin_pb.PreStartContainerRequest(devices_ids=["1"])
PREPARE = dra_pb.NodePrepareResourcesRequest(
    claims=[dra_pb.Claim(namespace="a", uid="u", name="x"), dra_pb.Claim(name="bad", uid="v")]
)
REGISTERED = registration_pb.RegistrationStatus(plugin_registered=False, error="no")
SANDBOXES = cri_pb.ListPodSandboxResponse(
    items=[
        cri_pb.PodSandbox(
            id="1",
            metadata=cri_pb.PodSandboxMetadata(name="a", uid="u", namespace="b"),
            created_at=3,
        )
    ]
)
STATUS = cri_pb.StatusResponse(info={"config": '{"enableCDI": true, "cdiSpecDirs": ["/etc/cdi"]}'})
SANDBOX = cri_pb.PodSandboxStatusResponse(
    info={"info": '{"runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": "/x"}]}}}'}
)
GET_REQUEST = b"GET /metrics?a=b HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"
POST_REQUEST = b"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n{}\n"
CHUNKED = b"POST /v HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n"

SOCKET = Path("/run/kubelet.sock")


def _message(message: Any) -> bytes:
    content: bytes = message.SerializeToString(deterministic=True)
    return len(content).to_bytes(5, "big") + content


def _run(coroutine: Any) -> Any:
    """The end of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()
    raise AssertionError("it waits")


class CallStream:
    """A grpclib stream whose caller has sent these bytes; what is answered is encoded and lost."""

    def __init__(self, data: bytes, kind: type) -> None:
        self._stream, self._codec, self._recv_type = self, ProtoCodec(), kind
        self._data = data

    async def recv_data(self, count: int) -> bytes:
        piece, self._data = self._data[:count], self._data[count:]
        assert not piece or len(piece) == count, "the client ends within it"
        return piece

    async def send_message(self, message: Any) -> None:
        message.SerializeToString()


async def _grant(shares: Sequence[ShareId]) -> Grant:
    if len(shares) > 2:
        raise Refused("there are two", remedy="Ask for fewer")
    return Grant("rdma/hca", tuple(shares), ("/dev/uverbs0",), (("A", ",".join(shares)),))


async def _chosen(choice: Choice) -> Sequence[ShareId]:
    return choice.available[: max(choice.size, 0)]


async def _started(shares: Sequence[ShareId]) -> None:
    return None


async def _prepared(claim: Any) -> Sequence[PreparedDevice]:
    if claim.name == "bad":
        raise Refused("there is no card", remedy="Create the claim again")
    return (PreparedDevice("n", "mlx5-0", ("nic",), ("kube-rdma.io/nic=a",), None),)


async def _unprepared(claim: Any) -> None:
    await _prepared(claim)


_POOL = PoolService(
    Offer("rdma/hca", ()), PluginHandlers(_grant, _chosen, _started), lambda _: None
)
_CLAIMS = _ClaimService("kube-rdma.io", ClaimHandlers(_prepared, _unprepared))
_DRIVER = PluginRegistration("DRAPlugin", "kube-rdma.io", ("v1.DRAPlugin",), lambda _: None)


def _asked(handler: Callable[[Any], Awaitable[None]], kind: type) -> Reader:
    return lambda data: _run(handler(CallStream(data, kind)))


class _Told(PodResources):
    """A kubelet whose answer to every question is the bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(SOCKET)
        self.data = data

    async def _ask(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        def answering(kind: Any) -> Callable[..., Awaitable[Any]]:
            async def answer(request: object, **_: float) -> Any:
                return ProtoCodec().decode(self.data, kind)

            return answer

        stub = SimpleNamespace(
            List=answering(resources_pb.ListPodResourcesResponse),
            Get=answering(resources_pb.GetPodResourcesResponse),
            GetAllocatableResources=answering(resources_pb.AllocatableResourcesResponse),
        )
        with grpc_calls.judged():
            return await question(stub)


def _runtime(kind: Any, read: Callable[[Any], object]) -> Reader:
    def of(data: bytes) -> None:
        with grpc_calls.judged():
            message = ProtoCodec().decode(data, kind)
        read(message)

    return of


def _sandboxes(answer: Any) -> object:
    return [(one.id, one.metadata.uid, one.state == cri_pb.SANDBOX_READY) for one in answer.items]


def _call(data: bytes) -> None:
    """A call of the shim: the head, the environment, the configuration."""
    head, rest = data[: protocol.REQUEST_HEADER], data[protocol.REQUEST_HEADER :]
    if len(head) < protocol.REQUEST_HEADER or not (announced := protocol.request_head(head)):
        return
    environment = rest[: announced.environment]
    config = rest[announced.environment :][: announced.input]
    protocol.encode(protocol.decode(environment, config, 3), protocol.cni.CniResult())


def _environment(data: bytes) -> None:
    protocol.decode(data, text_of(CONF), 3)


class _Writer:
    """The end of a connection that nobody reads."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes) -> None:
        pass

    async def drain(self) -> None:
        pass


class _Reader:
    """The bytes, and then the end of the connection."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, most: int) -> bytes:
        piece, self._data = self._data[:most], self._data[most:]
        return piece


async def _scrape() -> bytes:
    return b"ok"


_LOOP = asyncio.new_event_loop()
_SERVER = server.HttpServer(
    {"/metrics": _scrape}, "--metrics-address", limits=server.HttpLimits(1, 10.0)
)


def _requests(data: bytes) -> None:
    caller = server.HttpCaller(_Reader(data), _Writer(), 10.0)  # type: ignore[arg-type]
    _LOOP.run_until_complete(_SERVER._exchange(caller))


_CALLS: Mapping[str, tuple[Any, Callable[[Any], Awaitable[None]]]] = {
    "Allocate": (ALLOCATE, _POOL.Allocate),
    "GetPreferredAllocation": (PREFER, _POOL.GetPreferredAllocation),
    "PreStartContainer": (START, _POOL.PreStartContainer),
    "NodePrepareResources": (PREPARE, _CLAIMS.NodePrepareResources),
    "NodeUnprepareResources": (
        dra_pb.NodeUnprepareResourcesRequest(claims=PREPARE.claims),
        _CLAIMS.NodeUnprepareResources,
    ),
    "NotifyRegistrationStatus": (REGISTERED, _DRIVER.NotifyRegistrationStatus),
}
_WIRE = (KubeError, GRPCError)
_ASKED = (KubeError, grpc_calls.CallFailed)

KUBELET = (
    *(
        FuzzTarget(f"call {name}", _asked(handler, type(message)), (_message(message),), _WIRE)
        for name, (message, handler) in _CALLS.items()
    ),
    FuzzTarget(
        "pod resources, list",
        lambda data: _run(_Told(data).all_held()),
        (LIST.SerializeToString(),),
    ),
    FuzzTarget(
        "pod resources of a pod",
        lambda data: _run(_Told(data).holdings_of("b", "a")),
        (GET.SerializeToString(),),
    ),
    FuzzTarget(
        "pod resources, allocatable",
        lambda data: _run(_Told(data).allocatable()),
        (ALLOCATABLE.SerializeToString(),),
    ),
    FuzzTarget(
        "sandboxes of the runtime",
        _runtime(cri_pb.ListPodSandboxResponse, _sandboxes),
        (SANDBOXES.SerializeToString(),),
        _ASKED,
    ),
    FuzzTarget(
        "status of the runtime",
        _runtime(cri_pb.StatusResponse, lambda answer: cri.runtime("x", "1", answer.info)),
        (STATUS.SerializeToString(deterministic=True),),
        _ASKED,
    ),
    FuzzTarget(
        "status of a sandbox",
        _runtime(cri_pb.PodSandboxStatusResponse, lambda answer: cri.netns(answer.info)),
        (SANDBOX.SerializeToString(deterministic=True),),
        _ASKED,
    ),
    FuzzTarget(
        "request of the shim",
        _call,
        (
            protocol._REQUEST.pack(b"krq1", 0, len(ENVIRONMENT), len(text_of(CONF)))
            + ENVIRONMENT
            + text_of(CONF),
        ),
    ),
    FuzzTarget("CNI environment", _environment, (ENVIRONMENT,)),
    FuzzTarget("HTTP requests", _requests, (GET_REQUEST * 2, POST_REQUEST, CHUNKED)),
)
