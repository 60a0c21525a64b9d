"""Where the outputs of pods are read: they are others' texts, and may be as large as these like."""

import threading
from contextlib import nullcontext

import pytest

from kube_rdma.model.claims.devices import PublishedCard
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.verify import PairedPod, PerftestRun, PodDevice
from kube_rdma.verify import pairs
from kube_rdma.verify.pairs import BandwidthProof
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

    def noting(name):
        read = getattr(pairs, name)

        def noted(*args):
            found.setdefault(name, set()).add(threading.current_thread())
            return read(*args)

        monkeypatch.setattr(pairs, name, noted)

    noting("paired_pod")
    noting("table")
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
