"""What a NicClusterPolicy costs in a large cluster: a controller and a real API server with etcd.

Nodes are objects alone; the DaemonSet controller and the scheduler are the real ones, and make a
pod for each, which no kubelet runs. The controller is a process of its own for each size, so its
memory is that of a start at this size. Writes are what the API server counted of what only it
writes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.context import Context, control_plane
from bench.figures import Figure, Row, attempt
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.lab import Lab

NAME, NAMESPACE = "opbench", "mlnx-network-operator"
CONFIG = Path(__file__).parents[1] / "config"
TICKS = os.sysconf("SC_CLK_TCK")
POLICY = "nicclusterpolicy/policy"
LABELS = {
    "feature.node.kubernetes.io/pci-15b3.present": "true",
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
}
# Nobody else writes these: pods and the status of DaemonSets are the DaemonSet controller's.
_WRITES = re.compile(
    r'^apiserver_request_total\{(?=[^}]*resource="(?:nicclusterpolicies|daemonsets|configmaps)")'
    r'(?=[^}]*verb="(?:POST|PUT|PATCH|APPLY|DELETE)")(?![^}]*resource="daemonsets"[^}]*'
    r'subresource="status")[^}]*\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class PolicyLoad:
    """How large the clusters are, and what happens there."""

    sizes: tuple[int, ...]  # nodes
    changed: int  # of them, one after the other
    quiet_seconds: float


USUAL = PolicyLoad((500, 1000, 2000), 100, 20.0)
SHORT = PolicyLoad((10, 20), 5, 2.0)


def measure(context: Context) -> Iterator[Row]:
    """The same policy over more and more nodes."""
    load = SHORT if context.short else USUAL
    settled: dict[int, float] = {}
    with large_cluster() as lab:
        present = 0
        for size in load.sizes:
            cluster.kubectl(lab, "create", "-f", "-", stdin=nodes(range(present, size)))
            present = size
            yield from attempt(f"nodes_{size}", partial(figures, lab, size, load, settled))


def figures(
    lab: Lab, size: int, load: PolicyLoad, cpu_seconds: dict[int, float]
) -> Iterator[Figure]:
    """Start the controller before a new policy; then change nothing; then some nodes.

    `cpu_seconds` has what smaller clusters took, and gets what this one takes.
    """
    name, before = f"nodes_{size}", writes(lab)
    with controller(lab) as pid:
        begin = time.monotonic()
        cluster.apply(lab, policy())
        waiting.until(lab, "the policy's status", lambda: state(lab))
        yield Figure(f"{name}_settled_s", time.monotonic() - begin, "s")
        cpu_seconds[size] = cpu(pid)
        yield _growth(size, cpu_seconds)
        waiting.until(lab, "the DaemonSet's count", lambda: wished(lab) == size)
        settled = rest(lab, load)
        yield Figure(f"{name}_settled_writes", settled - before, "")
        quiet = rest(lab, load)
        note = f"{load.quiet_seconds:.0f} s"
        yield Figure(f"{name}_quiet_writes", quiet - settled, "", "0", note)
        used, written = cpu(pid), writes(lab)
        names = [f"node/large-{n}" for n in range(load.changed)]
        cluster.kubectl(lab, "label", *names, f"bench={size}", "--overwrite")
        changed = rest(lab, load) - written
        yield Figure(f"{name}_changed_writes", changed, "", "0", f"{load.changed} labels")
        changed_ms = (cpu(pid) - used) * 1000 / load.changed
        yield Figure(f"{name}_changed_node_cpu_ms", changed_ms, "ms", "", "while pods are made")
        yield Figure(f"{name}_memory_mib", peak(pid), "MiB", "≤ 150", "the most that it had")


def _growth(size: int, cpu_seconds: dict[int, float]) -> Figure:
    """The CPU of one size, beside that of the smallest that was measured."""
    smallest, key = min(cpu_seconds), f"nodes_{size}_cpu_s"
    if size == smallest:
        return Figure(key, cpu_seconds[size], "s")
    note = f"{cpu_seconds[size] / cpu_seconds[smallest]:.1f} × the CPU of {smallest} nodes"
    return Figure(key, cpu_seconds[size], "s", f"≤ {size / smallest:.0f} ×", note)


@contextmanager
def large_cluster() -> Iterator[Lab]:
    """A control plane without nodes that has the operator's kinds, its namespace and a policy."""
    with control_plane(NAME) as lab:
        for folder in ("crds", "operator", "foreign"):
            cluster.kubectl(lab, "create", "-f", str(CONFIG / folder))
        cluster.wait(lab, "--for=condition=Established", "crd", "--all")
        cluster.kubectl(lab, "create", "namespace", NAMESPACE)
        cluster.kubectl(lab, "create", "serviceaccount", "-n", NAMESPACE, "kube-rdma-agent")
        yield lab


