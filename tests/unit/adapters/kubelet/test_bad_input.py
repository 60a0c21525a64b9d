"""What no kubelet sends: the server lives on, others are served, each cause is logged once."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from grpclib import GRPCError, Status
from grpclib.client import Channel
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server

from kube_rdma.adapters.kubelet.proto.deviceplugin_v1beta1_grpc import DevicePluginStub
from kube_rdma.adapters.kubelet.rpc import LONGEST
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.adapters.kubelet.conftest import make_offer, running

HCA = "rdma/hca"
SOCKET = "kube-rdma-rdma_hca.sock"
ALLOCATE = "/v1beta1.DevicePlugin/Allocate"


class Claim(bytes):
    """A message that is said to be longer than it is."""

    def __len__(self):
        return LONGEST + 1


class Bytes(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message, message_type):
        return message

    def decode(self, data, message_type):
        return data


async def send(path, method, *messages):
    """Call a method with raw messages; what the server sent, or GRPCError."""
    channel = Channel(path=str(path), codec=Bytes())
    try:
        call = channel.request(method, Cardinality.STREAM_STREAM, bytes, bytes, timeout=20)
        async with call as stream:
            await stream.send_request()
            for message in messages:
                await stream.send_message(message)
            await stream.end()
            return [answer async for answer in stream]
    finally:
        channel.close()


@pytest.fixture
async def plugin(directory, recording, caplog):
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer(3)):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 3)
        yield directory / SOCKET
        response = await kubelet.allocate(HCA, 1)
        assert response.devices
        assert kubelet.registrations == [HCA]
    assert not [r for r in caplog.records if r.exc_info and r.levelno > logging.DEBUG]


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ((b"\xff\xff\xff",), Status.INVALID_ARGUMENT),
        ((b"\x0a\x05\x0a\x03\xff\xfe\xfd",), Status.INVALID_ARGUMENT),  # an id that is not UTF-8
        ((), Status.INVALID_ARGUMENT),
        ((Claim(b"x"),), Status.RESOURCE_EXHAUSTED),
    ],
)
async def test_requests_that_are_none(plugin, recording, messages, status):
    for _ in range(3):
        with pytest.raises(GRPCError) as caught:
            await send(plugin, ALLOCATE, *messages)
        assert caught.value.status is status
    assert len(recording.of("kubelet call not understood")) == 1


async def test_every_call_reads_its_request_with_care(plugin, recording):
    methods = list(vars(DevicePluginStub(Channel(path=str(plugin)))).values())
    assert len(methods) == 5
    for method in methods:
        with pytest.raises(GRPCError) as caught:
            await send(plugin, method.name, b"\xff\xff\xff")
        assert caught.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize("method", ["/v1beta1.DevicePlugin/Give", "/v1.Node/Allocate", "/"])
async def test_methods_that_there_are_not(plugin, method):
    with pytest.raises(GRPCError):
        await send(plugin, method, b"")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 100_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000,
        b"",
    ],
)
async def test_bytes_that_are_no_http2(plugin, data):
    reader, writer = await asyncio.open_unix_connection(str(plugin))
    writer.write(data)
    writer.write_eof()
    while await reader.read(65536):
        pass
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def raw_server(path, data):
    async def answer(reader, writer):
        await reader.read(65536)
        writer.write(data)
        writer.close()

    server = await asyncio.start_unix_server(answer, str(path))
    yield
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 1000])
async def test_a_kubelet_that_speaks_something_else(directory, data, recording):
    async with raw_server(directory / "kubelet.sock", data), running(directory, make_offer(3)):
        await recording.wait_for("registration failed, trying again")
        assert recording.of("registration failed, trying again")[0]["reason"]
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer(3)):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 3)


async def test_a_kubelet_whose_answer_is_none(directory, recording):
    class Liar:
        def __mapping__(self):
            handler = Handler(self.register, Cardinality.UNARY_UNARY, bytes, bytes)
            return {"/v1beta1.Registration/Register": handler}

        async def register(self, stream):
            await stream.recv_message()
            await stream.send_message(b"\xff\xff\xff")

    server = Server([Liar()], codec=Bytes())
    await server.start(path=str(directory / "kubelet.sock"))
    async with running(directory, make_offer(3)):
        await recording.wait_for("registration failed, trying again")
    server.close()
    await server.wait_closed()
    assert recording.lines[0]["reason"] == "the answer cannot be read"


async def test_another_version_is_refused_with_a_reason(directory):
    async with FakeKubelet(directory) as kubelet:
        with pytest.raises(RuntimeError, match="not supported"):
            await kubelet.connect(HCA, directory / "x", ["v1"])
