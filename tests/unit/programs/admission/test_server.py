"""The webhook beside an API server: what it knows of the cluster, and what it does without."""

import asyncio
import base64
import http.client
import json
import socket
import ssl
from contextlib import asynccontextmanager

import pytest

from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.admission import WEBHOOK_SECRET
from kube_rdma.adapters.cluster.kinds.ip_pool import IP_POOL
from kube_rdma.adapters.cluster.kinds.network_definition import DEFINITION, RESOURCE
from kube_rdma.adapters.cluster.kinds.node_policy import NODE_POLICY
from kube_rdma.programs.admission.server import (
    COMPLETE,
    CONFINED,
    VALIDATE,
    AdmissionServer,
    SecretPlace,
)
from kube_rdma_lab.pki import Authority
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.admission import VKE, asking, blocks, pod
from tests.unit.programs.agent.world import until

EAGER = RequestTiming(pause=lambda _: 0.0)
HOST = "127.0.0.1"
EXCLUSIVE = {"pools": [{"resource": VKE, "mode": "exclusive"}], "nodeSelector": {"pool": "a"}}
VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com"}}
POD = pod(asking(), annotations=blocks("rdma", "rdma"), nodeSelector={"pool": "a"}, volumes=[VEPFS])


PLACE = SecretPlace("kube-rdma", "keys")


class World:
    """An API server, the webhook, and a client that trusts its certificate."""

    def __init__(self, source):
        self.authority = Authority("webhook")
        if source != PLACE:
            self.authority.issue(HOST, hosts=(HOST,)).write(source, "tls")
        self._context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        self.server = FakeServer([NODE_POLICY, IP_POOL, DEFINITION, WEBHOOK_SECRET])
        cluster = Cluster(self.server.line(), EAGER)
        self.webhook = AdmissionServer(cluster, source, pause=lambda _: 0.0)

    def put_secret(self, certificate, key):
        texts = {"tls.crt": certificate, "tls.key": key}
        data = {name: base64.b64encode(text).decode() for name, text in texts.items()}
        meta = {"name": PLACE.name, "namespace": PLACE.namespace}
        self.server.put(WEBHOOK_SECRET, {"metadata": meta, "data": data})

    def issue(self):
        """Somebody puts a new pair into the Secret; its certificate as TLS has it."""
        pair = self.authority.issue(HOST, hosts=(HOST,))
        self.put_secret(pair.certificate, pair.key)
        return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())

    def shown(self):
        """The certificate that a new connection is shown."""
        port = self.webhook.server.port
        with (
            socket.create_connection((HOST, port)) as plain,
            self._context.wrap_socket(plain, server_hostname=HOST) as secured,
        ):
            return secured.getpeercert(binary_form=True)

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


async def test_what_policies_and_networks_of_the_cluster_name_is_a_share(world):
    """Whatever its prefix; only a pool of kube-rdma's own completes its pods."""
    manifest = pod(asking("intel.com/a", 1), asking("vke.volcengine.com/mgpu-core", 1))
    async with running(world):
        assert (await world.ask(VALIDATE, manifest))["allowed"]
        meta = {"name": "n", "namespace": "team", "annotations": {RESOURCE: "intel.com/a"}}
        world.server.put(DEFINITION, {"metadata": meta, "spec": {"config": "{}"}})
        await until(lambda: world.webhook.facts.resources)
        assert not (await world.ask(VALIDATE, manifest))["allowed"]
        near = pod(asking("intel.con/a", 1))
        assert "Did you mean intel.com/a?" in (await world.ask(VALIDATE, near))["warnings"][0]
        assert "patch" not in await world.ask(COMPLETE, manifest)
        world.put(NODE_POLICY, "a", {"pools": [{"resource": "intel.com/a", "mode": "shared"}]})
        await until(lambda: world.webhook.facts.pools)
        assert "patch" in await world.ask(COMPLETE, manifest)


async def test_a_certificate_of_a_secret_is_exchanged_without_a_restart():
    """Whoever asks is answered still when it is gone, or is nonsense."""
    world = World(PLACE)
    world.put_secret(b"nonsense", b"nonsense")
    async with running(world):
        first = world.issue()
        await until(lambda: world.webhook.taken)
        assert await asyncio.to_thread(world.shown) == first
        second = world.issue()
        assert second != first
        await until(lambda: world.webhook.taken == 2)
        assert await asyncio.to_thread(world.shown) == second
        world.put_secret(b"nonsense", b"nonsense")
        world.server.remove(WEBHOOK_SECRET, PLACE.name, PLACE.namespace)
        world.put(NODE_POLICY, "a", EXCLUSIVE)
        await until(lambda: world.webhook.facts.pools)
        assert await asyncio.to_thread(world.shown) == second
        assert not (await world.ask(VALIDATE, POD))["allowed"]


async def test_a_copy_without_a_certificate_holds_nobody_up():
    """It listens, for a rollout waits for that; whoever asks is refused in the handshake."""
    world = World(PLACE)
    async with running(world):
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(world.shown)
        made = world.issue()
        await until(lambda: world.webhook.taken)
        assert await asyncio.to_thread(world.shown) == made
