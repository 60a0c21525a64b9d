"""Pods of others with large annotations: what a list of them costs whoever reads it."""

import json
import subprocess
import sys

import pytest

from kube_client.calls import RequestTiming
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import Changed, Synced
from kube_client.wire import Answer
from kube_rdma.adapters.cluster.kinds.pod import POD, READ, pod_state
from kube_rdma.attach.documents import network_status, networks, pod_networks
from kube_rdma.attach.rules import repair, requests, settings
from kube_rdma.model.attach.attachment import RESTART
from kube_rdma.model.kubernetes import MIRROR

__all__ = [
    "POD",
    "Changed",
    "Cluster",
    "RequestTiming",
    "Synced",
    "Where",
    "pod_state",
]  # of MEASURE
MIB = 1 << 20
MEASURE = """
import asyncio, sys
from {module} import Pods, POD, Cluster, RequestTiming, Where, Changed, Synced, pod_state
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
async def main():
    before = peak()
    pods = Pods(int(sys.argv[1]), int(sys.argv[2]))
    kept = []
    async for notice in Cluster(pods, RequestTiming()).watch(POD, Where(fields="spec.nodeName=n")):
        if isinstance(notice, Synced):
            break
        kept.append(pod_state(notice.object))
    print(len(kept), peak() - before)
asyncio.run(main())
"""


class Pods:
    """A transport that knows so many pods, each with an annotation of so many `<`, as Go writes."""

    def __init__(self, count, size):
        self.count, self.text = count, "\\u003c" * size
        self.sizes = []

    async def send(self, request):
        query = dict(request.query)
        first = int(query.get("continue", "0"))
        last = min(self.count, first + int(query["limit"]))
        following = str(last) if last < self.count else ""
        meta = {"resourceVersion": "7", "continue": following}
        head = f'{{"kind": "PodList", "metadata": {json.dumps(meta)}, "items": ['
        pods = ",".join(self._pod(number) for number in range(first, last))
        body = b"".join([f"{head}{pods}]}}".encode()])
        self.sizes.append(last - first)
        return Answer(200, body)

    def _pod(self, number):
        meta = (
            f'"name": "p{number}", "namespace": "default", "uid": "u{number}", '
            f'"resourceVersion": "{number + 1}", "annotations": {{"whatever": "{self.text}", '
            f'"{RESTART}": "{{}}"}}'
        )
        first = ",".join(f'{{"name": "i{n}", "image": "x"}}' for n in range(number % 4))
        spec = f'"nodeName": "n", "initContainers": [{first}]'
        return f'{{"metadata": {{{meta}}}, "spec": {{{spec}}}, "status": {{}}}}'


async def test_what_nobody_reads_is_not_kept():
    (pod,) = await Cluster(Pods(1, 10), RequestTiming()).list(POD, Where())
    assert pod_state(pod).annotations == ((RESTART, "{}"),)


async def test_the_names_of_the_first_two_init_containers_are_kept():
    """By these an ADD decides whether a pod measures first; a pod may have hundreds."""
    pods = await Cluster(Pods(4, 10), RequestTiming()).list(POD, Where())
    names = [pod_state(pod).init_containers for pod in pods]
    assert names == [(), ("i0",), ("i0", "i1"), ("i0", "i1")]


async def test_large_pods_come_in_small_pages():
    """No page weighs much more than four MiB once the first has told."""
    pods = Pods(30, 250_000)
    assert len(await Cluster(pods, RequestTiming()).list(POD)) == 30
    assert pods.sizes == [8, *[2] * 11]


def test_all_that_is_read_is_kept():
    """Each annotation that a rule or a document of a pod's networks names."""
    named = {
        networks.ANNOTATION, network_status.ANNOTATION, network_status.OWN_ANNOTATION,
        pod_networks.ANNOTATION, pod_networks.DEFINITION, network_status.POD_NETWORKS_STATUS,
        requests.ANNOTATION, requests.POD_NETWORKS, requests.POD_NETWORKS_DEFINITION,
        requests.DEFAULT_NETWORK, repair.STATUS, repair.OWN_STATUS, settings.ANNOTATION,
        RESTART, MIRROR, requests.REQUEST,
    }  # fmt: skip
    assert named == READ


@pytest.mark.slow
def test_a_node_full_of_large_pods_fits_into_an_agent():
    """110 pods with 250 KiB that nobody reads: 50 MiB at most."""
    command = [sys.executable, "-c", MEASURE.format(module=__name__), "110", "250000"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count, kib = map(int, printed.split())
    print(f"{count} pods: {kib / 1024:.0f} MiB")
    assert count == 110
    assert kib * 1024 <= 50 * MIB
