"""The keeper at an API server, with real certificates and a clock of the test's own.

At every moment what a copy shows is verified by both configurations, as an API server does it.
"""

import asyncio
import base64
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from kube_base.errors import KubeError
from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.admission import WEBHOOK_CONFIGURATIONS, WEBHOOK_SECRET
from kube_rdma.adapters.pki import certificates
from kube_rdma.adapters.pki.certificates import MadePair
from kube_rdma.model.admission.certificate import CertificateTimes
from kube_rdma.programs.admission.certificate_keeper import CertificateKeeper, CertificateTools
from kube_rdma.rules.install.webhook import NAME, OWN_SECRET, SERVICE
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.certificates import verified
from tests.unit.programs.agent.world import until

NAMESPACE = "kube-rdma"
HOST = f"{SERVICE}.{NAMESPACE}.svc"
TIMES = CertificateTimes(authority=timedelta(days=30), server=timedelta(days=9))
SERVED = {"service": {"name": SERVICE, "namespace": NAMESPACE}}


class Told:
    """Where Events go."""

    def __init__(self):
        self.listed = []

    def tell(self, about, reason, note, *, warning=False):
        assert (about.kind, about.name, about.namespace) == ("Secret", OWN_SECRET, NAMESPACE)
        assert warning is (reason == "CertificateRepaired")
        self.listed.append((reason, note))


class KeeperWorld:
    """A cluster with both configurations, as Helm has installed them."""

    def __init__(self):
        self.server = FakeServer([WEBHOOK_SECRET, *WEBHOOK_CONFIGURATIONS])
        self.line = self.server.line()
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.events = Told()
        tools = CertificateTools(
            now=lambda: self.now, times=TIMES, apart=0.0, again=0.0, pause=lambda _: 0.0
        )
        cluster = Cluster(self.line, RequestTiming(pause=lambda _: 0.0))
        self.keeper = CertificateKeeper(cluster, self.events, NAMESPACE, tools)
        for kind, names in zip(WEBHOOK_CONFIGURATIONS, ((NAME,), (NAME, "confined")), strict=True):
            entries = [{"name": name, "clientConfig": SERVED} for name in names]
            self.server.put(kind, {"metadata": {"name": NAME}, "webhooks": entries})

    @property
    def secret(self):
        """The Secret's data, nothing where it is missing."""
        documents = self.server.documents("secrets")
        texts = documents[0]["data"] if documents else {}
        return {name: base64.b64decode(text) for name, text in texts.items()}

    def put(self, data):
        texts = {name: base64.b64encode(value).decode() for name, value in data.items()}
        meta = {"name": OWN_SECRET, "namespace": NAMESPACE}
        self.server.put(WEBHOOK_SECRET, {"metadata": meta, "data": texts})

    def lose(self):
        self.server.remove(WEBHOOK_SECRET, OWN_SECRET, NAMESPACE)

    def entries(self):
        return [
            entry["clientConfig"]
            for kind in WEBHOOK_CONFIGURATIONS
            for document in self.server.documents(kind.plural)
            for entry in document["webhooks"]
        ]

    def trusted(self, certificate):
        """Whether every entry's bundle verifies a certificate now."""
        bundles = [base64.b64decode(entry.get("caBundle", "")) for entry in self.entries()]
        assert len(bundles) == 3
        return all(verified(certificate, one, HOST, self.now) for one in bundles)

    @property
    def writes(self):
        return [str(r) for r in self.line.requests if r.verb not in ("get", "list", "watch")]

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.keeper.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def world():
    return KeeperWorld()


