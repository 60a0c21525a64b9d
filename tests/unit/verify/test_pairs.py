"""Where the outputs of pods are read: they are others' texts, and may be as large as these like."""

import threading
from contextlib import nullcontext

import pytest

from kube_base.errors import Refused
from kube_rdma.model.claims.devices import PublishedCard
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.verify import PairedPod, Pairing, PairStandard, PerftestRun, PodDevice
from kube_rdma.verify import pairs
from kube_rdma.verify.pairs import BandwidthProof, Pacing, PairedRun, with_centre_first
from kube_rdma.verify.rules.pairs import turns
from kube_rdma.verify.rules.pods import OWN_STATUS, PLACES, PORT_RATES, PROBE
from kube_rdma_testing.perftest import HEADER

PROBED = "port mlx5_0 1 card 100 Gb/sec (4X EDR)\n" + '{"UCX_NET_DEVICES": "mlx5_0:1"}'
TABLE = f"{HEADER}\n 65536 5000 97.5 97.5 0.18"
POD = {
    "metadata": {"name": "p", "namespace": "train"},
    "spec": {"nodeName": "node-1"},
    "status": {"podIP": "10.0.1.1", "phase": "Running"},
}


class Shell:
    """A pod's, in which every command prints the same."""

    def __init__(self, text):
        self.text = text

    async def run(self, *_, **__):
        return self.text

    def serving(self, *_, **__):
        return nullcontext()


@pytest.fixture
def threads(monkeypatch):
    """In which threads the readers ran, by their names."""
    found = {}

    def noting(module, name):
        read = getattr(module, name)

        def noted(*args):
            found.setdefault(name, set()).add(threading.current_thread())
            return read(*args)

        monkeypatch.setattr(module, name, noted)

    noting(pairs.pod_rules, "paired_pod")
    noting(pairs, "table")
    return found


@pytest.mark.parametrize("is_big", [False, True], ids=["small", "big"])
async def test_a_big_output_is_read_in_a_thread_and_never_in_the_loop(threads, is_big):
    """Others have their turns meanwhile; for a small one a thread would cost more than it saves."""
    padding = "x " * (pairs._SMALL if is_big else 1) + "\n"
    probed = await BandwidthProof(Shell(padding + PROBED), PerftestRun()).probed(POD)
    assert probed.devices == (PodDevice("mlx5_0", 1, None, None, 100.0),)
    pods = [
        PairedPod(f"train/{name}", "train", name, "10.0.1.1", probed.devices) for name in ("a", "b")
    ]
    (outcome,) = await BandwidthProof(Shell(padding + TABLE), PerftestRun()).measure(turns(pods))
    assert not outcome.failure
    for name in ("paired_pod", "table"):
        in_loop = threads[name] == {threading.main_thread()}
        assert in_loop is not is_big, name
        assert is_big is (threading.main_thread() not in threads[name])


class AskedShell(Shell):
    """It notes what it was asked, and with which input."""

    async def run(self, *words, stdin=""):
        self.asked = words[-1][-1], stdin
        return self.text


@pytest.mark.parametrize("named", [True, False])
async def test_only_a_pod_that_names_no_devices_runs_nccl_env_sh(named):
    """The rate of its ports is asked of each."""
    annotations = {OWN_STATUS: '[{"rdmaDevice": "mlx5_0"}]'} if named else {}
    document = POD | {"metadata": POD["metadata"] | {"annotations": annotations}}
    shell = AskedShell(PROBED.splitlines()[0] if named else PROBED)
    probed = await BandwidthProof(shell, PerftestRun()).probed(document)
    assert probed.devices == (PodDevice("mlx5_0", 1, None, None, 100.0),)
    script, stdin = shell.asked
    assert script == (PORT_RATES if named else PROBE)
    assert bool(stdin) is not named


async def test_a_pod_with_cards_by_claims_is_asked_where_its_devices_sit():
    shell = AskedShell(f"place mlx5_1 0000:81:00.0\nport mlx5_1 1 card 100 Gb/sec\n{PROBED}")
    card = PublishedCard("nic", "0000:81:00.0")
    proof = BandwidthProof(shell, PerftestRun())
    cards = {PodName("train", "p"): [card], PodName("train", "other"): []}
    (probed,), left_out = await proof.all_probed([POD], (), cards)
    assert [device.name for device in probed.devices] == ["mlx5_1"]
    assert left_out == ()
    assert shell.asked[0] == f"{PLACES}{PROBE}"


# A run of a ring or a star: what is repeated, and what is left when its time is over.


class FigureShell:
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
    run, measuring = await ran(pairing, FigureShell(), count)
    assert run.due == len(measuring.outcomes) == due


async def test_a_suspect_is_measured_once_more_and_counted():
    """The client decides the figure here: p0 and what it meets first are bad with one another."""
    run, measuring = await ran(Pairing.STAR, FigureShell(p0=10.0), 4)
    assert run.due == len(measuring.outcomes) > 3
    assert all(outcome.client != "p0" for outcome in measuring.outcomes[3:])


async def test_a_run_whose_time_is_over_repeats_nothing_and_knows_what_is_missing():
    """Each round takes a second, and there is one."""
    run, measuring = await ran(Pairing.RING, FigureShell(p0=10.0), 6, seconds=1.0)
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
