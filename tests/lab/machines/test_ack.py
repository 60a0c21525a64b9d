"""Seed S0 on the lab: the DaemonSet, the node's two resources, the Job with eight GPUs."""

import json
import re

import pytest

from kube_rdma_lab import cluster
from tests.documents.on_lab import followed
from tests.documents.shell import Shell
from tests.kit.pods import sleeping_pod

DAEMONSET = "daemonset/ack-rdma-dp-ds"


@pytest.fixture(scope="module")
def ack(lab):
    """The lab as the example's page makes it: the Job has ended."""
    with followed(lab, "examples/s0-ack/README.md"):
        yield lab


def test_the_daemonset_runs_on_both_nodes_without_a_node_selector(ack):
    document = cluster.get(ack, DAEMONSET, "-n", "kube-system")
    assert "nodeSelector" not in document["spec"]["template"]["spec"]
    status = document["status"]
    names = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable")
    assert [status[name] for name in names] == [2, 2, 2, 2]


def test_every_node_shows_a_thousand_shares_beside_eight_gpus(ack):
    for node in cluster.get(ack, "nodes")["items"]:
        for kind in ("capacity", "allocatable"):
            shown = {name: node["status"][kind][name] for name in ("rdma/hca", "nvidia.com/gpu")}
            assert shown == {"rdma/hca": "1k", "nvidia.com/gpu": "8"}


def test_the_job_gets_eight_gpus_and_moves_bytes_over_a_card(ack):
    log = cluster.kubectl(ack, "logs", "job/hps-benchmark")
    (gpus,) = re.findall(r"^GPUs: (\S+)$", log, re.MULTILINE)
    assert len(set(gpus.split(","))) == 8
    assert re.search(r"^tmpfs .* /dev/shm$", log, re.MULTILINE)
    (iterations,) = re.findall(r"^ 65536 +(\d+) ", log, re.MULTILINE)
    assert int(iterations) == 500


@pytest.mark.slow
def test_hosts_are_measured_over_their_own_cards(ack, tmp_path):
    """`kube-rdma verify nodes` with a pod as S0's are, on the node's network: host to host."""
    manifest = tmp_path / "pod.json"
    pod = sleeping_pod("host", limits={"rdma/hca": 1}, hostNetwork=True)
    manifest.write_text(json.dumps(pod))
    words = f"kube-rdma verify nodes -f {manifest} --iterations 100 --tolerance 100 -o json"
    with Shell({"KUBECONFIG": str(ack.kubeconfig)}, ack.state.binaries) as shell:
        shell.check(f"{words} > {tmp_path}/proof.json")
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert {(pair["client"], pair["server"]) for pair in proof["pairs"]} in (
        {("node-1", "node-2")},
        {("node-2", "node-1")},
    )
    assert len({pair["rail"] for pair in proof["pairs"]}) == len(proof["pairs"]) >= 1
    assert not proof["leftOut"]
