"""How long a pod's admission takes, from the request's bytes to the answer's, on one core.

A training pod of the usual size, judged and completed with what a large cluster offers; and one
with 200 containers. No server: what the API server and TLS take comes on top.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from statistics import quantiles
from typing import Any

from bench.context import Context
from bench.figures import Figure
from kube_rdma.model.admission.facts import AdmissionFacts, OfferedPool
from kube_rdma.model.attach.attachment import Network, NetworkKind
from kube_rdma.model.ipam import PoolName
from kube_rdma.model.pools.pool import Mode, PoolSpec
from kube_rdma.programs.admission.review import completed, validated

RESOURCE = "vke.volcengine.com/rdma"
PODS, LARGE = 2000, 50
POLICIES, NETWORKS, CONTAINERS = 50, 100, 200


def measure(context: Context) -> Iterator[Figure]:
    """Judge and complete the same pods again and again in this process."""
    pods = context.times(PODS, 100)
    usual = _times(_review(_pod(3)), pods)
    spread = f"{pods} pods, p50 {_percentile(usual, 50) * 1000:.2f} ms"
    yield Figure("pod_p99_ms", _percentile(usual, 99) * 1000, "ms", "≤ 10", spread)
    yield Figure("pods_per_second", len(usual) / sum(usual), "/s", "≥ 200", "one core")
    large = _times(_review(_pod(CONTAINERS)), context.times(LARGE))
    note = f"{CONTAINERS} containers"
    yield Figure("large_pod_p50_ms", _percentile(large, 50) * 1000, "ms", "", note)


def _times(body: bytes, count: int) -> list[float]:
    """Seconds of each: the request to complete a pod, and that to judge it."""
    facts = _facts()
    completed(body), validated(body, facts)  # models are made at their first use
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        completed(body)
        validated(body, facts)
        times.append(time.perf_counter() - begin)
    return times


def _percentile(times: list[float], percent: int) -> float:
    return quantiles(times, n=100)[percent - 1]


def _facts() -> AdmissionFacts:
    """What a cluster of many node pools offers."""
    return AdmissionFacts(
        pools=tuple(
            OfferedPool(PoolSpec(RESOURCE, Mode.SHARED, f"p{n}"), (("pool", f"p{n}"),))
            for n in range(POLICIES)
        ),
        networks=tuple(
            Network(name=f"team/net-{n}", kind=NetworkKind.MACVLAN, source=f"net-{n}")
            for n in range(NETWORKS)
        ),
        ip_pools=(PoolName("rdma"),),
    )


def _pod(containers: int) -> dict[str, Any]:
    """A worker: one container asks for four cards and GPUs, the others stand beside it."""
    blocks = json.dumps([{"cniConf": {"name": "rdma"}}] * 4)
    limits = {RESOURCE: "4", "nvidia.com/gpu": "8", "cpu": "90", "memory": "900Gi"}
    beside = {"cpu": "1", "memory": "1Gi"}
    return {
        "metadata": {
            "name": "worker",
            "namespace": "team",
            "annotations": {
                "k8s.volcengine.com/pod-networks": blocks,
                "kube-rdma.io/complete": "ipc-lock, shm=64Gi",
            },
            "labels": {f"label-{n}": "value" for n in range(10)},
        },
        "spec": {
            "nodeSelector": {"pool": "p7"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": f"c{n}",
                    "image": "registry.example.com/train:1",
                    "env": [{"name": f"VARIABLE_{m}", "value": "x" * 40} for m in range(30)],
                    "resources": {"limits": beside if n else limits, "requests": beside},
                    "volumeMounts": [{"name": f"v{m}", "mountPath": f"/v{m}"} for m in range(5)],
                }
                for n in range(containers)
            ],
            "volumes": [{"name": f"v{m}", "emptyDir": {}} for m in range(5)],
        },
    }


def _review(pod: dict[str, Any]) -> bytes:
    """The request that the API server sends."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "team", "object": pod}
    return json.dumps({"request": request}).encode()
