"""Calls as a runtime makes them, an agent that answers, and what it left on the disk."""

import json
from contextlib import asynccontextmanager

from kube_rdma.adapters.cni.shim_files import AskingPods, ClaimedNamespaces
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.attach.rules.conflist import ENTRY
from kube_rdma.model.attach.cni import ANNOTATIONS
from tests.kit.beside import beside

NETNS = "/proc/self/ns/net"
PREVIOUS = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "eth0", "sandbox": NETNS, 'odd "}]': ["]}"]}],
    "ips": [{"address": "10.0.0.7/24", "interface": 0}],
    "later": {"key": 1},
}
CONFIG = {"cniVersion": "1.0.0", "name": "pods", "type": "kube-rdma", "prevResult": PREVIOUS}


def environment(verb="ADD", pod="a", **more):
    return {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": "c0ffee",
        "CNI_IFNAME": "eth0",
        "CNI_NETNS": NETNS,
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};K8S_POD_UID=u",
        **more,
    }


def text(**changes):
    return json.dumps({**CONFIG, **changes}).encode()


def chained(annotations, **changes):
    """The configuration of our entry in the cluster's list, with what the runtime tells."""
    return text(**{**ENTRY, "runtimeConfig": {ANNOTATIONS: annotations}, **changes})


@asynccontextmanager
async def serving(root, handler):
    async with (
        CniSocket(root / "run/kube-rdma/agent.sock", handler) as server,
        beside(server.serve()),
    ):
        yield


def asking(root):
    return AskingPods(root / "var/lib/kube-rdma/asking")


def claimed(root):
    return ClaimedNamespaces(root / "var/lib/kube-rdma/claimed")
