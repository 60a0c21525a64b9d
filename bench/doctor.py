"""How long `kube-rdma doctor --all-nodes` takes over ten native nodes, as a person waits for it.

    doctor ─► API server ─► exec in ten agents at once ─► ten doctors ─► one page

The command is a process of its own, so Python's start is in the figures. All ten agents are on this
machine and share its processors, so their doctors wait for each other; those of real nodes do not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from bench.context import Context, own_lab
from bench.figures import Figure, Row, attempt
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.lab import Lab

NAME, NODES, ROUNDS = "doctorbench", 10, 5
NAMESPACE, AGENT, LABEL = "kube-rdma-vke", "rdma-device-plugin", "vke.node.rdma.mode=shared"
COMMAND = (sys.executable, "-m", "kube_rdma.cli.main", "doctor")
ILL = 1  # exit code when something was found


def measure(context: Context) -> Iterator[Row]:
    """Boot the nodes, install seed S1's agents, ask them; medians."""
    nodes = 2 if context.short else NODES
    with own_lab(NAME, f"native:{nodes}") as lab:
        _install(lab)
        yield from attempt("all nodes", partial(_all_nodes, lab, nodes, context.times(ROUNDS, 1)))
        yield from attempt("a node", partial(_one_node, lab, context.times(ROUNDS, 1)))


def _install(lab: Lab) -> None:
    example = scc.examples() / "s1-vke"
    scc.install_kinds(lab)
    cluster.kubectl(lab, "apply", "-f", f"{example}/daemonset.yaml")
    cluster.kubectl(lab, "label", "node", "--all", LABEL, "--overwrite")
    cluster.rollout(lab, AGENT, NAMESPACE)


def _all_nodes(lab: Lab, nodes: int, rounds: int) -> Iterator[Figure]:
    seconds = []
    for _ in range(rounds):
        document, took = _asked(lab, "--all-nodes")
        answered = sum(one["answered"] for one in document["nodes"])
        if answered < nodes:
            raise Unavailable(f"{answered} of {nodes} nodes answered")
        seconds.append(took)
    yield Figure("all_nodes_seconds", median(seconds), "s", "≤ 10", _spread(seconds, nodes))


def _one_node(lab: Lab, rounds: int) -> Iterator[Figure]:
    seconds = [_asked(lab, "node/node-1")[1] for _ in range(rounds)]
    yield Figure("node_seconds", median(seconds), "s", "", _spread(seconds, 1))


def _asked(lab: Lab, target: str) -> tuple[dict[str, list[dict[str, bool]]], float]:
    """What the command printed, and its seconds; of these two its error counters are watched."""
    begin = time.monotonic()
    done = subprocess.run(
        (*COMMAND, target, "-o", "json"),
        env=os.environ | {"KUBECONFIG": str(lab.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.monotonic() - begin
    if done.returncode not in (0, ILL):
        raise Unavailable(f"doctor {target}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout), took


def _spread(seconds: Sequence[float], nodes: int) -> str:
    return f"{nodes} nodes on this machine, {min(seconds):.1f} to {max(seconds):.1f} s"
