"""How fast pods with a claim get their node, beside pods without one and beside a floor driver.

    pods made while the scheduler stands still ─► it goes on ─► a watch tells of each pod's node

API server, etcd and scheduler are the real ones; nodes are objects alone, and no kubelet runs. Each
load has nodes of its own. A claim of this driver is for a share of 8 cards, in the slices that the
rules of a checkout make of them: a process of the other checkout says what those of that commit
are. `whole` has the same cards without rows of shares, a device for each; `bare` has as many
devices as the rows, with nothing but names. The floor's nodes have a slice of one device without
attributes, which any number of claims share: less cannot be asked of the scheduler's allocator.
The loads take turns, so whatever else the machine does hits all of them. The scheduler is one of
the bench's own: the lab's asks the API server 50 times a second at most (`qps` of its
clientConnection), which would hide what a claim costs.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.checkout import Checkout, checkouts
from bench.claim_spread import CARDS, in_order, offered, slices_text
from bench.context import Context, control_plane
from bench.figures import Figure, Row, attempt, despite
from kube_base.errors import Unavailable
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab

IN_TURNS = True
NAME = "schedbench"
SCHEDULER = "bench"  # who schedules these pods
SHARES = 16  # of each of 8 cards
QUIET_SECONDS = 120.0  # without a pod that gets its node
MARKER = "marker"  # a pod that has its node from the start: the watch has begun once it is seen
EVERYWHERE = [{"operator": "Exists"}]  # no kubelet runs, so every node gets taints
RESOURCE_API = "resource.k8s.io/v1"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimLoad:
    """How many nodes and pods each kind has; the pods come at once, so many times."""

    nodes: int
    pods: int
    rounds: int


USUAL = ClaimLoad(16, 100, 10)
SHORT = ClaimLoad(2, 10, 2)
PLAIN, FLOOR, BARE, WHOLE, CLAIMS = "plain", "floor", "bare", "whole", "claims"


def loads() -> dict[str, Checkout | None]:
    """What pods claim, which is also their class; the checkout whose slices these are."""
    rows = {checkout.prefix + CLAIMS: checkout for checkout in checkouts()}
    return {**dict.fromkeys((PLAIN, FLOOR, BARE, WHOLE)), **rows}


def _driver(load: str) -> str:
    return DRIVER if load == CLAIMS else f"{load.replace('_', '-')}.example.com"


def _selector(load: str) -> str:
    """Of shares the expression of the chart."""
    driver = _driver(load)
    mine = f'device.driver == "{driver}"'
    if load in {FLOOR, BARE}:
        return mine
    return f'{mine} && device.attributes["{driver}"].mode == "shared-multi"'


@dataclass(slots=True)
class Pace:
    """What pods of one kind took, all rounds together."""

    pods: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the scheduler

    @property
    def per_second(self) -> float:
        """Pods that got their node."""
        return self.pods / self.seconds

    @property
    def cpu_ms(self) -> float:
        """The scheduler's work for each pod."""
        return self.cpu_seconds * 1000 / self.pods


Paces = dict[str, list[Pace]]
"""Of each load, each round."""


class BenchScheduler:
    """A scheduler that goes on only while a batch of pods is measured."""

    def __init__(self, lab: Lab, process: subprocess.Popen[bytes], log: Path) -> None:
        self._lab = lab
        self._process = process
        self._log = log

    def batch(self, load: str, names: list[str], pace: Pace) -> None:
        """Make these pods, let them be scheduled, and add to the pace what that took."""
        text = _list(document for name in names for document in wanted(load, name))
        cluster.kubectl(self._lab, "create", "-f", "-", stdin=text)
        with closing(self.watch(load)) as bound:
            left = set(names)
            while (name := self._next(bound, len(left))) != MARKER:  # until the watch has begun
                left.discard(name)
            before = task_clock(self._process.pid)
            self._process.send_signal(signal.SIGCONT)
            begin = time.monotonic()
            while left:
                left.discard(self._next(bound, len(left)))
            pace.seconds += time.monotonic() - begin
            pace.cpu_seconds += task_clock(self._process.pid) - before
            pace.pods += len(names)
            self._process.send_signal(signal.SIGSTOP)

    def _next(self, bound: Iterator[str], left: int) -> str:
        if (name := next(bound, None)) is None:
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["nothing"]
            raise Unavailable(
                f"{left} pods got no node for {QUIET_SECONDS:g} s, the scheduler's log ends: "
                f"{lines[-1]}"
            )
        return name

    def watch(self, load: str) -> Generator[str, None, None]:
        """The names of pods of a load that have a node, the marker and those of before first.

        The API server ends the watch of a client that reads too slowly, as on a busy machine; the
        next one begins with all of them.
        """
        words = ("get", "pods", "--watch", "--output=name", "--field-selector=spec.nodeName!=")
        argv = self._lab.kubectl(*words, f"--selector=load in ({MARKER},{load})")
        ended = True
        while ended:
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
                try:
                    assert process.stdout
                    ended = yield from _lines(process.stdout.fileno())
                    if ended and process.wait():
                        raise Unavailable("`kubectl get pods --watch` failed, see above")
                finally:
                    process.kill()


