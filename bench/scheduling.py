"""How fast pods with a claim get their node, beside pods without one and beside a floor driver.

    pods made while the scheduler stands still ─► it goes on ─► a watch tells of each pod's node

API server, etcd and scheduler are the real ones; nodes are objects alone, and no kubelet runs. Each
load has nodes of its own. A claim of this driver is for a share of 8 cards, in the slices that the
agent makes of them; `whole` has the same cards without rows of shares, a device for each. The
floor's nodes have a slice of one device without attributes, which any number of claims share: less
cannot be asked of the scheduler's allocator. The loads take turns, so whatever else the machine
does hits all of them. The scheduler is one of the bench's own: the lab's asks the API
server 50 times a second at most (`qps` of its clientConnection), which would hide what a claim
costs.
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
from typing import Any

from bench.claim_spread import in_order, in_rows, offered, slices_text
from bench.context import Context, control_plane
from bench.figures import Figure, Row, attempt, despite
from bench.operator import cpu
from kube_base.errors import Unavailable
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab

NAME = "schedbench"
SCHEDULER = "bench"  # who schedules these pods
SHARES = 16  # of each of 8 cards
FLOOR_DRIVER, WHOLE_DRIVER = "floor.example.com", "whole.example.com"
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


USUAL = ClaimLoad(16, 60, 5)
SHORT = ClaimLoad(2, 10, 2)
# What pods claim: nothing, a device of the floor, a share of a card without rows and with them.
CLASSES = {"plain": "", "floor": "floor", "whole": "whole", "claims": "rdma-shared"}


def _shared(driver: str) -> str:
    """The class of shares as the chart has it."""
    return f'device.driver == "{driver}" && device.attributes["{driver}"].mode == "shared-multi"'


SELECTORS = {
    "floor": f'device.driver == "{FLOOR_DRIVER}"',
    "whole": _shared(WHOLE_DRIVER),
    "rdma-shared": _shared(DRIVER),
}


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
            before = cpu(self._process.pid)
            self._process.send_signal(signal.SIGCONT)
            begin = time.monotonic()
            while left:
                left.discard(self._next(bound, len(left)))
            pace.seconds += time.monotonic() - begin
            pace.cpu_seconds += cpu(self._process.pid) - before
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


def measure(context: Context) -> Iterator[Row]:
    """Boot a control plane, offer devices, let pods come in turns."""
    load = SHORT if context.short else USUAL
    if context.pods:
        load = replace(load, pods=context.pods // load.rounds)
    paces = {name: Pace() for name in CLASSES}
    with control_plane(NAME) as lab:
        _offer(lab, load.nodes)
        measured = partial(_rounds, lab, load, paces)
        yield from attempt("rounds", lambda: despite(measured, partial(figures, paces, load)))


def _rounds(lab: Lab, load: ClaimLoad, paces: dict[str, Pace]) -> None:
    """Each load in turns; another one comes first in each round."""
    kinds = list(CLASSES)
    with scheduler(lab) as chooser:
        for number in range(load.rounds):
            first = number % len(kinds)
            for kind in (*kinds[first:], *kinds[:first]):
                names = [f"{kind}-{number}-{pod}" for pod in range(load.pods)]
                chooser.batch(kind, names, paces[kind])


def figures(paces: dict[str, Pace], load: ClaimLoad) -> Iterator[Figure]:
    """The figures of loads that were measured, and what they are beside each other."""
    measured = {name: pace for name, pace in paces.items() if pace.pods}
    for name, pace in measured.items():
        note = f"{pace.pods} pods on {load.nodes} nodes of theirs, {load.pods} at once"
        yield Figure(f"{name}_pods_per_second", pace.per_second, "/s", "", note)
        yield Figure(f"{name}_cpu_ms", pace.cpu_ms, "ms", "", "the scheduler's, for each pod")
    for ours, floor in RATIOS:
        if ours in measured and floor in measured:
            rate = measured[ours].per_second / measured[floor].per_second
            yield Figure(f"{ours}_to_{floor}", rate, "×", "", "pods per second")
            if less := measured[floor].cpu_ms:
                work = measured[ours].cpu_ms / less
                yield Figure(f"{ours}_to_{floor}_cpu", work, "×", "", "the scheduler's")


RATIOS = (
    ("claims", "floor"),
    ("claims", "whole"),  # what rows cost
    ("whole", "floor"),
    ("claims", "plain"),
    ("floor", "plain"),
)


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
        chooser.batch("plain", ["first"], Pace())  # what a start takes is not a batch's
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
    made = [_node(load, number) for load in CLASSES for number in range(count)]
    classes = [_class(*pair) for pair in SELECTORS.items()]
    cluster.kubectl(lab, "create", "-f", "-", stdin=_list([*made, *classes]))
    slices = []
    for node in cluster.get(lab, "nodes")["items"]:
        meta = node["metadata"]
        slices += slices_of(meta["labels"]["load"], meta["name"], meta["uid"])
    marker = _pod(MARKER, MARKER)
    marker["spec"] = {**marker["spec"], "nodeName": made[0]["metadata"]["name"], "nodeSelector": {}}
    cluster.kubectl(lab, "create", "-f", "-", stdin=_list([*slices, marker]))


def slices_of(load: str, node: str, owner: str) -> list[Document]:
    """What a node of a load offers; `owner` is its uid."""
    cards = offered(SHARES)
    if load == "floor":
        return [_floor_slice(node)]
    if load == "whole":
        text = slices_text(in_order(cards, {}), node, owner, WHOLE_DRIVER)
    elif load == "claims":
        text = slices_text(in_rows(cards, {}), node, owner)
    else:
        return []
    return list(json.loads(text))


def _list(documents: Iterable[Document]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def _node(load: str, number: int) -> Document:
    name = f"{load}-{number}"
    room = {"cpu": "128", "memory": "1Ti", "pods": "5000"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "load": load}},
        "status": {"capacity": room, "allocatable": room},
    }


def _class(name: str, expression: str) -> Document:
    return {
        "apiVersion": RESOURCE_API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _floor_slice(node: str) -> Document:
    return {
        "apiVersion": RESOURCE_API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"floor-{node}"},
        "spec": {
            "driver": FLOOR_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "device", "allowMultipleAllocations": True}],
        },
    }


def wanted(load: str, name: str) -> Iterator[Document]:
    """A pod, after the claim that it has."""
    if device_class := CLASSES[load]:
        request = {"name": "device", "exactly": {"deviceClassName": device_class}}
        yield {
            "apiVersion": RESOURCE_API,
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        }
    yield _pod(load, name, claim=bool(device_class))


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
