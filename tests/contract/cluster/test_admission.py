"""What the webhook's certificate needs of an API server: entries and keys with their owners."""

import base64
import uuid
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.adapters.cluster import admission
from kube_rdma.adapters.cluster.admission import WEBHOOK_CONFIGURATIONS, WEBHOOK_SECRET
from kube_rdma.adapters.pki import certificates

# An API server takes certificates alone.
NOW = datetime(2030, 1, 1, tzinfo=UTC)
PEM = certificates.new_authority(certificates.new_key, NOW, NOW + timedelta(days=1)).certificate
OTHERS = certificates.new_authority(certificates.new_key, NOW, NOW + timedelta(days=1)).certificate
KIND = WEBHOOK_CONFIGURATIONS[0]
SERVICE = {"namespace": "contract", "name": "nobody"}
NAMES = ("a.contract.kube-rdma.io", "b.contract.kube-rdma.io")


@pytest.fixture(autouse=True)
def kinds(server):
    for kind in (KIND, WEBHOOK_SECRET):
        server.add(kind)


@pytest.fixture
async def name(door):
    """A configuration that asks about nothing, as somebody else has written it."""
    name = f"contract-{uuid.uuid4().hex[:8]}"
    entries = [
        {
            "name": entry,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "clientConfig": {"service": SERVICE, "caBundle": base64.b64encode(OTHERS).decode()},
        }
        for entry in NAMES
    ]
    document = {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {"name": name},
        "webhooks": entries,
    }
    request = wire.ApiRequest("create", KIND.group, KIND.version, KIND.plural)
    await door.other.write(replace(request, body=msgspec.json.encode(document)))
    yield name
    await door.cluster.delete(KIND, await door.cluster.get(KIND, name), unchanged=False)


async def test_the_authorities_of_every_entry_are_taken_and_nothing_else(door, name):
    stored = await door.cluster.get(KIND, name)
    assert admission.asks(stored, "contract", "nobody")
    assert not admission.asks(stored, "elsewhere", "nobody")
    assert admission.bundles_of(stored) == (OTHERS,)
    await admission.trust(door.cluster, KIND, stored, PEM)
    after = await door.cluster.get(KIND, name)
    assert admission.bundles_of(after) == (PEM,)
    assert [entry.name for entry in after.spec] == [*NAMES]
    assert admission.asks(after, "contract", "nobody")
    await admission.trust(door.cluster, KIND, after, PEM)
    assert (await door.cluster.get(KIND, name)).version == after.version


async def test_a_secret_is_made_and_loses_what_is_no_longer_said(door, name):
    owner = KIND, await door.cluster.get(KIND, name)
    where = "default", name
    await admission.keep(door.cluster, where, {"a": b"1", "b": b"2"}, owner)
    await admission.keep(door.cluster, where, {"a": b"3"}, owner)
    stored = await door.cluster.get(WEBHOOK_SECRET, name, "default")
    assert stored.spec == {"a": b"3"}
    assert [one.uid for one in stored.owners] == [owner[1].uid]
    await door.cluster.delete(WEBHOOK_SECRET, stored, unchanged=False)
