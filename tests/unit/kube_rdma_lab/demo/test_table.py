"""The demo's table, letter by letter."""

from dataclasses import replace

from kube_rdma_lab.demo.perftest import Measurement, Series
from kube_rdma_lab.demo.scc import NodeRow, PodRow, Proof
from kube_rdma_lab.demo.table import ratio, render

PROOF = Proof(
    nodes=(
        NodeRow("node-1", "v1.36.3", "7.2.13", "1k"),
        NodeRow("node-2", "v1.36.3", "7.2.13", "1k"),
    ),
    pods=(
        PodRow("rdma-test-pod", "node-1", "10.244.1.2", ("rdma_cm", "uverbs0")),
        PodRow("rdma-test-pod-1", "node-2", "10.244.2.2", ("rdma_cm", "uverbs0")),
    ),
    read=Measurement(3000, 0.31, ()),
    pod_to_pod=Series(tuple(Measurement(1000, value, ()) for value in (0.23, 0.24, 0.26))),
    host_to_host=Series(tuple(Measurement(1000, value, ()) for value in (0.24, 0.25, 0.26))),
)


def test_the_table_shows_nodes_pods_bandwidths_and_how_to_go_on(snapshot):
    snapshot("demo-table.txt", render(PROOF))


def test_the_ratio_is_of_medians():
    assert PROOF.ratio == 0.24 / 0.25


def test_a_machine_slower_than_perftest_can_show_has_a_table_without_a_ratio():
    nothing = Series((Measurement(1000, 0.0, ()),) * 3)
    proof = replace(PROOF, host_to_host=nothing)
    assert proof.ratio is None
    assert ratio(proof) == "—"
    (shown,) = (line for line in render(proof).splitlines() if "ratio" in line)
    assert shown.split() == ["ratio", "pod", "/", "host", "—"]


def test_a_small_figure_keeps_its_digits():
    proof = replace(PROOF, pod_to_pod=Series((Measurement(1000, 0.004194, ()),)))
    assert "0.004194  0.004194–0.004194 in 1 runs" in render(proof)
