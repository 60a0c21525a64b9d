"""Asks the kubelets of native nodes for the healthy shares that they have at this moment.

After a plugin's registration the kubelet still has to read its list, and the API server shows the
earlier list until the kubelet reports again. A pod that comes in between is refused for good. So
cluster.py asks the kubelet too when it waits for a resource. This file is then a program inside
of the lab: a kubelet's socket is reached through the /proc of the lab's PID namespace.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from kube_base.errors import KubeError
from kube_rdma_lab import waiting
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.native.node import first_process
from kube_rdma_lab.topology import NodeSpec

SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"


def until_offered(lab: Lab, nodes: Collection[NodeSpec], resource: str, count: int) -> None:
    """Wait until each node's kubelet lists `count` healthy shares of `resource`, allocated or not.

    Raise Unavailable when nothing changes in the lab for too long.
    """
    if not nodes:
        return
    sockets = [f"/proc/{first_process(lab.home, node)}/root/{SOCKET}" for node in nodes]
    argv = [*lab.enter(), sys.executable, str(Path(__file__)), *sockets]

    def offered() -> bool:
        offers = json.loads(waiting.run(lab, argv))
        return all(offer.get(resource, 0) == count for offer in offers)

    waiting.until(lab, f"{count} of {resource} at the kubelet", offered)


async def _offers(sockets: Collection[str]) -> list[dict[str, int]]:
    """Return, for each socket of pod resources, the number of healthy shares by resource."""
    from kube_rdma.adapters.kubelet.pod_resources import PodResources  # this program's alone

    answers = [await PodResources(Path(socket)).allocatable() for socket in sockets]
    return [Counter(share.resource for share in answer) for answer in answers]


if __name__ == "__main__":
    try:
        print(json.dumps(asyncio.run(_offers(sys.argv[1:]))))
    except KubeError as error:
        sys.exit(str(error))