def _lines(descriptor: int) -> Generator[str, None, bool]:
    """The last words of lines as they come; whether they have ended, else none came for long."""
    text = b""
    while select.select([descriptor], [], [], QUIET_SECONDS)[0]:
        if not (new := os.read(descriptor, 1 << 16)):
            return True
        *whole, text = (text + new).split(b"\n")
        for line in whole:
            yield line.decode().rpartition("/")[2]
    return False


def task_clock(pid: int) -> float:
    """Seconds that all threads of a process have run (proc_pid_schedstat)."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def measure(context: Context) -> Iterator[Row]:
    """Boot a control plane, offer devices, let pods come in turns."""
    load = SHORT if context.short else USUAL
    if context.pods:
        load = replace(load, pods=context.pods // load.rounds)
    paces: Paces = {name: [] for name in loads()}
    with control_plane(NAME) as lab:
        _offer(lab, load.nodes)
        measured = partial(_rounds, lab, load, paces)
        yield from attempt("rounds", lambda: despite(measured, partial(figures, paces, load)))


def _rounds(lab: Lab, load: ClaimLoad, paces: Paces) -> None:
    """Each load in turns; another one comes first in each round, and the order turns around."""
    kinds = list(paces)
    with scheduler(lab) as chooser:
        for number in range(load.rounds):
            first = number % len(kinds)
            for kind in (*kinds[first:], *kinds[:first])[:: 1 - 2 * (number % 2)]:
                names = [f"{kind}-{number}-{pod}".replace("_", "-") for pod in range(load.pods)]
                pace = Pace()
                chooser.batch(kind, names, pace)
                paces[kind].append(pace)


def figures(paces: Paces, load: ClaimLoad) -> Iterator[Figure]:
    """The figures of the loads, and what they are beside each other, of rounds that all had."""
    rounds = min(map(len, paces.values()))
    if not rounds:
        return
    paces = {name: each[:rounds] for name, each in paces.items()}
    totals = {name: _total(each) for name, each in paces.items()}
    for name, pace in totals.items():
        note = f"{pace.pods} pods on {load.nodes} nodes of theirs, {load.pods} at once"
        yield Figure(f"{name}_per_second", pace.per_second, "/s", "", note)
        yield Figure(f"{name}_cpu_ms", pace.cpu_ms, "ms", "", "the scheduler's, for each pod")
    for name in sorted(totals.keys() - {PLAIN, FLOOR, BARE, WHOLE}):
        prefix = name.removesuffix(CLAIMS)
        pairs = zip(paces[name], paces[FLOOR], strict=True)
        rate = median(ours.per_second / floor.per_second for ours, floor in pairs)
        note = "by the floor's, the median round"
        yield Figure(f"{prefix}claim_pods_per_second", rate, "×", "≥ 0.8", note)
        parts = (
            (FLOOR, "≤ 1.5", "the scheduler's"),
            (WHOLE, "", "the part of rows"),
            (BARE, "", "the part of what devices and selectors say"),
        )
        for other, goal, note in parts:
            work = totals[name].cpu_ms / totals[other].cpu_ms
            yield Figure(f"{prefix}claim_cpu_to_{other}", work, "×", goal, note)
        last = paces[name][-1].cpu_ms / paces[FLOOR][-1].cpu_ms
        held = totals[name].pods // load.nodes
        note = f"the last round, up to {held} of {SHARES * CARDS} shares of a node"
        yield Figure(f"{prefix}claim_cpu_to_floor_last", last, "×", "", note)
    notes = {BARE: "the part of the number of devices", WHOLE: "a device for each card"}
    for name, note in notes.items():
        work = totals[name].cpu_ms / totals[FLOOR].cpu_ms
        yield Figure(f"{name}_cpu_to_floor", work, "×", "", note)


def _total(rounds: Iterable[Pace]) -> Pace:
    whole = Pace()
    for pace in rounds:
        whole.pods += pace.pods
        whole.seconds += pace.seconds
        whole.cpu_seconds += pace.cpu_seconds
    return whole


@contextmanager
def scheduler(lab: Lab) -> Iterator[BenchScheduler]:
    """A scheduler without a limit of requests, standing still."""
    config, log = lab.home / "bench-scheduler.json", lab.home / "bench-scheduler.log"
    config.write_text(json.dumps(_configuration(lab.home / "pki/scheduler.kubeconfig")))
    command = [
        *("nsenter", f"--target={lab.state.pid}", "--net", "--"),
        *(f"{lab.state.binaries}/kube-scheduler", f"--config={config}", "--secure-port=0"),
    ]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        chooser = BenchScheduler(lab, process, log)
        chooser.batch(PLAIN, ["first"], Pace())  # what a start takes is not a batch's
        yield chooser
    finally:
        process.kill()
        process.wait()


def _configuration(kubeconfig: Path) -> Document:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "profiles": [{"schedulerName": SCHEDULER}],
    }


def _offer(lab: Lab, count: int) -> None:
    """Make the nodes of each load, and what is offered there."""
    made = [_node(load, number) for load in loads() for number in range(count)]
    classes = [_class(load) for load in loads() if load != PLAIN]
    cluster.kubectl(lab, "create", "-f", "-", stdin=_list([*made, *classes]))
    texts = {load: _slices(load, checkout) for load, checkout in loads().items()}
    slices: list[Document] = []
    for node in cluster.get(lab, "nodes")["items"]:
        meta = node["metadata"]
        text = texts[meta["labels"]["load"]].replace(NODE, meta["name"])
        slices += json.loads(text.replace(OWNER, meta["uid"]))
    marker = _pod(MARKER, MARKER)
    marker["spec"] = {**marker["spec"], "nodeName": made[0]["metadata"]["name"], "nodeSelector": {}}
    cluster.kubectl(lab, "create", "-f", "-", stdin=_list([*slices, marker]))


NODE, OWNER = "the-node", "the-owner"  # of slices, in place of a node's name and uid
PUBLISHED = f"""
import sys
from bench.claim_spread import in_rows, offered, slices_text
print(slices_text(in_rows(offered({SHARES}), {{}}), *sys.argv[1:]))
"""


def _slices(load: str, checkout: Checkout | None) -> str:
    """What a node of a load offers, as JSON."""
    mine = NODE, OWNER, _driver(load)
    if checkout:
        return _published(checkout, *mine)
    if load == WHOLE:
        return slices_text(in_order(offered(SHARES), {}), *mine)
    if load == BARE:
        slices = json.loads(_published(checkouts()[0], *mine))
        for part in slices:
            names = [device["name"] for device in part["spec"]["devices"]]
            part["spec"]["devices"] = [{"name": name} for name in names]
        return json.dumps(slices)
    return json.dumps([_floor_slice()] if load == FLOOR else [])


def _published(checkout: Checkout, *arguments: str) -> str:
    """What the agent of a checkout publishes on a node with such cards."""
    argv = [checkout.python, "-c", PUBLISHED, *arguments]
    return subprocess.run(
        argv, cwd=checkout.folder, env=checkout.environment(), text=True, check=True, stdout=-1
    ).stdout


def _list(documents: Iterable[Document]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def _node(load: str, number: int) -> Document:
    name = f"{load}-{number}".replace("_", "-")
    room = {"cpu": "128", "memory": "1Ti", "pods": "5000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "load": load}},
        "status": {"capacity": room, "allocatable": room},
    }


def _class(load: str) -> Document:
    return {
        "apiVersion": RESOURCE_API,
        "kind": "DeviceClass",
        "metadata": {"name": load.replace("_", "-")},
        "spec": {"selectors": [{"cel": {"expression": _selector(load)}}]},
    }


def _floor_slice() -> Document:
    return {
        "apiVersion": RESOURCE_API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"floor-{NODE}"},
        "spec": {
            "driver": _driver(FLOOR),
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "device", "allowMultipleAllocations": True}],
        },
    }


def wanted(load: str, name: str) -> Iterator[Document]:
    """A pod, after the claim that it has."""
    if load != PLAIN:
        device_class = load.replace("_", "-")
        request = {"name": "device", "exactly": {"deviceClassName": device_class}}
        yield {
            "apiVersion": RESOURCE_API,
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
    yield _pod(load, name, claim=load != PLAIN)


def _pod(load: str, name: str, *, claim: bool = False) -> Document:
    container: Document = {"name": "main", "image": "none"}
    spec: Document = {
        "schedulerName": SCHEDULER,
        "tolerations": EVERYWHERE,
        "nodeSelector": {"load": load},
    }
    if claim:
        container["resources"] = {"claims": [{"name": "device"}]}
        spec["resourceClaims"] = [{"name": "device", "resourceClaimName": name}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"load": load}},
        "spec": {**spec, "containers": [container]},
    }
