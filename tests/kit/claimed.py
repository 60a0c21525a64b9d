"""A small cluster for `kube-rdma explain claim/NAME`: nodes with cards, and who holds them."""

from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.resource_api import (
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
)
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_testing.cluster.server import FakeServer

FAST = f'device.attributes["{DRIVER}"].rateGbps >= 400'
DOWN = {"key": f"{DRIVER}/port-down", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


def server(*slices, nodes=("node-1", "node-2", "node-3")):
    """The API server with these slices and a class `rdma` for devices of the driver."""
    made = FakeServer([RESOURCE_SLICE, RESOURCE_CLAIM, DEVICE_CLASS])
    for name in nodes:
        made.put(NODE, {"metadata": {"name": name, "labels": {"zone": "a"}}})
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    made.put(DEVICE_CLASS, {"metadata": {"name": "rdma"}, "spec": {"selectors": selectors}})
    for one in slices:
        made.put(RESOURCE_SLICE, one)
    return made


def card(name, rate=400, rail=0, **more):
    """A device."""
    return {"name": name, "attributes": {"rateGbps": {"int": rate}, "rail": {"int": rail}}, **more}


def slice_of(node, *devices, driver=DRIVER, count=1, **more):
    """The ResourceSlice of a node; of `count` slices of its pool."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices), **more}
    return {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}


def request(name="nics", count=1, **more):
    """A request of devices of the class."""
    exactly = {"deviceClassName": "rdma", "allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": {**exactly, **more}}


def claim(*requests, name="two-cards", constraints=()):
    """A claim of namespace train that nobody has allocated."""
    devices = {"requests": list(requests), "constraints": list(constraints)}
    return {"metadata": {"name": name, "namespace": "train"}, "spec": {"devices": devices}}


def held(name, node, device, **more):
    """A claim that has a device; with a `shareID` a part of it."""
    result = {"request": "nics", "driver": DRIVER, "pool": node, "device": device, **more}
    reserved = [{"resource": "pods", "name": "worker-0", "uid": "u1"}]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    return {**claim(request(), name=name), "status": status}


def selector(text):
    """A selector in CEL."""
    return {"cel": {"expression": text}}


def waiting():
    """A claim of two fast cards on different rails: node-3 lacks one, the others both."""
    slots = {"slots": {"value": "2", "requestPolicy": {"default": "1"}}}
    made = server(
        slice_of("node-1", card("0000-1a-00-0", 200), card("0000-3b-00-0", 100, 1)),
        slice_of("node-2", card("0000-1a-00-0"), count=2),
        slice_of(
            "node-3",
            card("0000-1a-00-0"),
            card("0000-3b-00-0", rail=1, taints=[DOWN]),
            card("0000-5e-00-0", rail=2),
            card("0000-81-00-0", rail=3, allowMultipleAllocations=True, capacity=slots),
            card("0000-9a-00-0"),
        ),
    )
    made.put(RESOURCE_CLAIM, held("other", "node-3", "0000-5e-00-0"))
    for number in range(2):
        share = {"shareID": f"00000000-0000-4000-8000-00000000000{number}"}
        taken = {"consumedCapacity": {"slots": "1"}}
        made.put(RESOURCE_CLAIM, held(f"part-{number}", "node-3", "0000-81-00-0", **share, **taken))
    asked = request(count=2, selectors=[selector(FAST)])
    differ = {"requests": ["nics"], "distinctAttribute": f"{DRIVER}/rail"}
    made.put(RESOURCE_CLAIM, claim(asked, constraints=[differ]))
    return made
