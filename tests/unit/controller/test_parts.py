"""The parts of a controller: whichever of them fails, in whatever way, the others go on."""

import asyncio

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.controller.exporter import ControllerExporter
from kube_rdma.controller.leadership import ELECTION, ElectionLease, Leadership
from kube_rdma.controller.parts import ControllerOptions, always, leading, run_controller
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded


def parts(cluster):
    """All that a controller has: those of every copy, and those of the one that leads."""
    options = ControllerOptions("kube-rdma", policies=True)
    events = Events(cluster, "controller")
    exporter = ControllerExporter("127.0.0.1", 0, lambda: True)
    return (
        always(events, exporter),
        leading(cluster, events, options, exporter),
    )


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
    always = {"events", "metrics"}
    leading = {"addresses of gone nodes", "pool reports", "evictions", "policy status"}
    chosen = {"bandwidth checks", "former webhook", "operator"}
    assert set(NAMES) == always | leading | chosen
