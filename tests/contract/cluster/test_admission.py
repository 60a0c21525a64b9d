"""What asks a former webhook, at an API server: read, and deleted where it is kube-rdma's."""

import uuid

import msgspec
import pytest

from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.controller.retirement import WEBHOOK_CONFIGURATIONS, retire_webhook


@pytest.fixture(autouse=True)
def kinds(server):
    for kind in WEBHOOK_CONFIGURATIONS:
        server.add(kind)


async def test_configurations_that_ask_this_service_are_deleted(clients):
    fullname = f"contract-{uuid.uuid4().hex[:8]}"
    name = f"{fullname}.pods.kube-rdma.io"
    service = {"namespace": "contract", "name": f"{fullname}-admission"}
    entry = {
        "name": "a.contract.kube-rdma.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "clientConfig": {"service": service},
    }
    for kind in WEBHOOK_CONFIGURATIONS:
        head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
        request = wire.ApiRequest("create", kind.group, kind.version, kind.plural)
        body = msgspec.json.encode(head | {"webhooks": [entry]})
        await clients.other.write(replace(request, body=body))
    await retire_webhook(clients.cluster, "elsewhere", fullname)
    for kind in WEBHOOK_CONFIGURATIONS:
        assert await clients.cluster.get(kind, name)
    await retire_webhook(clients.cluster, "contract", fullname)
    for kind in WEBHOOK_CONFIGURATIONS:
        assert await clients.cluster.get(kind, name) is None
