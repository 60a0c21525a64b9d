"""The parts of a controller: whichever of them fails, in whatever way, the others go on."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kube_base.errors import Refused, Unavailable
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import object_failed
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.controller.exporter import ControllerExporter
from kube_rdma.controller.leadership import ELECTION, ElectionLease, Leadership
from kube_rdma.controller.parts import (
    ControllerOptions,
    always,
    leading,
    readiness,
    run_controller,
)
from kube_rdma.metrics.rules import families
from kube_rdma.model.ipam import Usage
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.kit.beside import beside
from tests.unit.agent.world import until


def parts(cluster):
    """All that a controller has: those of every copy, and those of the one that leads."""
    features = frozenset({"names", "preflight", "queue"})
    options = ControllerOptions("kube-rdma", policies=True, node_labels="write", features=features)
    events = Events(cluster, "controller")
    exporter = ControllerExporter("127.0.0.1", 0, lambda: True)
    lead = Leadership(ElectionLease(cluster, "lease", "default"), "me")
    health = partial(readiness(cluster, lead).run, ("127.0.0.1", 0))
    return (always(events, exporter, health), leading(cluster, events, options, exporter))


NAMES = [name for group in parts(Cluster(FakeServer().line())) for name in group]


class Trial:
    """Parts that run, but for one, which raises whenever it is started, up to `times` times."""

    def __init__(self, bad, error, times=2):
        self.bad, self.error, self.left = bad, error, times
        self.running = {name: asyncio.Event() for name in NAMES}

    def part(self, name):
        async def run():
            if name == self.bad and self.left:
                self.left -= 1
                raise self.error
            self.running[name].set()
            await asyncio.Event().wait()

        return run


@pytest.mark.parametrize("error", [RuntimeError("x"), RecursionError("too deep")])
@pytest.mark.parametrize("bad", NAMES)
async def test_the_others_go_on(bad, error):
    """And it is begun anew, under the same lead."""
    cluster = Cluster(FakeServer([ELECTION]).line())
    beside, work = (dict.fromkeys(group) for group in parts(cluster))
    trial = Trial(bad, error)
    lead = Leadership(ElectionLease(cluster, "lease", "default"), "me")
    with recorded() as log:
        program = asyncio.create_task(
            run_controller(
                lead,
                {name: trial.part(name) for name in beside},
                {name: trial.part(name) for name in work},
            )
        )
        for running in trial.running.values():
            await running.wait()
        program.cancel()
        with pytest.raises(asyncio.CancelledError):
            await program
    assert trial.left == 0
    assert log.events.count("leading") == 1
    assert [line["part"] for line in log.of("part of the program failed")] == [bad, bad]


def test_a_controller_has_these_parts():
    """Whoever adds one looks at what its failure means."""
    always = {"events", "metrics", "health"}
    leading = {"addresses of gone nodes", "pool reports", "evictions", "policy status"}
    chosen = {"bandwidth checks", "former webhook", "labels of leaves", "operator"}
    chosen |= {"names of addresses", "preflight", "admission checks"}
    assert set(NAMES) == always | leading | chosen


LABELS = families.POOL_HELD.labels
FULL = {"rail": [Usage(family="IPv4", rail=3, size=62, held=60, free=2, nodes=2)]}
PLAIN = {"plain": [Usage(family="IPv6", size=1000, held=0, free=1000, nodes=0)]}


async def samples(exporter):
    return {
        (
            sample.name,
            tuple(sample.labels[label] for label in LABELS if sample.labels),
        ): sample.value
        for family in text_string_to_metric_families((await exporter.answer()).decode())
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


async def ready(health):
    """The lines of the checks that fail."""
    try:
        await health.readyz()
    except Unavailable as error:
        return [line for line in str(error).splitlines() if line.startswith("[-]")]
    return []


async def test_a_copy_that_waits_for_leadership_is_ready_and_one_out_of_contact_is_not():
    server = FakeServer([ELECTION])
    clusters = [Cluster(server.line()) for _ in range(2)]
    first, second = (
        Leadership(ElectionLease(cluster, "lease", "default"), name)
        for cluster, name in zip(clusters, ("first", "second"), strict=True)
    )
    healths = [readiness(clusters[0], first), readiness(clusters[1], second)]
    assert [len(await ready(one)) for one in healths] == [1, 1], "nobody has read the Lease"
    assert (await first._try(), await second._try()) == (True, False)
    assert [await ready(one) for one in healths] == [[], []]
    server.lines[1].cut()
    await second._try()
    assert [line[:8] for line in await ready(healths[1])] == ["[-]lease"]


async def test_a_leader_without_a_right_is_not_ready():
    """A copy that waits watches nothing, so it cannot tell."""
    server = FakeServer([ELECTION])
    server.forbidden.add(("list", "pods"))
    cluster = Cluster(server.line())
    lead = Leadership(ElectionLease(cluster, "lease", "default"), "me")
    health = readiness(cluster, lead)

    async def work():
        with suppress(Refused):
            async for _ in cluster.watch(POD):
                pass
        await asyncio.Event().wait()

    async with beside(lead.run(work)):
        await until(cluster.troubles)
        (line,) = await ready(health)
        assert line.startswith("[-]watches: the API server forbids to list pods")
    assert await ready(health) == []


def test_nodes_are_labelled_only_where_that_is_asked_for():
    cluster = Cluster(FakeServer().line())
    made = leading(cluster, Events(cluster, "controller"), ControllerOptions("kube-rdma"))
    assert "labels of leaves" not in made
