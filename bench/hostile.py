"""What 110 pods of a node cost its agent whose author writes all that the API server lets through.

Each pod is an object with 250 KiB of annotations and 1 MiB of labels. The agent reads it from its
watch and keeps what it needs, takes the runtime's call with the annotations in it, and reads what
the pod asks for: what is the same at each try of the kubelet. `costliest` are annotations just
within the bounds (attach/documents/networks), the dearest of several kinds. A process of its own,
so that its memory is that of this alone; the API server, the kernel and the disk are left out.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_base.errors import KubeError, Unavailable
from kube_client import wire
from kube_client.watching import Changed
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.adapters.cni import protocol
from kube_rdma.attach.annotated_networks import asking
from kube_rdma.attach.documents.networks import LONGEST, MOST, MOST_VALUES
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.repair import NodePodWatch, PodWatchDependencies
from kube_rdma.model.attach.cni import ANNOTATIONS

PODS = 110  # the kubelet's own limit of a node
ANNOTATION = "k8s.v1.cni.cncf.io/networks"
_MOST = 250 << 10
_LABELS = {f"example.org/{number:06}-{'x' * 40}": "y" * 63 for number in range(8000)}
_ENVIRONMENT = b"\0".join(
    (
        *(b"CNI_COMMAND=ADD", b"CNI_CONTAINERID=c", b"CNI_IFNAME=eth0", b"CNI_NETNS=/run/netns/a"),
        b"CNI_ARGS=K8S_POD_NAME=a;K8S_POD_NAMESPACE=b",
    )
)
_ALL = MOST_VALUES - MOST
LARGEST: dict[str, Callable[[], str]] = {
    "names": lambda: ",".join(["a"] * (_MOST // 2)),
    "numbers": lambda: json.dumps([1] * (_MOST // 3)),
    "escapes": lambda: json.dumps([{"name": "<" * _MOST}]),
    "keys": lambda: json.dumps([{f"{number}": 1 for number in range(_MOST // 12)}]),
    "lines": lambda: "# [\n" + "- a\n" * (_MOST // 4),
}
COSTLIEST: dict[str, Callable[[], str]] = {
    "addresses": lambda: json.dumps([{"name": "a", "ips": ["10.0.0.256/24"] * 256}]),
    "unknown_keys": lambda: json.dumps([{"name": "a", **{f"nam{n}": n for n in range(_ALL)}}]),
    "long_names": lambda: ",".join(["n" * (LONGEST // MOST - 1)] * MOST),
    "ports": lambda: json.dumps([{"name": "a", "portMappings": [{"hostPort": 1}] * 256}]),
    "yaml": lambda: "[" + "a," * _ALL + "]",
}


def measure(context: Context) -> Iterator[Row]:
    """Each kind of a group in a process of its own."""
    for group, of in (("largest", LARGEST), ("costliest", COSTLIEST)):
        kinds = tuple(of)[: context.times(len(of))]
        yield from attempt(group, partial(_figures, group, kinds))


def _figures(group: str, kinds: Iterable[str]) -> Iterator[Figure]:
    seconds = {kind: _measured_alone(group, kind) for kind in kinds}
    worst = max(seconds, key=lambda kind: seconds[kind]["read_s"])
    memory = max(one["mib"] for one in seconds.values())
    watched = max(one["watch_s"] for one in seconds.values())
    note = f"of {PODS} pods, a try of each: {worst}"
    yield Figure(f"{group}_read_s", seconds[worst]["read_s"], "s", "≤ 1", note)
    yield Figure(f"{group}_watched_s", watched, "s", "", "from the API server, once")
    yield Figure(f"{group}_mib", memory, "MiB", "≤ 50", "beyond those of the agent at rest")


def _measured_alone(group: str, kind: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.hostile", group, kind]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = (ended.stderr.strip().splitlines() or ["it did not say why"])[-1]
        raise Unavailable(f"{kind}: {reason}")
    seconds: dict[str, float] = json.loads(ended.stdout)
    return seconds


class _Told:
    """A cluster whose watch has these pods, one line at a time."""

    def __init__(self, pods: Callable[[], Iterator[bytes]]) -> None:
        self._pods = pods
        self.seconds = 0.0

    async def watch(self, *_: object) -> AsyncIterator[Changed[Any, Any]]:
        """Every pod, then no more."""
        for line in self._pods():
            begin = time.process_time()
            changed = Changed(wire.stored(POD, wire.line(line)[1]))
            yield changed
            self.seconds += time.process_time() - begin


def _pods(text: str) -> Iterator[bytes]:
    for number in range(PODS):
        named = f"{text} " if number % 2 else text  # so that no two in a row are the same
        meta = {"name": f"a{number}", "namespace": "b", "uid": f"u{number}", "labels": _LABELS}
        meta |= {"annotations": {ANNOTATION: named + " " * number}}
        pod = {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}
        yield json.dumps({"type": "ADDED", "object": pod}).encode()


def _call(pod: Any) -> bytes:
    runtime = {ANNOTATIONS: dict(pod.annotations)}
    document = {"cniVersion": "1.0.0", "name": "c", "type": "kube-rdma", "runtimeConfig": runtime}
    return json.dumps(document).encode()


def _fresh_peak() -> float:
    """As _peak, of this moment: the kernel forgets what was before (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> float:
    """The most memory that this process has had, in MiB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024


async def _measured(text: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = _Told(lambda: _pods(text))
        to = PodWatchDependencies(
            cluster,  # type: ignore[arg-type]
            "n",
            Path(folder),
            NodeContext(network="c"),
            lambda *_: None,
        )
        node = NodePodWatch(to)
        seconds = 0.0
        _read(pod_state(wire.stored(POD, wire.line(next(_pods('[{"name": "a"},]')))[1])))
        rest = _fresh_peak()
        await node.follow(lambda: None)
        for pod in node.asking:
            call = _call(pod)
            begin = time.process_time()
            protocol.decode(_ENVIRONMENT, call, 3)
            _read(pod)
            seconds += time.process_time() - begin
        return {"read_s": seconds, "watch_s": cluster.seconds, "mib": _peak() - rest}


def _read(pod: Any) -> None:
    try:
        asking(pod, "c")
    except KubeError as error:
        protocol.failure(error, "1.0.0")


if __name__ == "__main__":
    group, kind = sys.argv[1:]
    make = (LARGEST if group == "largest" else COSTLIEST)[kind]
    print(json.dumps(asyncio.run(_measured(make()))))
