"""Claims, their pods and slices at the API server, read and written."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client import wire
from kube_client.errors import Conflict
from kube_client.kinds import NOTHING, ObjectCodec
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import whole
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.kinds.resource_api import (
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    WITHOUT,
    changed_slice,
    resource_claim,
    resource_slice,
    wanted_slice,
)
from kube_rdma.claims.cluster import allocated, claims_of_pod, node_slices, write_statuses
from kube_rdma.model.claims import devices
from kube_rdma.model.claims.claim import (
    AllocationResult,
    ClaimName,
    ClaimUse,
    ClaimUser,
    ConfigOrigin,
    DeviceCondition,
    DeviceStatus,
    OpaqueConfig,
    PodClaims,
    ResourceClaim,
)
from kube_rdma.model.kubernetes import Toleration, moment, quantity_text
from kube_rdma.model.late_binding import PodName
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.claim_worlds import world
from tests.kit.claims import attributes, slice_of

RESULT = {"request": "nic", "driver": devices.DRIVER, "pool": "node-1", "device": "0000-81-00-0"}


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
    admin = {**RESULT, "adminAccess": True, "consumedCapacity": {f"{devices.DRIVER}/slots": "1k"}}
    users = [{"resource": "pods", "name": "job-0", "uid": "uid-job"}]
    now, is_now = await read(claim(RESULT, shared, admin, reservedFor=users))
    assert now == ResourceClaim(
        ClaimName("team", "c", is_now),
        allocated=(
            AllocationResult("nic", devices.DRIVER, "node-1", "0000-81-00-0"),
            AllocationResult(
                "nics/fast",
                devices.DRIVER,
                "node-1",
                "0000-81-00-0",
                "0c5f",
                capacity={"slots": Fraction(2), "bandwidth": Fraction(10**11)},
                tolerations=(Toleration(operator="Exists"),),
            ),
            AllocationResult(
                "nic",
                devices.DRIVER,
                "node-1",
                "0000-81-00-0",
                admin=True,
                capacity={f"{devices.DRIVER}/slots": Fraction(1000)},
            ),
        ),
        users=(ClaimUser("pods", "job-0", "uid-job"),),
    )
    assert [one.slots for one in now.devices] == [None, 2, 1000]


def test_whatever_the_api_server_takes_is_read():
    """Slices with node selectors, counters and policies of every kind, and claims on them."""
    for number in range(50):
        made = world(number)
        for document in made["slices"]:
            part = resource_slice(wire.stored(RESOURCE_SLICE, msgspec.json.encode(document)))
            assert len(part.spec.devices) == len(document["spec"].get("devices", ()))
        for document in (made["claim"], *made["claims"]):
            stored = wire.stored(RESOURCE_CLAIM, msgspec.json.encode(document))
            claim = resource_claim(stored)
            assert claim.requests or claim.devices


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
        ("rdma/hca",),
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
    before = moment(datetime.now(UTC))
    await write_statuses(Cluster(server.line()), name, [status, bare])
    (stored,) = server.documents("resourceclaims")
    now = stored["status"]["devices"][0]["conditions"][0]["lastTransitionTime"]
    assert before <= now <= moment(datetime.now(UTC))
    condition = {
        "type": "NetworkReady",
        "status": "True",
        "reason": "Attached",
        "message": "net1 is up.",
        "lastTransitionTime": now,
    }
    assert stored["status"]["devices"] == [
        {
            "driver": devices.DRIVER,
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
            "driver": devices.DRIVER,
            "pool": "node-1",
            "device": "0000-a1-00-0",
            "conditions": [condition | {"status": "False"}],
        },
    ]
    assert stored["status"]["allocation"], "what the scheduler wrote stays"


async def configs(*entries):
    server = FakeServer([RESOURCE_CLAIM])
    server.put(
        RESOURCE_CLAIM,
        {
            "metadata": {"name": "c", "namespace": "team"},
            "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": [], "config": list(entries)}}},
        },
    )
    return (await allocated(Cluster(server.line()), ClaimName("team", "c", ""))).configs


def opaque(driver, parameters):
    return {"opaque": {"driver": driver, "parameters": parameters}}


async def test_configurations_come_in_their_order_with_who_wrote_them():
    made = await configs(
        {"source": "FromClass", "requests": ["nic"], **opaque(devices.DRIVER, {"mtu": 9000})},
        {"source": "FromClaim", **opaque("gpu.nvidia.com", {"sharing": "mps"})},
    )
    assert made == (
        OpaqueConfig(ConfigOrigin.CLASS, devices.DRIVER, b'{"mtu":9000}', ("nic",)),
        OpaqueConfig(ConfigOrigin.CLAIM, "gpu.nvidia.com", b'{"sharing":"mps"}'),
    )


async def test_a_configuration_of_a_kind_that_is_not_known_is_left_out():
    """A later Kubernetes may have others than opaque."""
    assert await configs({"source": "FromClaim", "structured": {}}) == ()


ONE, MANY = Fraction(1), Fraction(16)
TAINT = devices.DeviceTaint(f"{devices.DRIVER}/unhealthy", devices.TaintEffect.NO_SCHEDULE)
DEVICE = devices.ListedDevice(
    "0000-1a-00-0",
    attributes({"rail": 0, "rdmaDevice": "mlx5_0"}),
    {
        "slots": devices.DeviceCapacity(
            MANY, devices.CapacityPolicy(ONE, (), devices.CapacityRange(ONE, MANY, ONE))
        )
    },
    shared=True,
    taints=(TAINT,),
)
PART = replace(slice_of(devices.DRIVER, DEVICE, name="000-slices"), owner="uid-1")
EMPTY = replace(PART, spec=replace(PART.spec, devices=()))
RAW = RESOURCE_SLICE.read_as(ObjectCodec(bytes, bytes), NOTHING)


@pytest.fixture
def served():
    server = FakeServer([RESOURCE_SLICE])
    return server, Cluster(server.line())


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (16, "16"), (1000, "1k"), (4 * 10**11, "400G"), (25 * 10**8, "2500M")],
)
def test_a_quantity_is_written_as_the_api_server_prints_it(number, text):
    assert quantity_text(number) == text


@given(st.integers(0, 10**18))
def test_every_quantity_is_read_as_it_was_written(number):
    assert whole(quantity_text(number)) == number


async def test_a_slice_is_stored_as_it_was_meant(served):
    _, cluster = served
    stored = await cluster.create(RESOURCE_SLICE, wanted_slice(PART))
    (device,) = stored.spec.devices
    assert replace(device, taints=(TAINT,)) == DEVICE
    assert device.taints[0].time_added
    assert replace(resource_slice(stored), spec=PART.spec) == PART


async def test_what_others_wrote_of_its_annotations_stays(served):
    _, cluster = served
    stored = await cluster.create(
        RESOURCE_SLICE, wanted_slice(replace(PART, without=frozenset(devices.ClaimFeature)))
    )
    assert stored.annotation(WITHOUT) == "DRAConsumableCapacity,DRADeviceTaints"
    assert resource_slice(stored).without == frozenset(devices.ClaimFeature)
    stored = replace(stored, annotations=(("a", "b"), *stored.annotations))
    assert changed_slice(stored, PART).annotations == (("a", "b"),)


async def test_a_slice_that_another_wrote_since_is_not_written_over(served):
    _, cluster = served
    stored = await cluster.create(RESOURCE_SLICE, wanted_slice(PART))
    await cluster.replace(RESOURCE_SLICE, changed_slice(stored, EMPTY))
    with pytest.raises(Conflict):
        await cluster.replace(RESOURCE_SLICE, changed_slice(stored, PART))
    with pytest.raises(Conflict):
        await cluster.create(RESOURCE_SLICE, wanted_slice(PART))
    await cluster.delete(RESOURCE_SLICE, stored, unchanged=False)
    await cluster.delete(RESOURCE_SLICE, stored, unchanged=False)


@pytest.mark.parametrize("feature", devices.ClaimFeature)
async def test_a_server_drops_what_its_gates_do_not_have_until_the_object_has_it(served, feature):
    server, cluster = served
    with_it = await cluster.create(RESOURCE_SLICE, wanted_slice(PART))
    server.gates_off.add(feature.value)
    newer = replace(PART, spec=replace(PART.spec, pool=replace(PART.spec.pool, generation=2)))
    (kept,) = (await cluster.replace(RESOURCE_SLICE, changed_slice(with_it, newer))).spec.devices
    assert (kept.shared, bool(kept.taints)) == (True, True)
    (device,) = (
        await cluster.create(RESOURCE_SLICE, wanted_slice(replace(PART, name="001-slices")))
    ).spec.devices
    capacity = feature is devices.ClaimFeature.CONSUMABLE_CAPACITY
    assert (bool(device.shared), bool(device.taints)) == (not capacity, capacity)


def spec(**changes):
    """The spec of a good slice as a document, changed."""
    return msgspec.json.decode(RESOURCE_SLICE.spec.encode(PART.spec)) | changes


def device(**changes):
    return {"devices": [spec()["devices"][0] | changes]}


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (device(name="0000:1a:00.0"), "DNS label"),
        (device(attributes={f"a{n}": {"int": n} for n in range(32)}), "must not exceed 32"),
        (device(attributes={"a": {"string": "x" * 65}}), "Too long"),
        (device(attributes={"a-b": {"int": 1}}), "C identifier"),
        (device(allowMultipleAllocations=False), "allowMultipleAllocations must be true"),
        (device(taints=[{"key": "a/b", "effect": "PreferNoSchedule"}]), "not supported"),
        ({"devices": [spec()["devices"][0]] * 2}, "Duplicate"),
        ({"devices": [spec()["devices"][0] | {"name": f"d{n}"} for n in range(65)]}, "at most 64"),
        ({"nodeName": ""}, "required"),
        ({"pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 0}}, "greater than"),
    ],
)
async def test_a_server_refuses_what_the_api_does_not_allow(served, harm, why):
    _, cluster = served
    wanted = replace(wanted_slice(PART), spec=msgspec.json.encode(spec(**harm)))
    with pytest.raises(Refused, match=why):
        await cluster.create(RAW, wanted)


STANDARD = "resource.kubernetes.io/pciBusID"
SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"


def text(value):
    return {"string": value}


async def read_cards(driver, attributes):
    server = FakeServer([RESOURCE_SLICE])
    spec = {
        "driver": driver,
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 1},
        "devices": [{"name": "nic", "attributes": attributes}, {"name": "bare"}],
    }
    server.put(RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": spec})
    (part,) = await node_slices(Cluster(server.line()), "node-1")
    return part.cards


@pytest.mark.parametrize(
    ("driver", "attributes", "card"),
    [
        (
            "dra.net",
            {
                "dra.net/pciAddress": text("0000:81:00.0"),
                "dra.net/ifName": text("ens1"),
                "dra.net/rdma": {"bool": True},
                "dra.net/rdmaDevice": text("mlx5_1"),
                "dra.net/numaNode": {"int": 1},
            },
            devices.PublishedCard("nic", "0000:81:00.0", "mlx5_1", "ens1", capable=True),
        ),
        (
            SRIOV,
            {
                STANDARD: text("0000:81:00.2"),
                f"{SRIOV}/pciAddress": text("0000:81:00.2"),
                f"{SRIOV}/pfPciAddress": text("0000:81:00.0"),
                f"{SRIOV}/interfaceName": text("ens1v0"),
                f"{SRIOV}/rdmaCapable": {"bool": False},
            },
            devices.PublishedCard("nic", "0000:81:00.2", "", "ens1v0", capable=False),
        ),
        (
            devices.DRIVER,
            {STANDARD: text("0000:81:00.0"), "rdmaDevice": text("mlx5_1")},
            devices.PublishedCard("nic", "0000:81:00.0", "mlx5_1"),
        ),
        (
            "efa.example",
            {STANDARD: text("0000:10:19.0"), "x/pciAddress": text("0000:99:00.0")},
            devices.PublishedCard("nic", "0000:10:19.0"),
        ),
        (
            "soft.example",
            {"soft.example/rdmaDevice": text("rxe0")},
            devices.PublishedCard("nic", "", "rxe0"),
        ),
        ("strange.example", {"x/pciAddress": text("slot 4")}, None),
        ("numbers.example", {"x/pciAddress": {"int": 4}, "x/rdma": {"bool": True}}, None),
    ],
)
async def test_a_card_is_read_in_the_words_of_its_driver(driver, attributes, card):
    assert await read_cards(driver, attributes) == ((card,) if card else ())
