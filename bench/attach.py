"""How long a pod waits for its networks, with 1, 2, 4 and 8 NICs, beside what the kernel takes.

The node is a process with a network namespace of its own (attach_node.py): real links, journal with
fsync, IPAM. Each figure is of macvlan NICs on rails of their own, each with an address of its
rail's pool. `inside` is a call in the agent, `shim` one from the start of the shim's process to its
end, as the runtime sees it; the floor is the same messages and records bare (attach_floor.py). All
three take turns, and so do checkouts (checkout.py), so whatever else the machine does hits all.
Behind them come agents with a real API server, beside other programs (attach_programs.py).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench import attach_programs, checkout
from bench.attach_kubelet import kubelet
from bench.attach_node import KUBELET
from bench.checkout import Checkout
from bench.context import Context
from bench.figures import Figure, Row, attempt, despite
from bench.shim import BUILD, CALL, CONFIG, milliseconds
from kube_base.errors import Unavailable

IN_TURNS = True
NICS = (1, 2, 4, 8)
ROUNDS, WARM = 30, 2
AT_ONCE = 64
# What peers reached on a machine of two cores; not measured here.
PEER = "Multus and whereabouts add 30 to 60 ms for one"
PEER_REQUESTS = "they make 10 or more for one"


@dataclass(slots=True)
class Times:
    """What was measured with one number of NICs, in ms, one entry for each round."""

    floor: list[dict[str, float]] = field(default_factory=list)
    inside: list[dict[str, float]] = field(default_factory=list)
    shim: list[float] = field(default_factory=list)


class Driver:
    """Tells the node what to do, and is the runtime that calls the shim."""

    def __init__(self, node: subprocess.Popen[str], folder: Path) -> None:
        self._node = node
        self._folder = folder
        self._config = folder / "config"
        self._config.write_bytes(CONFIG)

    def ask(self, do: str, **words: int) -> dict[str, Any]:
        """One command; raise Unavailable with the end of the node's log when it has died."""
        assert self._node.stdin
        self._node.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self._node.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """What the node says next."""
        assert self._node.stdout
        line = self._node.stdout.readline()
        if not line:
            tail = (self._folder / "log").read_text().strip().splitlines() or ["nothing"]
            raise Unavailable(f"the benchmark's node has ended, its log says last: {tail[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def shims(self, nics: int, pods: int = 1) -> tuple[list[float], dict[str, Any]]:
        """Pods that start at the same moment: how long each waited, and what they have cost."""
        sandboxes = self.ask("open", nics=nics, pods=pods)["sandboxes"]
        with ThreadPoolExecutor(pods) as threads:
            times = list(threads.map(self._shim, sandboxes))
        return times, self.ask("close")

    @property
    def pid(self) -> int:
        """The node's process."""
        return self._node.pid

    def call(self, verb: str, sandbox: dict[str, Any], patience: float) -> bool:
        """One call; whether it came to a good end before the runtime gave it up."""
        with self._config.open("rb") as config:
            try:
                done = subprocess.run(
                    [str(self._folder / "kube-rdma")],
                    env={**self._environment(sandbox), "CNI_COMMAND": verb},
                    stdin=config,
                    stdout=subprocess.DEVNULL,
                    timeout=patience,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0

    def _shim(self, sandbox: dict[str, Any]) -> float:
        environment = self._environment(sandbox)
        return milliseconds(str(self._folder / "kube-rdma"), environment, self._config)

    def _environment(self, sandbox: dict[str, Any]) -> dict[str, str]:
        pod = f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={sandbox['pod']}"
        return {
            **CALL,
            "CNI_CONTAINERID": sandbox["container"],
            "CNI_NETNS": sandbox["path"],
            "CNI_ARGS": f"IgnoreUnknown=1;{pod};K8S_POD_UID={sandbox['uid']}",
            "KUBE_RDMA_ROOT": str(self._folder),
        }


def measure(context: Context) -> Iterator[Row]:
    """Let pods come and go, one after the other, then many at once."""
    load = f"in the agent; load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    with tempfile.TemporaryDirectory(prefix="attach-") as name, ExitStack() as stack:
        drivers = {
            of: stack.enter_context(node(Path(name) / f"node{number}", of))
            for number, of in enumerate(checkout.checkouts())
        }
        rounds(drivers, _times(drivers), WARM)
        times = _times(drivers)
        measured = partial(rounds, drivers, times, context.times(ROUNDS))
        yield from attempt("rounds", lambda: despite(measured, partial(_alone, times, load)))
        for nics in (NICS[0], NICS[-1]):
            for of, driver in drivers.items():
                crowd = partial(_at_once, of, driver, nics, context.times(AT_ONCE))
                yield from attempt(f"{of.prefix}crowd_{nics}", crowd)
    yield from attempt("programs", partial(attach_programs.measure, context))


AllTimes = dict[Checkout, dict[int, Times]]


def _times(checkouts: Iterable[Checkout]) -> AllTimes:
    return {of: {nics: Times() for nics in NICS} for of in checkouts}


def rounds(drivers: Mapping[Checkout, Driver], times: AllTimes, count: int) -> None:
    """Everything in turns."""
    for of in checkout.turns(count):
        driver = drivers[of]
        for nics, nic_times in times[of].items():
            nic_times.inside.append(driver.ask("inside", nics=nics))
            nic_times.floor.append(driver.ask("floor", nics=nics))
            nic_times.shim += driver.shims(nics)[0]


def _alone(times: AllTimes, load: str) -> Iterator[Figure]:
    """The figures of pods one after the other; none of less than two rounds."""
    for of, by_nics in times.items():
        if min(len(nic_times.shim) for nic_times in by_nics.values()) >= 2:
            yield from map(of.named, ratios(by_nics, load))
            every = (figure for nics in NICS for figure in figures(nics, by_nics[nics]))
            yield from map(of.named, every)


def _at_once(of: Checkout, driver: Driver, nics: int, pods: int) -> Iterator[Figure]:
    return map(of.named, crowded(nics, *driver.shims(nics, pods)))


def ratios(times_by_nics: dict[int, Times], load: str) -> tuple[Figure, ...]:
    """What has goals."""
    one_nic, most = times_by_nics[1], times_by_nics[NICS[-1]]
    floor, inside = middle(one_nic.floor, "ms"), middle(one_nic.inside, "ms")
    cpu, bare = middle(most.inside, "cpu_ms") / NICS[-1], middle(most.floor, "cpu_ms") / NICS[-1]
    alone, alone_bare = middle(one_nic.inside, "cpu_ms"), middle(one_nic.floor, "cpu_ms")
    every = [each for times in times_by_nics.values() for each in times.inside]
    blocks = sum(each["other_writes"] for each in every) / len(every)
    return (
        Figure("one_nic_to_floor", inside / floor, "×", "≤ 1.5", load),
        Figure("one_nic_shim_to_floor", median(one_nic.shim) / floor, "×", "", "through the shim"),
        Figure("eight_nics_by_one", middle(most.inside, "ms") / inside, "", "≤ 3", "in the agent"),
        Figure("eight_nics_by_one_shim", median(most.shim) / median(one_nic.shim), "", "≤ 3"),
        Figure("cpu_ms_one_nic", alone, "ms", "≤ 6", f"with the kernel's; bare {alone_bare:.1f}"),
        Figure("cpu_one_nic_to_floor", alone / alone_bare, "×"),
        Figure("cpu_ms_per_nic_of_eight", cpu, "ms", "≤ 6", f"bare {bare:.1f}"),
        Figure("api_requests_one_nic", middle(one_nic.inside, "requests"), "", "", PEER_REQUESTS),
        Figure("api_requests_eight_nics", middle(most.inside, "requests"), ""),
        Figure(
            "api_writes_per_pod",
            sum(each["status_writes"] for each in every) / len(every),
            "",
            "1",
            f"the status; address blocks, taken ahead for many pods, add {blocks:.2f}",
        ),
    )


def figures(nics: int, times: Times) -> tuple[Figure, ...]:
    """The times of one number of NICs."""
    inside, floor = middle(times.inside, "ms"), middle(times.floor, "ms")
    disk = f"of these {middle(times.floor, 'disk_ms'):.1f} for the disk"
    return (
        Figure(f"floor_{nics}_p50_ms", floor, "ms", "", disk),
        Figure(f"inside_{nics}_p50_ms", inside, "ms", "", f"{inside / floor:.1f} × the floor"),
        Figure(f"inside_{nics}_p99_ms", worst([each["ms"] for each in times.inside]), "ms"),
        Figure(f"shim_{nics}_p50_ms", median(times.shim), "ms", "", PEER if nics == 1 else ""),
        Figure(f"shim_{nics}_p99_ms", worst(times.shim), "ms"),
        Figure(f"del_{nics}_p50_ms", middle(times.inside, "del_ms"), "ms", "", _del_note(times)),
    )


def _del_note(times: Times) -> str:
    """The floor of DEL, which an older bench does not measure."""
    known = all("del_ms" in each for each in times.floor)
    return f"the kernel alone: {middle(times.floor, 'del_ms'):.1f}" if known else "in the agent"


def crowded(nics: int, times: list[float], cost: dict[str, Any]) -> tuple[Figure, ...]:
    """Many pods at once."""
    name, pods = f"crowd_{nics}", len(times)
    return (
        Figure(f"{name}_pods", pods, "", str(AT_ONCE), "all at once, all answered"),
        Figure(f"{name}_slowest_ms", max(times), "ms", "< 230000", "the shim waits no longer"),
        Figure(f"{name}_cpu_ms_per_nic", cost["cpu_ms"] / pods / nics, "ms"),
        Figure(f"{name}_grown_mib", cost["grown_mib"], "MiB", "", "at the peak"),
        Figure(f"{name}_api_writes_per_pod", cost["status_writes"] / pods, "", "1"),
    )


def middle(every: list[dict[str, float]], key: str) -> float:
    """The median of one key."""
    return median(each[key] for each in every)


def worst(times: list[float]) -> float:
    """The 99th percentile."""
    return quantiles(times, n=100, method="inclusive")[-1]


@contextmanager
def node(folder: Path, of: Checkout = checkout.OURS) -> Iterator[Driver]:
    """The node's process of a checkout with its kubelet and its shim, ready for pods."""
    folder.mkdir(exist_ok=True)
    build = [sys.executable, str(BUILD), platform.machine(), str(folder / "kube-rdma"), "--test"]
    subprocess.run(build, check=True)
    command = ["unshare", "--net", of.python, "-m", "bench.attach_node", str(folder)]
    with kubelet(folder / KUBELET), (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=of.folder,
            env=of.environment(),
        )
        with process:
            try:
                driver = Driver(process, folder)
                driver.answer()  # it is ready
                yield driver
            finally:
                process.kill()