async def test_a_new_installation_has_a_certificate_that_is_trusted(world):
    until_then = await world.keeper.look()
    assert world.trusted(world.secret["tls.crt"])
    assert world.now < until_then < world.now + TIMES.server
    assert all(entry["service"] == SERVED["service"] for entry in world.entries())
    (document,) = world.server.documents("secrets")
    (owner,) = document["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("ValidatingWebhookConfiguration", NAME)
    assert [reason for reason, _ in world.events.listed] == ["CertificateMade"] * 2


async def test_an_unchanged_cluster_is_written_to_never(world):
    await world.keeper.look()
    before = world.writes
    await world.keeper.look()
    assert world.writes == before


async def test_without_a_configuration_nothing_is_made(world):
    for kind in WEBHOOK_CONFIGURATIONS:
        world.server.remove(kind, NAME)
    assert await world.keeper.look() is None
    assert world.secret == {}


async def test_another_installation_s_webhook_is_left_alone(world):
    """Two quarrel about no bundle: a configuration is theirs whose service is asked."""
    for kind in WEBHOOK_CONFIGURATIONS:
        other = {"service": {"name": SERVICE, "namespace": "elsewhere"}, "caBundle": "QUJD"}
        entries = [{"name": NAME, "clientConfig": other}]
        world.server.put(kind, {"metadata": {"name": NAME}, "webhooks": entries})
    assert await world.keeper.look() is None
    assert world.writes == []


async def test_certificates_follow_each_other_and_no_copy_is_ever_mistrusted(world):
    """A year in steps of a day; a copy that follows a day late included."""
    await world.keeper.look()
    shown, servers, authorities = world.secret["tls.crt"], set(), set()
    for _ in range(365):
        world.now += timedelta(days=1)
        assert world.trusted(shown)
        shown = world.secret["tls.crt"]
        await world.keeper.look()
        assert world.trusted(shown)
        assert world.trusted(world.secret["tls.crt"])
        servers.add(world.secret["tls.crt"])
        authorities.add(world.secret["ca.key"])
        assert world.secret["ca.crt"].count(b"BEGIN") <= 2
    assert len(servers) >= 365 // 9
    assert len(authorities) >= 365 // 30
    assert {reason for reason, _ in world.events.listed} == {"CertificateMade"}


async def test_a_leader_that_ends_between_two_writes_leaves_a_copy_trusted(world):
    """Each request to the API server is the last one of a leader."""
    await world.keeper.look()
    shown = world.secret["tls.crt"]
    for _ in range(3):
        world.lose()
        for allowed in range(12):
            await cut_after(world, allowed)
            assert world.trusted(shown)
            if "tls.crt" in world.secret:
                assert world.trusted(world.secret["tls.crt"])
        await world.keeper.look()
        shown = world.secret["tls.crt"]


async def cut_after(world, count):
    """A look whose leader is cut off from the API server after so many of its requests."""
    task = asyncio.create_task(world.keeper.look())
    begun = len(world.line.requests)
    await until(lambda: task.done() or len(world.line.requests) >= begun + count)
    world.line.cut()
    await asyncio.gather(task, return_exceptions=True)
    world.line.mend()


def expired(world):
    signer = MadePair(world.secret["ca.crt"], world.secret["ca.key"])
    begins, ends = world.now - timedelta(days=2), world.now - timedelta(days=1)
    made = certificates.new_server(certificates.new_key, signer, HOST, begins, ends)
    return {"tls.crt": made.certificate, "tls.key": made.key}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda _: {"tls.crt": b"nonsense"}, "are not a pair"),
        (lambda _: {"ca.crt": b"nonsense"}, "ca.crt of the Secret holds no certificates"),
        (lambda _: {"ca.key": b"nonsense"}, "ca.key of the Secret holds no key"),
        (expired, "the former was valid from"),
    ],
)
async def test_what_is_broken_is_replaced_and_said(world, changes, words):
    await world.keeper.look()
    shown = world.secret["tls.crt"]
    world.put(world.secret | changes(world))
    await world.keeper.look()
    assert world.trusted(shown)
    assert world.trusted(world.secret["tls.crt"])
    reason, note = next(one for one in world.events.listed if words in one[1])
    assert reason == "CertificateRepaired"
    assert note.startswith("kube-rdma made a new ")
    assert note.endswith(".")


async def test_a_bundle_that_somebody_else_wrote_is_put_right(world):
    await world.keeper.look()
    entries = [{"name": NAME, "clientConfig": {**SERVED, "caBundle": "QUJD"}}]
    world.server.put(WEBHOOK_CONFIGURATIONS[0], {"metadata": {"name": NAME}, "webhooks": entries})
    assert not world.trusted(world.secret["tls.crt"])
    await world.keeper.look()
    assert world.trusted(world.secret["tls.crt"])


async def test_a_right_that_is_missing_is_an_error_with_its_rule(world):
    world.server.forbidden.add(("patch", "secrets"))
    with pytest.raises(KubeError, match=r'resources: \["secrets"\]'):
        await world.keeper.look()


async def test_every_change_wakes_it(world):
    async with world.running():
        await until(lambda: "tls.crt" in world.secret)
        former = world.secret["tls.crt"]
        world.lose()
        await until(lambda: world.secret.get("tls.crt", former) != former)
        assert former != world.secret["tls.crt"]
        assert world.trusted(world.secret["tls.crt"])
        assert world.trusted(former)
