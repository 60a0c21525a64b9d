"""A BandwidthCheck that kube-rdma cannot do ends none of another namespace."""

import asyncio

import pytest

from kube_rdma.adapters import bulkhead
from kube_rdma.adapters.cluster.kinds.resource_api import (
    CLAIM_TEMPLATE,
    DEVICE_CLASS,
    RESOURCE_SLICE,
)
from kube_rdma.verify import cluster as bandwidth_checks
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma.verify.rules.pairs import AGAIN
from kube_rdma_testing.perftest import KubeletLine
from kube_rdma_testing.recording import recorded
from tests.unit.agent.world import until
from tests.unit.verify.test_bandwidth_checks import CONTAINER, SELECTED, CheckWorld


@pytest.fixture
def world():
    return CheckWorld()


def held_back(world, hold):
    """The pods' programs, where measurements wait until the test goes on."""

    async def program(command):
        if "ib_" in command.argv[-1]:
            await hold.wait()
        return await world.pods.run(command)

    return program


def with_nasty_selector(world):
    """A claim template whose selector the evaluator is asked to read 3,000 signs deep."""
    for kind in (CLAIM_TEMPLATE, DEVICE_CLASS, RESOURCE_SLICE):
        world.server.add(kind)
    world.server.put(DEVICE_CLASS, {"metadata": {"name": "c"}, "spec": {}})
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "node-1", "pool": pool, "devices": [{"name": "one"}]}
    world.server.put(RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": spec})
    selectors = [{"cel": {"expression": "!" * 3000 + "true"}}]
    exactly = {"deviceClassName": "c", "selectors": selectors}
    devices = {"requests": [{"name": "r", "exactly": exactly}]}
    meta = {"name": "t", "namespace": "tenant"}
    world.server.put(CLAIM_TEMPLATE, {"metadata": meta, "spec": {"spec": {"devices": devices}}})


PLAIN = {"name": "c", "image": "i"}
BY_TEMPLATE = [{"name": "a", "resourceClaimTemplateName": "t"}]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"containers": [CONTAINER], "resourceClaims": ["x"]}, "spec.resourceClaims[0]"),
        ({"containers": [CONTAINER], "resourceClaims": [{"name": 5}]}, "resourceClaims[0].name"),
        ({"containers": [PLAIN], "resourceClaims": BY_TEMPLATE}, ""),
    ],
)
async def test_a_check_that_nobody_can_do_ends_no_other(world, spec, why):
    """The part failed again and again, and the honest check never ended."""
    hold = asyncio.Event()
    world.server.program = held_back(world, hold)
    with_nasty_selector(world)
    world.check("honest", **SELECTED)
    with recorded() as log:
        async with world.running():
            await until(lambda: world.state("honest") == "Measuring")
            world.check("evil", "tenant", template={"spec": spec})
            await until(lambda: world.state("evil") == "NotMeasured")
            assert why in world.status("evil")["result"]
            hold.set()
            await until(lambda: world.state("honest") == "Well")
    assert not log.of("part of the program failed")


class FailingLine(KubeletLine):
    """A list of a tenant's pods raises what nobody expects."""

    failing = True

    async def send(self, request):
        if self.failing and (request.verb, request.namespace) == ("list", "tenant"):
            raise RuntimeError("nobody expects it")
        return await super().send(request)


async def test_a_check_whose_measuring_raises_is_not_measured_and_tried_again_later(world):
    """Its cause is logged and counted once; others go on, and this one when all is well."""
    hold = asyncio.Event()
    world.server.program = held_back(world, hold)
    world.line = FailingLine(world.pods)
    world.server.lines.append(world.line)
    before = bulkhead.object_failures["BandwidthCheck"]
    world.check("honest", **SELECTED)
    with recorded() as log:
        async with world.running():
            await until(lambda: world.state("honest") == "Measuring")
            world.check("evil", "tenant", **SELECTED)
            await until(lambda: world.state("evil") == "NotMeasured")
            assert "RuntimeError: nobody expects it" in world.status("evil")["result"]
            hold.set()
            await until(lambda: world.state("honest") == "Well")
            world.line.failing = False
            world.now += AGAIN
            world.check("other", **SELECTED)
            await until(lambda: "no pod took part" in world.status("evil").get("result", ""))
    assert bulkhead.object_failures["BandwidthCheck"] == before + 1
    assert len(log.of("object failed")) == 1


async def test_a_time_that_no_controller_wrote_ends_no_other_check(world):
    world.check("odd", **SELECTED, everySeconds=3600)
    status = {"observedGeneration": 1, "state": "Well", "pairsMeasured": 0}
    times = {"startTime": "9999-12-31T23:59:59Z", "completionTime": "9999-12-31T23:59:59Z"}
    world.server.put(BANDWIDTH_CHECK, {**world.document("odd"), "status": {**status, **times}})
    world.check("honest", **SELECTED)
    async with world.running():
        await until(lambda: world.state("honest") == "Well")
        await until(lambda: world.status("odd")["startTime"].startswith("2026"))


async def test_a_check_whose_reader_raises_something_says_so(world, monkeypatch):
    load = bandwidth_checks.load_plan

    def read(spec, title):
        if title == "tenant/evil":
            raise RecursionError
        return load(spec, title)

    monkeypatch.setattr(bandwidth_checks, "load_plan", read)
    world.check("evil", "tenant", **SELECTED)
    world.check("honest", **SELECTED)
    with recorded():
        async with world.running():
            await until(lambda: world.state("honest") == "Well")
            await until(lambda: world.state("evil") == "NotMeasured")
    assert "cannot handle this BandwidthCheck (RecursionError)" in world.status("evil")["result"]
