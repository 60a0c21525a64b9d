"""Pools to offer, a plugin that runs for the length of a test, and what it logged."""

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin
from kube_rdma.model.pool import Mode, Pool, PoolSpec, Share
from kube_rdma.programs.agent.logs import recorded
from kube_rdma.rules.allocation import allocate

PATHS = ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")


def make_pool(count=1000, healthy=True, resource="rdma/hca", **changes):
    shares = tuple(Share(f"hca-{n}", healthy) for n in range(count))
    pool = Pool(PoolSpec(Mode.HCA, "c:1:1"), resource, shares, ("rxe0",), PATHS)
    return replace(pool, **changes)


@asynccontextmanager
async def running(directory, pool):
    """A plugin for `pool` that serves in the background; it is stopped as SIGTERM stops it."""
    plugin = DevicePlugin(directory, pool, allocate)
    task = asyncio.create_task(plugin.run())
    try:
        yield plugin
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def directory(tmp_path_factory):
    """Not tmp_path: with the name of the test in it no socket would fit (107 characters)."""
    return tmp_path_factory.mktemp("k")


@pytest.fixture
def recording():
    with recorded() as found:
        yield found
