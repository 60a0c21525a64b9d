"""What a copy of the controller answers Prometheus, before it leads, while it does, and after."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.controller.exporter import ControllerExporter
from kube_rdma.controller.leadership import ELECTION, ElectionLease, Leadership
from kube_rdma.metrics.rules import families
from kube_rdma.model.ipam import Usage
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded

LABELS = families.POOL_HELD.labels
FULL = {"rail": [Usage(family="IPv4", rail=3, size=62, held=60, free=2, nodes=2)]}
PLAIN = {"plain": [Usage(family="IPv6", size=1000, held=0, free=1000, nodes=0)]}


async def samples(exporter):
    """Values by name and labels."""
    text = (await exporter.answer()).decode()
    return {
        (
            sample.name,
            tuple(sample.labels[label] for label in LABELS if sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_copy_that_leads_tells_of_pools():
    exporter = ControllerExporter(None, 0, lambda: True)
    exporter.reported(FULL | PLAIN)
    assert await samples(exporter) == {
        (families.CONTROLLER_LEADS.name, ()): 1,
        (families.POOL_ADDRESSES.name, ("rail", "4", "3")): 62,
        (families.POOL_HELD.name, ("rail", "4", "3")): 60,
        (families.POOL_ADDRESSES.name, ("plain", "6", "")): 1000,
        (families.POOL_HELD.name, ("plain", "6", "")): 0,
    }


async def test_every_copy_tells_which_kinds_of_objects_failed():
    with recorded():
        object_failed("Trial", "a", RuntimeError())
    text = (await ControllerExporter(None, 0, lambda: False).answer()).decode()
    assert f'{families.OBJECT_FAILURES.name}{{kind="Trial"}} 1' in text


async def test_a_copy_that_leads_no_more_knows_of_no_pool():
    """Else two copies would tell of one pool, one of them something old."""
    exporter = ControllerExporter(None, 0, lambda: False)
    exporter.reported(FULL)
    assert await samples(exporter) == {(families.CONTROLLER_LEADS.name, ()): 0}


async def test_a_pool_that_is_gone_has_no_series():
    exporter = ControllerExporter(None, 0, lambda: True)
    exporter.reported(FULL)
    exporter.reported([])
    assert await samples(exporter) == {(families.CONTROLLER_LEADS.name, ()): 1}


@pytest.mark.parametrize("fails", [False, True])
async def test_a_copy_leads_while_its_work_is_done(fails):
    """Also where the work ends with an error."""
    cluster = Cluster(FakeServer([ELECTION]).line())
    lead = Leadership(ElectionLease(cluster, "lease", "default"), "me")
    seen = []
    working = asyncio.Event()

    async def work():
        seen.append(lead.leads)
        working.set()
        if fails:
            raise RuntimeError("x")
        await asyncio.Event().wait()

    assert not lead.leads
    program = asyncio.create_task(lead.run(work))
    await working.wait()
    program.cancel()
    await asyncio.wait([program])
    assert seen == [True]
    assert not lead.leads
