"""What a claim adds to a pod's start, beside the same pod with a share of the device plugin.

    pod is created ─► has its node (the scheduler's Event) ─► its container writes the time

On one native node the plugin serves one pool of four made-up cards, claims serve another; a third
kind of pod has no card. API server, scheduler, kubelet and runtime are the real ones. Pods come one
at a time and the kinds by turns, so whatever else the machine does hits all of them. A pod has a
claim by a template, as a workload has: the cluster makes that claim, the scheduler allocates it.
"""

from __future__ import annotations

import http.client
import json
import math
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from statistics import median
from typing import Any
from urllib.parse import urlencode

from bench.context import Context, own_lab
from bench.figures import Figure, Row, attempt, despite
from kube_base.errors import Unavailable
from kube_rdma.claims.templates import SHARED_CLASS
from kube_rdma.install.installation import assignment
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster, relay, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from kube_rdma_lab.lab import Lab

NAME, NODE, AGENT = "startbench", "node-1", "kube-rdma-agent"
NAMESPACE, PODS = "kube-rdma", "/api/v1/namespaces/default/pods"
SHARED, CLAIMED, TEMPLATE = "bench/shares", "bench/claims", "bench"
IMAGE = "localhost/lab/verbs:1"
STAMP = "date +%s.%N; trap 'exit 0' TERM; sleep 1000000 & wait"
KINDS = ("plain", "share", "claim")
ROUND = 10  # pods of each kind, which run at the same time
ANSWER_SECONDS = 300.0

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodStart:
    """Seconds from the pod's creation, and from the scheduler's word, to its container's."""

    created: float
    bound: float


@dataclass(slots=True)
class Starts:
    """The pods of each kind that have started."""

    by_kind: dict[str, list[PodStart]] = field(default_factory=lambda: {kind: [] for kind in KINDS})


def measure(context: Context) -> Iterator[Row]:
    """Boot native nodes, install agents, start pods by turns."""
    count = 2 if context.short else context.pods or 30
    starts = Starts()
    with own_lab(NAME, "native") as lab:
        install(lab)
        measured = partial(_start, lab, count, starts)
        yield from attempt("pods", lambda: despite(measured, partial(figures, starts)))
        yield from attempt("slices", partial(_slices, lab))


