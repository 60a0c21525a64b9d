"""Clients of an API server, a kind of object to write, and a client without rights.

KUBE_RDMA_TEST_KUBECONFIG names the admin's kubeconfig of a real API server, and
KUBE_RDMA_TEST_POWERLESS that of a user without rights; then the contract runs there (the lab does
that, tests/lab/native/test_api_server.py). Else it runs on the fake.
"""

import asyncio
import os
from contextlib import aclosing, suppress
from pathlib import Path

import msgspec
import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.calls import RequestTiming
from kube_client.errors import Conflict
from kube_client.kinds import EVERYWHERE, NOTHING, ObjectCodec, ObjectKind, Wanted
from kube_client.objects import Cluster
from kube_client.watching import Synced
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma_testing.cluster.server import FakeServer

REAL = os.environ.get("KUBE_RDMA_TEST_KUBECONFIG")
POWERLESS = os.environ.get("KUBE_RDMA_TEST_POWERLESS")
QUICK = RequestTiming(pause=lambda failures: 0.0 if failures < 2 else 0.02)


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    size: int | None = None
    colour: str | None = None


class Status(msgspec.Struct, frozen=True):
    seen: int = 0


TRIAL = ObjectKind(
    "contract.kube-rdma.io",
    "v1",
    "Trial",
    "trials",
    namespaced=False,
    spec=ObjectCodec.of(Spec),
    status=ObjectCodec.of(Status),
)
UNKNOWN = replace(TRIAL, plural="nobodies", kind="Nobody")
CRD = ObjectKind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    spec=ObjectCodec(lambda data: data, lambda data: data),
    status=NOTHING,
)
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
SCHEMA = {
    "group": TRIAL.group,
    "scope": "Cluster",
    "names": {"kind": TRIAL.kind, "plural": TRIAL.plural, "singular": "trial"},
    "versions": [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {"size": NUMBER, "colour": TEXT}},
                        "status": {"type": "object", "properties": {"seen": NUMBER}},
                    },
                }
            },
        }
    ],
}


class Clients:
    """What a contract test gets: a client, another one, and one without rights."""

    def __init__(self, cluster, other, powerless):
        self.cluster = cluster
        self.other = other
        self.powerless = powerless


@pytest.fixture
def server():
    return FakeServer([TRIAL])


@pytest.fixture
async def clients(server):
    """The fake's, or the real one's, where nothing is left of earlier tests."""
    if not REAL:
        weak = FakeServer([TRIAL])
        verbs = ("get", "list", "watch", "create", "patch")
        weak.forbidden = {(verb, what) for verb in verbs for what in ("trials", "events")}
        yield Clients(*(Cluster(s.line(), QUICK) for s in (server, server, weak)))
        return
    async with (
        connect(Path(REAL), pace=QUICK) as cluster,
        connect(Path(REAL), pace=QUICK) as other,
        connect(Path(POWERLESS), pace=QUICK) as powerless,
    ):
        await install(cluster)
        await clear_all(cluster, TRIAL)
        yield Clients(cluster, other, powerless)


@pytest.fixture
async def brisk(server):
    """A client whose watches last for about a second."""
    pace = replace(QUICK, stream=1.0)
    if not REAL:
        yield Cluster(server.line(), pace)
        return
    async with connect(Path(REAL), pace=pace) as cluster:
        yield cluster


async def install(cluster):
    """Install the kind, and wait until the server serves it."""
    with suppress(Conflict):
        await cluster.create(CRD, Wanted("trials.contract.kube-rdma.io", spec=encoded(SCHEMA)))
    async with asyncio.timeout(20):
        while not await serves(cluster):  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.05)


async def serves(cluster):
    try:
        await cluster.list(TRIAL)
    except (Refused, Unavailable):  # not known yet; then known, and its storage is being made
        return False
    return True


async def clear_all(cluster, kind, where=EVERYWHERE):
    """Delete what is there, finalizers or not."""
    for found in await cluster.list(kind, where):
        if found.finalizers:
            await cluster.replace(kind, replace(found, finalizers=()))
        if not found.deleting:
            await cluster.delete(kind, found, unchanged=False)


def encoded(document):
    return msgspec.json.encode(document)


class Told:
    """The events of a watch, read one after the other: `async with Told(cluster) as told`."""

    def __init__(self, cluster, where=EVERYWHERE, kind=TRIAL):
        self._closing = aclosing(cluster.watch(kind, where))

    async def __aenter__(self):
        self._notices = await self._closing.__aenter__()
        return self

    async def __aexit__(self, *why):
        await self._closing.__aexit__(*why)

    async def next(self):
        return await anext(self._notices)

    async def sync(self):
        """What is told up to and with the next Synced."""
        told = []
        while not told or not isinstance(told[-1], Synced):
            told.append(await self.next())
        return told[:-1]
