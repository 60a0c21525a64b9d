"""Seed S0 on the lab: the DaemonSet, the node's two resources, the Job with eight GPUs."""

import re

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.ghost.install import start_ghosts, wait_for_ghosts

EXAMPLE = scc.examples() / "s0-ack"
DAEMONSET = "daemonset/ack-rdma-dp-ds"


def remove(lab, daemonset):
    """Delete a DaemonSet and wait until its pods are gone too: only one may serve rdma/hca."""
    words = ("delete", daemonset, "-n", "kube-system", "--cascade=foreground", "--ignore-not-found")
    cluster.kubectl(lab, *words)


@pytest.fixture(scope="module")
def ack(lab, proof):
    """The lab with seed S0's DaemonSet in the place of S2's, which returns at the end."""
    start_ghosts(lab)
    remove(lab, "daemonset/rdma-device-plugin")
    try:
        for name in ("config", "daemonset"):
            cluster.kubectl(lab, "apply", "-f", f"{EXAMPLE}/{name}.yaml")
        cluster.rollout(lab, "ack-rdma-dp-ds", "kube-system")
        cluster.wait_for_resource(lab, scc.RESOURCE, "1k")
        wait_for_ghosts(lab)
        yield lab
    finally:
        remove(lab, DAEMONSET)
        cluster.kubectl(lab, "delete", "-f", f"{EXAMPLE}/config.yaml", "--ignore-not-found")
        scc.install(lab, "daemonset-preset.yaml")


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
    cluster.kubectl(ack, "apply", "-f", f"{EXAMPLE}/job.yaml")
    try:
        cluster.wait(ack, "job/hps-benchmark", "--for=condition=Complete")
        log = cluster.kubectl(ack, "logs", "job/hps-benchmark")
    finally:
        cluster.kubectl(ack, "delete", "job/hps-benchmark", "--cascade=foreground")
    (gpus,) = re.findall(r"^GPUs: (\S+)$", log, re.MULTILINE)
    assert len(set(gpus.split(","))) == 8
    assert re.search(r"^tmpfs .* /dev/shm$", log, re.MULTILINE)
    (iterations,) = re.findall(r"^ 65536 +(\d+) ", log, re.MULTILINE)
    assert int(iterations) == 500
