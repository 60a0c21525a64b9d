"""Slices of this driver on the wire, and what the fake API server does to them as the real one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_client.errors import Conflict
from kube_client.kinds import NOTHING, ObjectCodec
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import whole
from kube_rdma.adapters.cluster.kinds.offered_slice import (
    OFFERED_SLICE,
    WITHOUT,
    changed_slice,
    published,
    quantity_text,
    wanted_slice,
)
from kube_rdma.claims.cluster import OfferedSlices
from kube_rdma.model.claims.devices import (
    DRIVER,
    ClaimFeature,
    DeviceCapacity,
    DeviceTaint,
    OfferedDevice,
    PublishedSlice,
    RequestPolicy,
    TaintEffect,
)
from kube_rdma_testing.cluster.server import FakeServer

TAINT = DeviceTaint(f"{DRIVER}/unhealthy", TaintEffect.NO_SCHEDULE)
DEVICE = OfferedDevice(
    "0000-1a-00-0",
    (("rail", 0), ("rdmaDevice", "mlx5_0")),
    (("slots", DeviceCapacity(16, RequestPolicy(1, 1, 16, 1))),),
    shared=True,
    taints=(TAINT,),
)
PART = PublishedSlice("000-slices", 1, 1, (DEVICE,), "uid-1")
RAW = OFFERED_SLICE.read_as(ObjectCodec(bytes, bytes), NOTHING)


@pytest.fixture
def served():
    server = FakeServer([OFFERED_SLICE])
    cluster = Cluster(server.line())
    return server, cluster, OfferedSlices(cluster, DRIVER, "node-1")


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
    _, _, door = served
    stored = await door.create(PART)
    (device,) = published(stored).devices
    assert replace(device, taints=(TAINT,)) == DEVICE
    assert device.taints[0].added
    assert replace(published(stored), devices=PART.devices) == PART


async def test_what_others_wrote_of_its_annotations_stays(served):
    _, _, door = served
    stored = await door.create(replace(PART, without=frozenset(ClaimFeature)))
    assert stored.annotation(WITHOUT) == "DRAConsumableCapacity,DRADeviceTaints"
    assert published(stored).without == frozenset(ClaimFeature)
    stored = replace(stored, annotations=(("a", "b"), *stored.annotations))
    assert changed_slice(stored, PART, DRIVER, "node-1").annotations == (("a", "b"),)


async def test_a_slice_that_another_wrote_since_is_not_written_over(served):
    _, _, door = served
    stored = await door.create(PART)
    await door.change(stored, replace(PART, devices=()))
    with pytest.raises(Conflict):
        await door.change(stored, PART)
    with pytest.raises(Conflict):
        await door.create(PART)
    await door.remove(stored)
    await door.remove(stored)


@pytest.mark.parametrize("feature", ClaimFeature)
async def test_a_server_drops_what_its_gates_do_not_have_until_the_object_has_it(served, feature):
    server, _, door = served
    with_it = await door.create(PART)
    server.gates_off.add(feature.value)
    (kept,) = published(await door.change(with_it, replace(PART, generation=2))).devices
    assert (kept.shared, bool(kept.taints)) == (True, True)
    (device,) = published(await door.create(replace(PART, name="001-slices"))).devices
    capacity = feature is ClaimFeature.CONSUMABLE_CAPACITY
    assert (device.shared, bool(device.taints)) == (not capacity, capacity)


def spec(**changes):
    """The spec of a good slice as a document, changed."""
    wanted = wanted_slice(PART, DRIVER, "node-1")
    return msgspec.to_builtins(wanted.spec) | changes


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
    _, cluster, _ = served
    wanted = replace(wanted_slice(PART, DRIVER, "node-1"), spec=msgspec.json.encode(spec(**harm)))
    with pytest.raises(Refused, match=why):
        await cluster.create(RAW, wanted)
