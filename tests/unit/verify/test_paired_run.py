"""A run of a ring or a star: what is repeated, and what is left when its time is over."""

from contextlib import nullcontext

import pytest

from kube_base.errors import Refused
from kube_rdma.model.verify import PairedPod, Pairing, PairStandard, PerftestRun, PodDevice
from kube_rdma.verify.pairs import BandwidthProof, Pacing, PairedRun, with_centre_first
from kube_rdma_testing.perftest import HEADER


class Shell:
    """Pods in which each measurement has the figure of its client, 100 if it has none."""

    def __init__(self, **figures):
        self.figures = figures
        self.clients = []

    async def run(self, _namespace, pod, *_, **__):
        self.clients.append(pod)
        figure = self.figures.get(pod, 100.0)
        return f"{HEADER}\n 65536 5000 {figure} {figure} 0.18"

    def serving(self, *_, **__):
        return nullcontext()


class Ticks:
    """A clock that goes on by a second with each look."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        self.seconds += 1
        return self.seconds


def pods(count):
    device = (PodDevice("mlx5_0", gbps=100.0),)
    return [PairedPod(f"p{n}", "ns", f"p{n}", f"10.0.0.{n}", device) for n in range(count)]


async def ran(pairing, shell, count, seconds=1000.0):
    pacing = Pacing(limit=lambda _: nullcontext(), clock=Ticks(), run_seconds=seconds)
    measuring = BandwidthProof(shell, PerftestRun(), pacing)
    run = PairedRun(pods(count), pairing, both_ways=False)
    await run.measure(measuring, lambda _: None, PairStandard(), {})
    return run, measuring


@pytest.mark.parametrize(
    ("pairing", "count", "due"), [(Pairing.ALL, 6, 15), (Pairing.RING, 6, 6), (Pairing.STAR, 6, 5)]
)
async def test_where_all_is_well_nothing_is_repeated(pairing, count, due):
    run, measuring = await ran(pairing, Shell(), count)
    assert run.due == len(measuring.outcomes) == due


async def test_a_suspect_is_measured_once_more_and_counted():
    """The client decides the figure here: p0 and what it meets first are bad with one another."""
    run, measuring = await ran(Pairing.STAR, Shell(p0=10.0), 4)
    assert run.due == len(measuring.outcomes) > 3
    assert all(outcome.client != "p0" for outcome in measuring.outcomes[3:])


async def test_a_run_whose_time_is_over_repeats_nothing_and_knows_what_is_missing():
    """Each round takes a second, and there is one."""
    run, measuring = await ran(Pairing.RING, Shell(p0=10.0), 6, seconds=1.0)
    assert (run.due, len(measuring.outcomes)) == (6, 3)
    proof = measuring.proof(measuring.outcomes, PairStandard(), due=run.due)
    assert proof.unmeasured == 3
    assert not proof.is_well


def test_the_centre_stands_first():
    titles = [pod.title for pod in with_centre_first(pods(4), "p2")]
    assert titles == ["p2", "p0", "p1", "p3"]


@pytest.mark.parametrize(
    ("left_out", "why"),
    [((("p9", "it is cordoned."),), "it is cordoned"), ((), "no pod or node has that name")],
)
def test_a_centre_that_takes_no_part_is_refused(left_out, why):
    with pytest.raises(Refused, match=rf"p9: the centre of the star takes no part: .*{why}"):
        with_centre_first(pods(4), "p9", left_out)