def install(lab: Lab) -> None:
    """Agents that serve one half of each node's cards by each way, and a template."""
    shown = cluster.shell(lab, NODE, "ls", "/sys/class/infiniband").split()
    half = len(shown) // 2
    policy = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": "bench"},
        "spec": {"pools": [_pool(SHARED, shown[:half]), _pool(CLAIMED, shown[half:])]},
    }
    words = ("claims.enabled=true", f"agent.config='{json.dumps(policy)}'")
    scc.install_kinds(lab)
    cluster.apply(lab, *objects([assignment(word) for word in words], "default"))
    cluster.rollout(lab, AGENT, NAMESPACE)
    request = {"name": "card", "exactly": {"deviceClassName": SHARED_CLASS}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    cluster.apply(lab, template)
    waiting.until(lab, "shares and slices of the node", partial(_is_offered, lab))


def _pool(resource: str, devices: Sequence[str]) -> Document:
    return {
        "resource": resource,
        "mode": "shared-multi",
        "shares": 16,
        "serve": "claims" if resource == CLAIMED else "plugin",
        "selectors": [{"rdmaDevices": list(devices)}],
    }


def _is_offered(lab: Lab) -> bool:
    shares = cluster.get(lab, f"node/{NODE}")["status"]["allocatable"].get(SHARED, "0")
    slices = [one["spec"] for one in cluster.get(lab, "resourceslices")["items"]]
    is_claimed = any((one["driver"], one.get("nodeName")) == (DRIVER, NODE) for one in slices)
    return shares != "0" and is_claimed


def _start(lab: Lab, count: int, starts: Starts) -> None:
    """All pods, in rounds that end with their deletion; those of the first round are warm-up."""
    api = _Api(lab)
    for kind in KINDS:
        api.started(kind, f"first-{kind}")
    _clear(lab)
    for begin in range(0, count, ROUND):
        written: dict[str, tuple[str, float, float]] = {}
        for number in range(begin, min(begin + ROUND, count)):
            first = number % len(KINDS)
            for kind in (*KINDS[first:], *KINDS[:first]):
                created, ran = api.started(kind, name := f"{kind}-{number}")
                written[name] = (kind, created, ran)
        bound = waiting.until(lab, "the scheduler's Events", partial(api.bound, set(written)))
        for name, (kind, created, ran) in written.items():
            starts.by_kind[kind].append(PodStart(ran - created, ran - bound[name]))
        _clear(lab)


def _slices(lab: Lab) -> Iterator[Figure]:
    """Restart the kubelet, which deletes the slices of all drivers when it starts."""
    with _Api(lab).slices() as events:
        restart = lab.on_node(NODE, "sv", "-w", "60", "force-restart", "kubelet")
        with subprocess.Popen(restart, stdout=subprocess.DEVNULL):
            deleted = next(at for kind, at in events if kind == "DELETED")
            back = next(at for kind, at in events if kind == "ADDED") - deleted
    note = "from their deletion by a kubelet that starts"
    yield Figure("slices_back_s", back, "s", "≤ 1", note)


def _clear(lab: Lab) -> None:
    cluster.kubectl(lab, "delete", "pods", "--all", "--wait")
    cluster.kubectl(lab, "delete", "events", "--all", "--wait=false")


class _Api:
    """Requests by the lab's admin over one connection: a kubectl would take longer to start."""

    def __init__(self, lab: Lab) -> None:
        pki = lab.home / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._connect = partial(
            http.client.HTTPSConnection,
            relay.HOST,
            lab.state.port,
            context=context,
            timeout=ANSWER_SECONDS,
        )

    def started(self, kind: str, name: str) -> tuple[float, float]:
        """When a pod was asked for, and when its container ran, in seconds of one clock."""
        created = time.time()
        version = json.loads(self._ask("POST", PODS, pod(kind, name)))["metadata"]
        self._until_running(name, version["resourceVersion"])
        return created, float(self._ask("GET", f"{PODS}/{name}/log").split()[0])

    def bound(self, names: set[str]) -> Mapping[str, float]:
        """When each of these pods got its node; nothing while an Event is missing."""
        query = urlencode({"fieldSelector": "reason=Scheduled"})
        events = json.loads(self._ask("GET", f"/api/v1/namespaces/default/events?{query}"))
        times = {
            event["involvedObject"]["name"]: datetime.fromisoformat(event["eventTime"]).timestamp()
            for event in events["items"]
        }
        return times if names <= times.keys() else {}

    def _until_running(self, name: str, version: str) -> None:
        """Read a watch of the pod until its container runs."""
        words = {
            "watch": "1",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": str(int(ANSWER_SECONDS)),
        }
        connection = self._connect()
        try:
            connection.request("GET", f"{PODS}?{urlencode(words)}")
            for line in connection.getresponse():
                status = json.loads(line)["object"].get("status", {})
                if status.get("phase") == "Running":
                    return
                if status.get("phase") == "Failed":
                    raise Unavailable(f"pod {name} failed: {status.get('message', '')}")
        finally:
            connection.close()
        raise Unavailable(f"pod {name} did not run within {ANSWER_SECONDS:g} s")

    @contextmanager
    def slices(self) -> Iterator[Iterator[tuple[str, float]]]:
        """What happens to the driver's slices of the node, and when, from now on."""
        fields = {"fieldSelector": f"spec.nodeName={NODE},spec.driver={DRIVER}"}
        path = "/apis/resource.k8s.io/v1/resourceslices"
        listed = json.loads(self._ask("GET", f"{path}?{urlencode(fields)}"))
        version = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
        connection = self._connect()
        try:
            connection.request("GET", f"{path}?{urlencode(fields | version)}")
            lines = connection.getresponse()
            yield ((str(json.loads(line)["type"]), time.monotonic()) for line in lines)
        finally:
            connection.close()

    def _ask(self, verb: str, path: str, document: Document | None = None) -> str:
        connection = self._connect()
        try:
            body = None if document is None else json.dumps(document)
            connection.request(verb, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise Unavailable(f"the API server answers {verb} {path} with {text[:300]}")
        return text


def pod(kind: str, name: str) -> Document:
    """A pod of a kind, whose container writes the time as its first act."""
    container: Document = {"name": "main", "image": IMAGE, "command": ["sh", "-c", STAMP]}
    spec: Document = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    if kind == "share":
        container["resources"] = {"limits": {SHARED: 1}}
    elif kind == "claim":
        container["resources"] = {"claims": [{"name": "card"}]}
        spec["resourceClaims"] = [{"name": "card", "resourceClaimTemplateName": TEMPLATE}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def figures(starts: Starts) -> Iterator[Figure]:
    """The figures of the pods that have started, and of each kind beside the others."""
    measured = {kind: pods for kind, pods in starts.by_kind.items() if pods}
    for kind, pods in measured.items():
        note = f"{len(pods)} pods, from creation to the container"
        yield Figure(f"{kind}_p50_ms", _p50(pods), "ms", "", note)
        yield Figure(f"{kind}_p99_ms", _p99(pods), "ms")
        after = median(one.bound for one in pods) * 1000
        yield Figure(f"{kind}_bound_p50_ms", after, "ms", "", "from its node to the container")
    for ours, floor in (("claim", "share"), ("claim", "plain"), ("share", "plain")):
        if ours in measured and floor in measured:
            mine, bare = measured[ours], measured[floor]
            added = f"{_p50(mine) - _p50(bare):+.0f} ms"
            yield Figure(f"{ours}_to_{floor}_p50", _p50(mine) / _p50(bare), "×", "", added)
            yield Figure(f"{ours}_to_{floor}_p99", _p99(mine) / _p99(bare), "×")


def _p50(pods: Sequence[PodStart]) -> float:
    return median(one.created for one in pods) * 1000


def _p99(pods: Sequence[PodStart]) -> float:
    """By the nearest rank: of fewer than 100 pods the slowest."""
    ordered = sorted(one.created for one in pods)
    return ordered[math.ceil(0.99 * len(ordered)) - 1] * 1000
