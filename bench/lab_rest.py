"""A lab in which nothing happens: what its machines cost then, and how soon they answer.

`bench lab` asks here on a lab that has just shown the demo, quiet and with a busy loop beside it.
The CPU is that of QEMU's processes, from /proc of this host: guest, emulation and devices together.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.context import Context
from bench.figures import Figure
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.lab import Lab

SETTLE_SECONDS = 30  # what starting left behind: the kubelet's first status, Go's collections
WINDOW_SECONDS = 60  # holds each of the kubelet's periods several times, but for the longest
BUSY_SECONDS = 3600  # an end even if the benchmark is killed
PODS = 3
TICK = os.sysconf("SC_CLK_TCK")
NETWORK = "s3-network"
PLAIN_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "plain"},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": "localhost/lab/verbs:1",
                "command": ["sleep", "1000000"],
            }
        ],
    },
}


@contextmanager
def busy_loop() -> Iterator[None]:
    """Keep a loop running on every processor of this host while the scope is open."""
    code = f"import time\nend = time.monotonic() + {BUSY_SECONDS}\nwhile time.monotonic() < end: 0"
    loops = [subprocess.Popen((sys.executable, "-c", code)) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(lab: Lab, context: Context) -> Iterator[Figure]:
    """Measure a lab that holds seed S2's agent and pods: at rest, then with seed S3 installed."""
    scc.remove_pods(lab)
    pods = context.times(PODS, 1)
    yield from at_rest(_machines(lab), "agent", context)
    install_network(lab)
    yield from at_rest(_machines(lab), "s3", context)
    plain = [_plain_pod_seconds(lab) for _ in range(pods)]
    yield Figure("pod_seconds", statistics.median(plain), "s", note=spread(plain))
    networked = [_network_pod_seconds(lab) for _ in range(pods)]
    yield Figure("network_pod_seconds", statistics.median(networked), "s", note=spread(networked))


def install_network(lab: Lab) -> None:
    """Install seed S3's agent, controller and network."""
    folder = scc.examples() / NETWORK
    scc.install_kinds(lab)
    cluster.label_cards(lab)
    cluster.kubectl(lab, "apply", "-f", f"{folder}/agent.yaml", "-f", f"{folder}/controller.yaml")
    cluster.rollout(lab, "rdma-shared-dp-ds", "mlnx-network-operator")
    cluster.wait_for_resource(lab, "rdma/hca_shared_devices_a", "1k")
    cluster.kubectl(lab, "apply", "-f", f"{folder}/rdma-net-ipam.yaml")


def _machines(lab: Lab) -> Mapping[str, int]:
    return {node.name: machine_pid(lab.state.pid, node.name) for node in lab.topology.machines}


def at_rest(pids: Mapping[str, int], state: str, context: Context) -> tuple[Figure, ...]:
    """Return the share of one processor that each of these machines takes, by its node."""
    time.sleep(context.times(SETTLE_SECONDS))
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    begin = time.monotonic()
    time.sleep(context.times(WINDOW_SECONDS))
    seconds = time.monotonic() - begin
    return tuple(
        Figure(
            f"rest_{state}_{name.replace('-', '_')}",
            (cpu_seconds(pid) - before[name]) / seconds,
            "",
            note="of one processor",
        )
        for name, pid in pids.items()
    )


def machine_pid(supervisor: int, node: str) -> int:
    """Return the process of a node's machine: the supervisor's child that has the node's name."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    for child in children:
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if ("-name", node) in itertools.pairwise(words):
            return int(child)
    raise AssertionError(f"the supervisor {supervisor} has no machine {node}")


def cpu_seconds(pid: int) -> float:
    """Return what all threads of a process have used, user and system (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _plain_pod_seconds(lab: Lab) -> float:
    begin = time.monotonic()
    cluster.apply(lab, PLAIN_POD)
    cluster.ready(lab, "plain")
    seconds = time.monotonic() - begin
    cluster.kubectl(lab, "delete", "pod", "plain")
    return seconds


def _network_pod_seconds(lab: Lab) -> float:
    manifest = f"{scc.examples()}/{NETWORK}/rdma-test-pod1.yml"
    begin = time.monotonic()
    cluster.kubectl(lab, "apply", "-f", manifest)
    cluster.ready(lab, "rdma-test-pod-1")
    seconds = time.monotonic() - begin
    cluster.kubectl(lab, "delete", "-f", manifest, "--grace-period=1")
    return seconds


def spread(seconds: Sequence[float]) -> str:
    """Return how far runs lay apart, for a figure's note."""
    return f"{min(seconds):.1f} to {max(seconds):.1f} in {len(seconds)} runs"