def policy() -> dict[str, object]:
    """One that deploys a device plugin everywhere."""
    entry = {"resourceName": "hca", "rdmaHcaMax": 1000, "devices": ["ens2f0"]}
    plugin = {"image": "kube-rdma", "repository": "localhost", "version": "dev"}
    config = json.dumps({"configList": [entry]})
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": "policy", "namespace": NAMESPACE},
        "spec": {"devicePlugin": {**plugin, "config": config}},
    }


def nodes(numbers: range) -> str:
    """Nodes with cards, as one document."""
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"large-{n}",
                "labels": {**LABELS, "kubernetes.io/hostname": f"large-{n}"},
            },
        }
        for n in numbers
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def rest(lab: Lab, load: PolicyLoad) -> float:
    """Let some time go by without a change; the writes until then."""
    time.sleep(load.quiet_seconds)
    return writes(lab)


def wished(lab: Lab) -> int:
    """For how many nodes the DaemonSet controller wants pods; it goes on making them."""
    sets = cluster.get(lab, "-n", NAMESPACE, "daemonsets")["items"]
    return sum(each.get("status", {}).get("desiredNumberScheduled", 0) for each in sets)


def state(lab: Lab) -> str:
    """What the policy's status says."""
    document = cluster.get(lab, "-n", NAMESPACE, POLICY)
    return str(document.get("status", {}).get("state", ""))


@contextmanager
def controller(lab: Lab) -> Iterator[int]:
    """A controller in the lab's network; its policy and what it made go with it."""
    command = [
        *("nsenter", f"--target={lab.state.pid}", "--net", "--", sys.executable),
        *("-m", "kube_rdma.cli.main", "controller", "--policies"),
        *("--namespace", NAMESPACE, "--kubeconfig", f"{lab.home}/pki/admin.kubeconfig"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        waiting.until(lab, "the controller's lease", lambda: leads(lab, process))
        clear(lab)  # of a size that failed
        yield process.pid
        clear(lab)
    finally:
        process.terminate()
        process.wait()


def clear(lab: Lab) -> None:
    """Delete the policy; wait until the controller has deleted what it deploys."""
    cluster.kubectl(lab, "delete", "-n", NAMESPACE, POLICY, "--ignore-not-found")
    waiting.until(lab, "no DaemonSet", lambda: not daemon_sets(lab))


def leads(lab: Lab, process: subprocess.Popen[bytes]) -> bool:
    """Whether this controller is the one that works."""
    if process.poll() is not None:
        raise Unavailable(f"The controller of the benchmark ended with {process.returncode}.")
    leases = cluster.get(lab, "-n", NAMESPACE, "leases")["items"]
    return any(each["spec"].get("holderIdentity") for each in leases)


def daemon_sets(lab: Lab) -> list[object]:
    """What the policy deploys."""
    return list(cluster.get(lab, "-n", NAMESPACE, "daemonsets")["items"])


def cpu(pid: int) -> float:
    """Seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak(pid: int) -> float:
    """The most memory that a process had, in MiB."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) / 1024


def writes(lab: Lab) -> float:
    """Of policies, DaemonSets and ConfigMaps, since the API server started."""
    text = cluster.kubectl(lab, "get", "--raw", "/metrics")
    return sum(float(count) for count in _WRITES.findall(text))
