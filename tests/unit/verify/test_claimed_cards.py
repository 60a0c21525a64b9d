"""The cards that pods have by claims, by what claims and slices say."""

import pytest

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_CLAIM, RESOURCE_SLICE
from kube_rdma.model.claims.devices import PublishedCard
from kube_rdma.model.late_binding import PodName
from kube_rdma.verify.claimed_cards import cards_of_pods
from kube_rdma_testing.cluster.server import FakeServer


def slice_of(node, *numbers):
    devices = [
        {
            "name": f"nic-{number}",
            "attributes": {"dra.net/pciAddress": {"string": f"0000:{number:02x}:00.0"}},
        }
        for number in numbers
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.net", "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-dra.net"}, "spec": spec}


def claim(name, node, *devices):
    results = [
        {"request": "r", "driver": "dra.net", "pool": node, "device": one} for one in devices
    ]
    status = {"allocation": {"devices": {"results": results}}}
    return {"metadata": {"name": name, "namespace": "train"}, "spec": {}, "status": status}


def pod(name, node, *, spec=(), template=(), extended=""):
    status = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": n} for n in template]}
    if extended:
        status["extendedResourceClaimStatus"] = {"resourceClaimName": extended}
    return {
        "metadata": {"name": name, "namespace": "train"},
        "spec": {
            "nodeName": node,
            "resourceClaims": [{"name": "c", "resourceClaimName": n} for n in spec]
            + [{"name": "t", "resourceClaimTemplateName": "nics"}] * bool(template),
        },
        "status": status,
    }


@pytest.fixture
def server():
    server = FakeServer([RESOURCE_SLICE, RESOURCE_CLAIM])
    server.put(RESOURCE_SLICE, slice_of("node-1", 1, 2))
    server.put(RESOURCE_SLICE, slice_of("node-2", 3))
    server.put(RESOURCE_CLAIM, claim("two", "node-1", "nic-2", "nic-1", "gpu-0"))
    server.put(RESOURCE_CLAIM, claim("one", "node-2", "nic-3"))
    return server


async def read(server, *pods):
    return await cards_of_pods(Cluster(server.line()), pods)


def nic(number):
    return PublishedCard(f"nic-{number}", f"0000:{number:02x}:00.0")


async def test_cards_stand_in_the_order_of_the_allocation(server):
    cards = await read(
        server, pod("a", "node-1", spec=["two"]), pod("b", "node-2", template=["one"])
    )
    assert cards == {PodName("train", "a"): (nic(2), nic(1)), PodName("train", "b"): (nic(3),)}
    assert await read(server, pod("c", "node-2", extended="one")) == {
        PodName("train", "c"): (nic(3),)
    }


async def test_pods_without_claims_need_no_right(server):
    server.forbidden |= {("list", "resourceslices"), ("get", "resourceclaims")}
    assert await read(server, pod("a", "node-1")) == {}
    with pytest.raises(Refused, match=r"resourceclaims|resourceslices"):
        await read(server, pod("a", "node-1", spec=["two"]))


async def test_a_claim_that_is_gone_has_no_cards(server):
    assert await read(server, pod("a", "node-1", spec=["gone"])) == {PodName("train", "a"): ()}
