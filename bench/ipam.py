"""How fast pods get addresses of one cluster-wide pool, with a real API server and etcd.

Node clients (kube_rdma_tools.address_load) run as they do in the agent: journal with fsync, node
lease, watches. They share this machine with the API server and etcd, so all of it is in a figure.
A request is timed from when it is made until its answer could be sent to the runtime. Writes are
what the API server counted of blocks and pools, lost races too; renewals of leases are not in it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any

from bench.checkout import OURS, Checkout, checkouts
from bench.clients import expect, talking, tell
from bench.context import Context, control_plane
from bench.figures import Figure, Row, attempt
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab

NAME = "ipbench"
CRDS = Path(__file__).parents[1] / "config" / "crds"
PROCESSES = 4
MOST = 5000  # nodes of the largest cluster that Kubernetes supports
WIDE = {"subnet": "10.0.0.0/10"}
# What a peer reached on a machine of two cores; not measured here.
PEER_RATE, PEER_P99, PEER_WRITES = 9.0, 18_000.0, 4.5
WRITES = re.compile(
    r'^apiserver_request_total\{(?=[^}]*group="kube-rdma\.io")'
    r'(?=[^}]*verb="(?:POST|PUT|PATCH|APPLY|DELETE)")[^}]*\} (\S+)$',
    re.MULTILINE,
)
ANSWERS = re.compile(
    r'^apiserver_response_sizes_sum\{(?=[^}]*group="kube-rdma\.io")'
    r'(?=[^}]*verb="(?:GET|LIST)")[^}]*\} (\S+)$',
    re.MULTILINE,
)
EVENTS = re.compile(
    r'^apiserver_watch_events_sizes_sum\{(?=[^}]*group="kube-rdma\.io")[^}]*\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Run:
    """One load, in a network of its own."""

    name: str
    nodes: int
    pods: int  # of each node
    nics: int = 1
    range: tuple[tuple[str, str], ...] = tuple(WIDE.items())
    floor: int = 0  # pods for each write of a block, by ipam_floor in place of kube-rdma's nodes


@dataclass(frozen=True, slots=True)
class Result:
    """What a load took."""

    addresses: int
    seconds: float
    times: tuple[float, ...]  # of each request, sorted, in ms
    writes: int
    cpu_seconds: float  # of all nodes
    duplicates: int
    refusals: int  # requests that were made again
    memory: float  # MiB of one process

    @property
    def rate(self) -> float:
        """Addresses each second."""
        return self.addresses / self.seconds

    @property
    def writes_per_address(self) -> float:
        """Writes of blocks and pools for each address."""
        return self.writes / self.addresses

    def at(self, share: float) -> float:
        """The time that this share of the requests stayed below, in ms."""
        return self.times[min(len(self.times) - 1, int(len(self.times) * share))]


def measure(context: Context) -> Iterator[Row]:
    """Boot a control plane without nodes, run every load, take it down."""
    with control_plane(NAME) as lab:
        cluster.kubectl(lab, "apply", "-f", "-", stdin=definitions())
        cluster.wait(lab, "--for=condition=Established", "crd", "--all")
        for name, part in PARTS.items():
            yield from attempt(name, partial(part, lab, context))


def _clients_1(lab: Lab, context: Context) -> Iterator[Figure]:
    result = run(lab, Run("c1", 1, context.times(1000)))
    yield from figures("clients_1", result)
    note = "a process of one node, interpreter too"
    yield Figure("client_memory_mib", result.memory, "MiB", "", note)


def _clients_8(lab: Lab, context: Context) -> Iterator[Figure]:
    yield from figures("clients_8", run(lab, Run("c8", 8, context.times(250))))


def _clients_32(lab: Lab, context: Context) -> Iterator[Figure]:
    load = f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    pods = context.times(200)
    many = run(lab, Run("c32", 32, pods))
    yield from headline(many, load)
    every = max(1, round(1 / max(many.writes_per_address, 0.005)))
    yield from beside(many, run(lab, Run("floor", 32, pods, floor=every)))


def _pods_8_nics(lab: Lab, context: Context) -> Iterator[Figure]:
    yield from figures("pods_8_nics", run(lab, Run("pods", context.times(100), 10, nics=8)))


def _exact_fit(lab: Lab, context: Context) -> Iterator[Figure]:
    few = (("subnet", "10.0.0.0/24"), ("start", "10.0.0.1"), ("end", "10.0.0.250"))
    nodes = context.times(25)
    exact = run(lab, Run("exact", nodes, 10, range=few))
    yield from exact_fit("exact_fit", exact, "", f"{nodes * 10} pods, 250 addresses, {nodes} nodes")


def _exact_fit_1000(lab: Lab, context: Context) -> Iterator[Figure]:
    enough = (("subnet", "10.0.0.0/16"), ("start", "10.0.0.1"), ("end", "10.0.3.235"))
    nodes = context.times(100)
    exact = run(lab, Run("thousand", nodes, 10, range=enough))
    note = f"{nodes * 10} pods, 1000 addresses, {nodes} nodes"
    yield from exact_fit("exact_fit_1000", exact, "≤ 10", note)


def _sizes(lab: Lab, context: Context) -> Iterator[Figure]:
    pods = context.times(200)
    small = run(lab, Run("small", 1, pods, range=(("subnet", "10.0.0.0/24"),)))
    yield Figure("size_24_p50_ms", small.at(0.5), "ms", "", "a pool of 254 addresses")
    large = run(lab, Run("large", 1, pods))
    yield Figure("size_10_p50_ms", large.at(0.5), "ms", "as a /24", "one of 4 million")


def _traffic(lab: Lab, context: Context) -> Iterator[Figure]:
    yield from traffic(lab, context.times(40))


# Each in a network of its own; where one fails, the others are measured.
PARTS: Mapping[str, Callable[[Lab, Context], Iterator[Figure]]] = {
    "clients_1": _clients_1,
    "clients_8": _clients_8,
    "clients_32": _clients_32,
    "pods_8_nics": _pods_8_nics,
    "exact_fit": _exact_fit,
    "exact_fit_1000": _exact_fit_1000,
    "sizes": _sizes,
    "traffic": _traffic,
}


def headline(result: Result, load: str) -> tuple[Figure, ...]:
    """32 nodes at once, one address for each request, beside the peer."""
    return (
        Figure(
            "addresses_per_second",
            result.rate,
            "/s",
            "≥ 900",
            f"32 nodes; {result.rate / PEER_RATE:.0f} times the peer; {load}",
        ),
        Figure("p50_ms", result.at(0.5), "ms"),
        Figure("p99_ms", result.at(0.99), "ms", "≤ 20", f"{PEER_P99 / result.at(0.99):.0f} times"),
        Figure(
            "api_writes_per_address",
            result.writes_per_address,
            "",
            "≤ 0.25",
            f"{PEER_WRITES / max(result.writes_per_address, 1e-9):.0f} times less",
        ),
        Figure("duplicates", result.duplicates, "", "0"),
    )


def beside(result: Result, floor: Result) -> tuple[Figure, ...]:
    """The same requests to API server and disk without rules, in the same run."""
    note = f"p50 {floor.at(0.5):.1f} ms, {floor.writes_per_address:.3f} writes per address"
    ratio = result.at(0.99) / floor.at(0.99)
    cpu = result.cpu_seconds / floor.cpu_seconds
    return (
        Figure("floor_p99_ms", floor.at(0.99), "ms", "", note),
        Figure("p99_to_floor", ratio, "×", "≤ 2", f"CPU of the nodes: {cpu:.1f} ×"),
    )


def exact_fit(name: str, result: Result, goal: str, note: str) -> tuple[Figure, ...]:
    """The figures of a pool that has just enough addresses."""
    return (
        *figures(name, result),
        Figure(f"{name}_seconds", result.seconds, "s", goal, note),
        Figure(f"{name}_refusals", result.refusals, "", "0", "waited 5 s, were asked again"),
    )


def figures(name: str, result: Result) -> tuple[Figure, ...]:
    """The same figures for another load."""
    return (
        Figure(
            f"{name}_addresses_per_second", result.rate, "/s", "", f"{result.addresses} of them"
        ),
        Figure(f"{name}_p50_ms", result.at(0.5), "ms"),
        Figure(f"{name}_p99_ms", result.at(0.99), "ms"),
        Figure(f"{name}_api_writes_per_address", result.writes_per_address, ""),
        Figure(f"{name}_duplicates", result.duplicates, "", "0"),
    )


def definitions() -> str:
    """All custom resource definitions, as one document."""
    return "\n---\n".join(path.read_text() for path in sorted(CRDS.glob("ip*.yaml")))


def apply_pool(lab: Lab, load: Run) -> list[str]:
    """Make the pool of a load; return the names of its nodes."""
    pool = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": load.name},
        "spec": {"network": load.name, "ranges": [dict(load.range)], "restSeconds": 0},
    }
    cluster.apply(lab, pool)
    return [f"{load.name}-{n}" for n in range(load.nodes)]


def run(lab: Lab, load: Run) -> Result:
    """Start the clients, let them all begin at once, sum up what they print."""
    names = apply_pool(lab, load)
    shares = [names[n::PROCESSES] for n in range(min(PROCESSES, load.nodes))]
    with tempfile.TemporaryDirectory() as journals, ExitStack() as stack:
        clients = [
            stack.enter_context(client(lab, share, load, Path(journals))) for share in shares
        ]
        for process in clients:
            expect(process, "ready")
        before = writes(lab)
        for process in clients:
            tell(process)
        with ThreadPoolExecutor(len(clients)) as threads:  # a full pipe would hold others up
            parts = list(threads.map(lambda process: expect(process, "{"), clients))
        return result([json.loads(part) for part in parts], writes(lab) - before)


def traffic(lab: Lab, most: int) -> Iterator[Figure]:
    """The bytes of blocks and pools that a pod costs, and a start of all agents, by size."""
    for checkout in checkouts():
        sizes = (max(4, most // 4), max(8, most))
        few, many = (_bytes(lab, checkout, nodes) for nodes in sizes)
        growth = log(MOST / sizes[1]) / log(sizes[1] / sizes[0])
        for key, place, unit, scale, goal in (
            ("pod_watch_kb", 0, "kB", 1e3, "≤ 20"),
            ("start_of_all_gb", 1, "GB", 1e9 / MOST, "≤ 0.5"),
        ):
            at_most = many[place] * (many[place] / few[place]) ** growth
            note = ", ".join(
                f"{at[place]:.0f} B with {n}" for at, n in zip((few, many), sizes, strict=True)
            )
            exponent = log(many[place] / few[place]) / log(sizes[1] / sizes[0])
            note += f" nodes, exponent {exponent:.2f}; carried on to {MOST}"
            yield checkout.named(Figure(f"blocks_{key}", at_most / scale, unit, goal, note))


def _bytes(lab: Lab, checkout: Checkout, nodes: int) -> tuple[float, float]:
    """Bytes of watches for each pod with eight NICs, and of all that an agent reads to start."""
    load = Run(f"{checkout.prefix}traffic-{nodes}".replace("_", "-"), nodes, 1, nics=8)
    cluster.kubectl(lab, "delete", "ipblocks,ippools", "--all")  # else they are sent too
    names = apply_pool(lab, load)
    shares = [names[n::PROCESSES] for n in range(PROCESSES)]
    with tempfile.TemporaryDirectory() as journals:
        for_pods = 0.0
        for is_again in (False, True):
            before = sent(lab)
            with ExitStack() as stack:
                clients = [
                    stack.enter_context(client(lab, share, load, Path(journals), checkout))
                    for share in shares
                ]
                for process in clients:
                    expect(process, "ready")
                if is_again:
                    return for_pods / nodes, (sum(sent(lab)) - sum(before)) / nodes
                before = sent(lab)
                for process in clients:
                    tell(process)
                for process in clients:
                    expect(process, "{")
                settled(lab)
                for_pods = sent(lab)[1] - before[1]
                for process in clients:
                    tell(process)
                    process.wait()
    raise AssertionError


def settled(lab: Lab) -> None:
    """Wait until nothing more is sent of the last writes."""
    last = (-1.0, -1.0)
    while (now := sent(lab)) != last:
        last = now
        time.sleep(1.0)


def sent(lab: Lab) -> tuple[float, float]:
    """Bytes of blocks and pools that the API server sent: answers to reads, events of watches."""
    text = cluster.kubectl(lab, "get", "--raw", "/metrics")
    answers, events = (
        sum(float(count) for count in pattern.findall(text)) for pattern in (ANSWERS, EVENTS)
    )
    return answers, events


def result(parts: Sequence[dict[str, Any]], written: int) -> Result:
    """One result of what all processes printed."""
    pods = [pod for part in parts for pod in part["pods"]]
    given = [address for pod in pods for address in pod["addresses"]]
    return Result(
        len(given),
        max(part["end"] for part in parts) - min(part["begin"] for part in parts),
        tuple(sorted(pod["seconds"] * 1000 for pod in pods)),
        written,
        sum(part["cpu_seconds"] for part in parts),
        len(given) - len(set(given)),
        sum(pod["refusals"] for pod in pods),
        parts[0]["max_rss_kib"] / 1024,
    )


@contextmanager
def client(
    lab: Lab, names: Sequence[str], load: Run, journals: Path, checkout: Checkout = OURS
) -> Iterator[subprocess.Popen[str]]:
    """A process with some nodes, in the lab's network."""
    words = ["--pool", load.name, "--pods", str(load.pods), "--nics", str(load.nics)]
    module = "kube_rdma_tools.address_load"
    if load.floor:
        module, words = "bench.ipam_floor", [*words[:4], "--every", str(load.floor)]
    command = [
        *("nsenter", f"--target={lab.state.pid}", "--net", "--"),
        *("env", f"PYTHONPATH={checkout.environment()['PYTHONPATH']}", checkout.python),
        *("-m", module, *words),
        *("--kubeconfig", f"{lab.home}/pki/admin.kubeconfig", "--journals", str(journals)),
        *names,
    ]
    with talking(command) as process:
        yield process


def writes(lab: Lab) -> int:
    """How many writes of IPPools and IPBlocks the API server has answered since it started."""
    text = cluster.kubectl(lab, "get", "--raw", "/metrics")
    return round(sum(float(count) for count in WRITES.findall(text)))
