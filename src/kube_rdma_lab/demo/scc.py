"""The SCC example on a running lab: installs the device plugin, starts two pods, runs perftest.

The manifests are in examples/s2-scc; tests run both DaemonSets through the same functions. The pods
get a namespace of their own, for examples/s3-network has a pod of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube_rdma_lab.cluster import apply, get, kubectl, ready, rollout, wait, wait_for_resource
from kube_rdma_lab.demo.perftest import Endpoint, Measurement, Series, in_pod, measure
from kube_rdma_lab.lab import Lab

RESOURCE = "rdma/hca"
NAMESPACE = "scc"
PODS = ("rdma-test-pod", "rdma-test-pod-1")
# 30 queue pairs as in the document of SCC; -u and -n because an emulated CPU needs longer than the
# default retry timer; -d because a soft device that a pod gave back is no longer the first one.
READ_TEST = ("ib_read_bw", "-d", "rxe0", "-q", "30", "-u", "18", "-n", "100")
WRITE_TEST = ("ib_write_bw", "-d", "rxe0", "-n", "1000", "-F", "--report_gbits")


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A row about a node in the demo's table."""

    name: str
    kubelet: str
    kernel: str
    allocatable: str


@dataclass(frozen=True, slots=True)
class PodRow:
    """A test pod: where it runs and which device nodes it sees."""

    name: str
    node: str
    ip: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """The demo's evidence: nodes, pods, and the measurements between pods and between hosts."""

    nodes: tuple[NodeRow, ...]
    pods: tuple[PodRow, ...]
    read: Measurement
    pod_to_pod: Series
    host_to_host: Series

    @property
    def ratio(self) -> float | None:
        """Return the median write bandwidth between pods, divided by that between hosts.

        None where the hosts' figure is 0: the machine is slower than perftest can show.
        """
        hosts = self.host_to_host.median
        return self.pod_to_pod.median / hosts if hosts else None


def examples() -> Path:
    """Return the folder of the product's examples, from the package or else the checkout."""
    package = Path(__file__).parents[1]
    bundled = package / "examples"
    return bundled if bundled.is_dir() else package.parents[1] / "examples"


def install_kinds(lab: Lab) -> None:
    """Install the CustomResourceDefinitions of config/crds and config/foreign; wait for them."""
    config = examples().parent / "config"
    kubectl(lab, "apply", "-f", f"{config}/crds", "-f", f"{config}/foreign")
    wait(lab, "crd", "--all", "--for=condition=Established")


def install(lab: Lab, daemonset: str) -> None:
    """Install the device plugin from config.yaml and a DaemonSet file; wait for the resource."""
    folder = examples() / "s2-scc"
    kubectl(lab, "apply", "-f", f"{folder}/config.yaml", "-f", f"{folder}/{daemonset}")
    rollout(lab, "rdma-device-plugin", "kube-system")
    wait_for_resource(lab, RESOURCE, "1k")


def start_pods(lab: Lab) -> None:
    """Start the example's two pods on two different nodes, and wait until they are Ready.

    The example leaves placement to the scheduler, so the first pod's node is cordoned until the
    second pod is scheduled.
    """
    folder = examples() / "s2-scc"
    first, second = PODS
    place = ("-n", NAMESPACE)
    apply(lab, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    kubectl(lab, "apply", *place, "-f", f"{folder}/{first}.yaml")
    wait(lab, *place, f"pod/{first}", "--for=condition=PodScheduled")
    node = get(lab, *place, f"pod/{first}")["spec"]["nodeName"]
    kubectl(lab, "cordon", node)
    try:
        kubectl(lab, "apply", *place, "-f", f"{folder}/{second}.yaml")
        wait(lab, *place, f"pod/{second}", "--for=condition=PodScheduled")
    finally:
        kubectl(lab, "uncordon", node)
    ready(lab, *PODS, namespace=NAMESPACE)


def remove_pods(lab: Lab) -> None:
    """Delete the two pods and wait until they are gone."""
    words = ("-n", NAMESPACE, "--ignore-not-found", "--grace-period=1")
    kubectl(lab, "delete", "pod", *PODS, *words)


def prove(lab: Lab, pairs: int) -> Proof:
    """Run the example's read test, then `pairs` write tests between hosts and as many between pods.

    The two kinds of write tests alternate.
    """
    pods = tuple(pod_row(lab, name) for name in PODS)
    server, client = (pod_endpoint(lab, pod) for pod in pods)
    server_host, client_host = (host_endpoint(lab, pod.node) for pod in pods)
    read = measure(lab, server, client, READ_TEST)
    runs = [
        (
            measure(lab, server_host, client_host, WRITE_TEST),
            measure(lab, server, client, WRITE_TEST),
        )
        for _ in range(pairs)
    ]
    return Proof(
        nodes=tuple(node_row(each) for each in get(lab, "nodes")["items"]),
        pods=pods,
        read=read,
        pod_to_pod=Series(tuple(pod for _, pod in runs)),
        host_to_host=Series(tuple(host for host, _ in runs)),
    )


def node_row(document: dict[str, Any]) -> NodeRow:
    """Convert a Node object to a row of the demo's table."""
    info = document["status"]["nodeInfo"]
    allocatable = document["status"]["allocatable"].get(RESOURCE, "none")
    name = document["metadata"]["name"]
    return NodeRow(name, info["kubeletVersion"], info["kernelVersion"], allocatable)


def pod_row(lab: Lab, name: str) -> PodRow:
    """Return a test pod as a table row, with the device nodes that its command printed."""
    document = get(lab, "-n", NAMESPACE, f"pod/{name}")
    listing = kubectl(lab, "-n", NAMESPACE, "logs", name).partition("/sys/class/net")[0]
    devices = tuple(line.split()[-1] for line in listing.splitlines() if line.startswith("c"))
    return PodRow(name, document["spec"]["nodeName"], document["status"]["podIP"], devices)


def pod_endpoint(lab: Lab, pod: PodRow) -> Endpoint:
    """Return a pod as a place to run perftest in."""
    return in_pod(lab, pod.name, pod.ip, namespace=NAMESPACE)


def host_endpoint(lab: Lab, node: str) -> Endpoint:
    """Return a node's own network as a place to run perftest in."""
    spec = next(each for each in lab.topology.nodes if each.name == node)
    return Endpoint(node, spec.ip, lambda *words: lab.on_node(node, *words))
