"""gRPC servers of fakes: what was accepted when they end is closed, not left to the collector."""

import asyncio
import gc
import socket

import pytest

from kube_rdma_testing.kubelet.kubelet import FakeKubelet


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_comes_as_the_kubelet_stops_is_closed(tmp_path, turns):
    """At each turn of the loop between the connection and its first byte."""
    kubelet = FakeKubelet(tmp_path)
    await kubelet.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "kubelet.sock"))
        for _ in range(turns):
            await asyncio.sleep(0)
        await kubelet.stop()
    for _ in range(3):  # the end of the client's connection is read
        await asyncio.sleep(0)
    gc.collect()
