"""Formats what the demo saw and measured as tables, with commands to go on with."""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma_lab.demo.perftest import Series
from kube_rdma_lab.demo.scc import READ_TEST, RESOURCE, WRITE_TEST, Proof

INDENT = "  "
DEVICES = "-n kube-system exec ds/rdma-device-plugin -- kube-rdma devices"


def render(proof: Proof, option: str = "", program: str = "kube-rdma") -> str:
    """Return the demo's report as text.

    In its commands `program` is a path to kube-rdma that works, and `option` names the lab.
    """
    first = proof.nodes[0]
    client, server = proof.pods[1], proof.pods[0]
    head = (
        f"Two nodes, real Kubernetes {first.kubelet}, Linux {first.kernel},"
        " no RDMA hardware: two pods talk RDMA."
    )
    nodes = [("NODE", f"ALLOCATABLE {RESOURCE}")]
    nodes += [(node.name, node.allocatable) for node in proof.nodes]
    pods = [("POD", "NODE", "IP", "/dev/infiniband")]
    pods += [(pod.name, pod.node, pod.ip, " ".join(pod.devices)) for pod in proof.pods]
    low_high = [("TEST", "BETWEEN", "GBIT/S", "SPREAD")]
    low_high += [
        (" ".join(READ_TEST), f"{client.name} → {server.name}", _gbps(proof.read.gbps), ""),
        (" ".join(WRITE_TEST[:1]), "pod → pod", *_figures(proof.pod_to_pod)),
        ("", "host → host", *_figures(proof.host_to_host)),
        ("", "ratio pod / host", ratio(proof), ""),
    ]
    explore = [
        f"{program} lab kubectl{option} get pods -A -o wide",
        f"{program} lab kubectl{option} {DEVICES}",
        f"{program} lab shell{option} {first.name}",
        f"{program} lab down{option}",
    ]
    blocks = [head, columns(nodes), columns(pods), columns(low_high)]
    return "\n\n".join([*blocks, "Go on:\n" + "\n".join(INDENT + each for each in explore)])


def ratio(proof: Proof) -> str:
    """Format the ratio for the table; a dash stands for None."""
    return "—" if proof.ratio is None else f"{proof.ratio:.2f}"


def _figures(series: Series) -> tuple[str, str]:
    low, high = series.spread
    return _gbps(series.median), f"{_gbps(low)}–{_gbps(high)} in {len(series.outcomes)} runs"


def _gbps(figure: float) -> str:
    """Format a bandwidth with three digits after the point, or six if less than 0.01."""
    return f"{figure:.3f}" if figure >= 0.01 else f"{figure:.6f}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align the cells of rows of equal length into columns of text; the first row is the head."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        (
            INDENT + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
