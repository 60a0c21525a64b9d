"""What a pod costs on the data path: write bandwidth pod to pod beside host to host."""

from __future__ import annotations

from collections.abc import Iterator

from bench.context import Context
from bench.figures import Absent, Figure, Row
from kube_rdma_lab.demo.scc import prove

PAIRS = 7


def measure(context: Context) -> Iterator[Row]:
    """Run seven interleaved pairs between two nodes; medians, their ratio, the spread."""
    pairs = context.times(PAIRS, 1)
    proof = prove(context.lab(), pairs)
    if proof.ratio is None:
        yield Absent("pod_to_host_ratio", "perftest showed 0 between hosts, the machine is busy")
    else:
        yield Figure("pod_to_host_ratio", proof.ratio, "", "≥ 0.95", f"medians of {pairs} pairs")
    yield Figure("seed_read_gbps", proof.read.gbps, "Gbit/s", "> 0", "30 queue pairs")
    for name, series in (("pod", proof.pod_to_pod), ("host", proof.host_to_host)):
        low, high = series.spread
        spread = f"{low:.3f}–{high:.3f}"
        yield Figure(f"{name}_write_gbps", series.median, "Gbit/s", "", spread)
