"""One object that breaks its reader is a fault of its own: every kind that is watched."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from kube_client.calls import RequestTiming
from kube_client.kinds import NOTHING, ObjectCodec, Where
from kube_client.objects import Cluster
from kube_rdma.adapters import bulkhead
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import CONFIG_MAP, DAEMON_SET, FULL_POD
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM, RESOURCE_SLICE
from kube_rdma.ipam import cluster as ipam
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.lib.mirror import Mirror
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.unit.agent.world import until

EAGER = RequestTiming(pause=lambda _: 0.0)
KINDS = (
    *(IP_POOL, ipam.IP_BLOCK, ipam.LEASE, NODE_POLICY, NIC_CLUSTER_POLICY, NODE_REPORT, NODE),
    *(
        FULL_POD,
        DEFINITION,
        RESOURCE_CLAIM,
        RESOURCE_SLICE,
        DAEMON_SET,
        CONFIG_MAP,
        BANDWIDTH_CHECK,
    ),
)


@asynccontextmanager
async def following(kind, read, changed=lambda _old, _new: None):
    """A mirror that follows a kind of which there are the objects good and bad."""
    server = FakeServer([kind])
    for name in ("bad", "good"):
        meta = {"name": name, **({"namespace": "tenant"} if kind.namespaced else {})}
        server.put(kind, {"metadata": meta, kind.content: {"marked": name}})
    mirror = Mirror(kind, read, changed, Where("tenant") if kind.namespaced else Where())
    task = asyncio.create_task(mirror.follow(Cluster(server.line(), EAGER), lambda _: 0.0))
    with recorded() as log:
        await until(mirror.synced.is_set)
        yield mirror, log
    assert not task.done()
    task.cancel()
    await asyncio.wait((task,))


def breaking(data):
    """A codec that raises what it must not."""
    if b"bad" in data:
        raise AttributeError("'str' object has no attribute 'get'")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
async def test_a_codec_that_raises_something_hides_no_other_object(kind):
    """It ended the watch, and the watch the part of the program."""
    before = bulkhead.object_failures[kind.kind]
    kind = kind.read_as(ObjectCodec(breaking), NOTHING)
    async with following(kind, lambda stored: stored.name) as (mirror, log):
        assert mirror.values == {"good": "good"}
        assert "AttributeError: 'str' object" in str(mirror.faults["bad"])
    assert bulkhead.object_failures[kind.kind] == before + 1
    assert len(log.of("object failed")) == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
async def test_a_reader_that_raises_something_hides_no_other_object(kind):
    def read(stored):
        if stored.name == "bad":
            raise RecursionError
        return stored.name

    kind = kind.read_as(NOTHING, NOTHING)
    async with following(kind, read) as (mirror, log):
        assert mirror.values == {"good": "good"}
        assert f"cannot handle this {kind.kind} (RecursionError)" in str(mirror.faults["bad"])
    assert len(log.of("object failed")) == 1


async def test_whoever_hears_of_a_change_and_raises_hears_of_the_next_one():
    heard = []

    def changed(_old, new):
        if new == "bad":
            raise ValueError
        heard.append(new)

    kind = NODE.read_as(NOTHING, NOTHING)
    async with following(kind, lambda stored: stored.name, changed) as (mirror, _):
        assert heard == ["good"]
        assert mirror.values.keys() == {"good", "bad"}
