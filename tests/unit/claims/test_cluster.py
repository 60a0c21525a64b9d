"""Claims and their pods as the API server has them, and what is made of them."""

from __future__ import annotations

from kube_base.frozen import replace
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.kinds.resource_slice import RESOURCE_CLAIM
from kube_rdma.claims.cluster import allocated, claims_of_pod, write_statuses
from kube_rdma.model.claims.claim import (
    AllocatedClaim,
    AllocatedDevice,
    ClaimName,
    ClaimUse,
    ClaimUser,
    DeviceCondition,
    DeviceStatus,
    PodClaims,
)
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.late_binding import PodName
from kube_rdma_testing.cluster.server import FakeServer

RESULT = {"request": "nic", "driver": DRIVER, "pool": "node-1", "device": "0000-81-00-0"}


def claim(*results, **status):
    allocation = {"devices": {"results": list(results), "config": []}}
    return {
        "metadata": {"name": "c", "namespace": "team"},
        "spec": {"devices": {}},
        "status": {"allocation": allocation, **status} if results else {},
    }


def uid(server, plural):
    """The uid that the server gave to the only object of a resource."""
    (stored,) = server.documents(plural)
    return stored["metadata"]["uid"]


async def read(document):
    """What is read of a claim, and its uid, which is not the one that was asked for."""
    server = FakeServer([RESOURCE_CLAIM])
    server.put(RESOURCE_CLAIM, document)
    asked = ClaimName("team", "c", "uid-asked")
    return await allocated(Cluster(server.line()), asked), uid(server, "resourceclaims")


async def test_a_claim_is_read_with_all_that_the_scheduler_gave():
    shared = {
        **RESULT,
        "request": "nics/fast",
        "shareID": "0c5f",
        "consumedCapacity": {"slots": "2", "bandwidth": "100G"},
        "tolerations": [{"operator": "Exists"}],
    }
    admin = {**RESULT, "adminAccess": True, "consumedCapacity": {f"{DRIVER}/slots": "1k"}}
    users = [{"resource": "pods", "name": "job-0", "uid": "uid-job"}]
    now, is_now = await read(claim(RESULT, shared, admin, reservedFor=users))
    assert now == AllocatedClaim(
        ClaimName("team", "c", is_now),
        (
            AllocatedDevice("nic", DRIVER, "node-1", "0000-81-00-0"),
            AllocatedDevice(
                "nics/fast", DRIVER, "node-1", "0000-81-00-0", "0c5f", 2, tolerant=True
            ),
            AllocatedDevice("nic", DRIVER, "node-1", "0000-81-00-0", slots=1000, admin=True),
        ),
        (ClaimUser("pods", "job-0", "uid-job"),),
    )


async def test_a_claim_that_waits_has_no_device_and_one_that_is_gone_is_none():
    waiting, _ = await read(claim())
    assert waiting.devices == ()
    cluster = Cluster(FakeServer([RESOURCE_CLAIM]).line())
    assert await allocated(cluster, ClaimName("team", "c", "uid-c")) is None


async def test_a_pod_names_claims_in_three_places():
    """Its spec, its status for those of templates, and that of its extended resources."""
    server = FakeServer([POD])
    spec = {
        "nodeName": "node-1",
        "resourceClaims": [
            {"name": "own", "resourceClaimName": "team-nic"},
            {"name": "made", "resourceClaimTemplateName": "nic"},
            {"name": "late", "resourceClaimTemplateName": "nic"},
        ],
        "initContainers": [{"name": "i", "resources": {"claims": [{"name": "own"}]}}],
        "containers": [
            {"name": "a", "resources": {"claims": [{"name": "made", "request": "left"}]}},
            {"name": "b", "resources": {"limits": {"rdma/hca": "1"}}},
        ],
    }
    mapping = {"containerName": "b", "resourceName": "rdma/hca", "requestName": "r-0"}
    status = {
        "resourceClaimStatuses": [
            {"name": "made", "resourceClaimName": "job-0-made-x7"},
            {"name": "late"},
        ],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "job-0-extended-f3",
            "requestMappings": [mapping],
        },
    }
    meta = {"name": "job-0", "namespace": "team"}
    server.put(POD, {"metadata": meta, "spec": spec, "status": status})
    cluster = Cluster(server.line())
    assert await claims_of_pod(cluster, PodName("team", "job-0")) == PodClaims(
        "team",
        "job-0",
        uid(server, "pods"),
        (
            ("own", "team-nic"),
            ("made", "job-0-made-x7"),
            ("job-0-extended-f3", "job-0-extended-f3"),
        ),
        (
            ClaimUse("i", "own"),
            ClaimUse("a", "made", "left"),
            ClaimUse("b", "job-0-extended-f3", "r-0"),
        ),
        ("made", "late"),
    )
    assert await claims_of_pod(cluster, PodName("team", "gone")) is None


async def test_the_status_of_a_claim_has_an_entry_for_each_device():
    """Beside those of other drivers, which stay."""
    server = FakeServer([RESOURCE_CLAIM])
    server.put(RESOURCE_CLAIM, claim(RESULT))
    holds = DeviceCondition("NetworkReady", holds=True, reason="Attached", message="net1 is up.")
    status = DeviceStatus(
        "node-1", "0000-81-00-0", "0c5f", (holds,), "net1", ("10.9.0.4/24",), "02:00:00:00:00:01"
    )
    bare = DeviceStatus("node-1", "0000-a1-00-0", None, (replace(holds, holds=False),))
    name = ClaimName("team", "c", "uid-c")
    now = "2026-11-26T04:30:00Z"
    await write_statuses(Cluster(server.line()), name, [status, bare], now)
    (stored,) = server.documents("resourceclaims")
    condition = {
        "type": "NetworkReady",
        "status": "True",
        "reason": "Attached",
        "message": "net1 is up.",
        "lastTransitionTime": now,
    }
    assert stored["status"]["devices"] == [
        {
            "driver": DRIVER,
            "pool": "node-1",
            "device": "0000-81-00-0",
            "shareID": "0c5f",
            "conditions": [condition],
            "networkData": {
                "interfaceName": "net1",
                "ips": ["10.9.0.4/24"],
                "hardwareAddress": "02:00:00:00:00:01",
            },
        },
        {
            "driver": DRIVER,
            "pool": "node-1",
            "device": "0000-a1-00-0",
            "conditions": [condition | {"status": "False"}],
        },
    ]
    assert stored["status"]["allocation"], "what the scheduler wrote stays"
