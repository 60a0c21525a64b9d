"""The webhook beside an API server: what it knows of the cluster, and what it does without."""

import asyncio
import http.client
import json
import ssl
from contextlib import asynccontextmanager

import pytest

from kube_rdma.adapters.cluster.calls import RequestTiming
from kube_rdma.adapters.cluster.ipam_objects import IP_POOL
from kube_rdma.adapters.cluster.objects import Cluster
from kube_rdma.adapters.cluster.policy_watch import NODE_POLICY
from kube_rdma.programs.admission_server import COMPLETE, CONFINED, VALIDATE, AdmissionServer
from kube_rdma_lab.pki import Authority
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.admission import VKE, asking, blocks, pod
from tests.unit.programs.agent.world import until

EAGER = RequestTiming(pause=lambda _: 0.0)
HOST = "127.0.0.1"
EXCLUSIVE = {"pools": [{"resource": VKE, "mode": "exclusive"}], "nodeSelector": {"pool": "a"}}
VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com"}}
POD = pod(asking(), annotations=blocks("rdma", "rdma"), nodeSelector={"pool": "a"}, volumes=[VEPFS])


class World:
    """An API server, the webhook, and a client that trusts its certificate."""

    def __init__(self, folder):
        authority = Authority("webhook")
        authority.issue(HOST, hosts=(HOST,)).write(folder, "tls")
        self._context = ssl.create_default_context(cadata=authority.certificate.decode())
        self.server = FakeServer([NODE_POLICY, IP_POOL])
        cluster = Cluster(self.server.line(), EAGER)
        self.webhook = AdmissionServer(cluster, folder, pause=lambda _: 0.0)

    def put(self, kind, name, spec):
        self.server.put(kind, {"metadata": {"name": name}, "spec": spec})

    async def ask(self, path, manifest):
        """The response to a request about a new pod."""
        kind = {"group": "", "version": "v1", "kind": "Pod"}
        request = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "team"}
        body = json.dumps({"request": {**request, "object": manifest}})
        return await asyncio.to_thread(self._ask, path, body)

    def _ask(self, path, body):
        port = self.webhook.server.port
        connection = http.client.HTTPSConnection(HOST, port, context=self._context, timeout=60)
        try:
            connection.request("POST", path, body)
            return json.loads(connection.getresponse().read())["response"]
        finally:
            connection.close()


@asynccontextmanager
async def running(world):
    task = asyncio.create_task(world.webhook.run(HOST, 0))
    try:
        await until(lambda: world.webhook.facts.ip_pools is not None)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_policies_of_the_cluster_count_as_soon_as_they_are_seen(world):
    """The pod's selector is that of the policy, whose mode then is the pod's."""
    async with running(world):
        assert (await world.ask(VALIDATE, POD))["allowed"]
        world.put(NODE_POLICY, "a", EXCLUSIVE)
        await until(lambda: world.webhook.facts.pools)
        answer = await world.ask(VALIDATE, POD)
        assert not answer["allowed"]
        assert "vePFS" in answer["status"]["message"]


async def test_a_pool_of_addresses_ends_the_warning(world):
    manifest = pod(asking(), annotations=blocks("rdma", "rdma"))
    async with running(world):
        warnings = (await world.ask(VALIDATE, manifest))["warnings"]
        assert all("would have no address" in one for one in warnings)
        world.put(IP_POOL, "rdma", {"ranges": [{"subnet": "10.0.0.0/24"}]})
        await until(lambda: world.webhook.facts.ip_pools)
        assert "warnings" not in await world.ask(VALIDATE, manifest)


async def test_what_is_completed_depends_on_the_path(world):
    async with running(world):
        answer = await world.ask(COMPLETE, pod(asking("rdma/a", 1)))
        assert answer["patchType"] == "JSONPatch"
        assert "patch" not in await world.ask(CONFINED, pod(asking("rdma/a", 1)))
