"""A small cluster for `kube-rdma explain`: a node with two cards, a network and its addresses."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import msgspec

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds import pod as kinds
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.attach.documents.network_status import OWN_ANNOTATION, own_attached
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.card import CardId
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool, ReportedPort
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma.reports import cluster as objects
from kube_rdma.reports.node_report import report_status
from kube_rdma_testing.cluster.server import FakeServer

HCA = "rdma/hca"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
NODE_NAME = "node-1"
NOW = "2026-01-01T00:00:00Z"
KINDS = (
    *(objects.EVENT, kinds.DAEMON_SETS, kinds.DEPLOYMENTS),
    *(IP_POOL, DEFINITION, NODE_REPORT, NODE_POLICY),
)
GID = "0000:0000:0000:0000:0000:ffff:0a14:0005"
STATUS = json.dumps(
    [
        {
            "name": "default/rail-net",
            "interface": "net1",
            "ips": ["10.20.0.5/24"],
            "mtu": 4200,
            "card": "0000:81:00.0",
            "rdmaDevice": "mlx5_1",
            "gid": GID,
            "gidIndex": 5,
        }
    ]
)


def server(mode="shared", shares=2, resource=HCA, kinds=KINDS):
    """The API server of a cluster with one node, one network and one pool of addresses."""
    made = FakeServer(kinds)
    labels = {"kube-rdma.io/rdma-namespaces": "shared", "zone": "a"}
    allocatable = {"allocatable": {resource: str(shares)}}
    made.put(NODE, {"metadata": {"name": NODE_NAME, "labels": labels}, "status": allocatable})
    report = report_status(None, reported(mode, shares, resource), NOW)
    made.put(NODE_REPORT, {"metadata": {"name": NODE_NAME}, "status": msgspec.to_builtins(report)})
    add_pool(made, "rail")
    made.put(DEFINITION, definition("rail-net", type="kube-rdma"))
    return made


def add_pool(made, name):
    """A pool of addresses."""
    pool = {"ranges": [{"subnet": "10.20.0.0/24", "gateway": "10.20.0.1"}]}
    made.put(IP_POOL, {"metadata": {"name": name}, "spec": pool})


def definition(name, **conf):
    """A network of the pool, tied to the resource."""
    ipam = {"type": "kube-rdma-ipam", "pool": "rail"}
    config = {"cniVersion": "1.0.0", "name": name, "ipam": ipam, **conf}
    key = "k8s.v1.cni.cncf.io/resourceName"
    meta = {"name": name, "namespace": "default", "annotations": {key: HCA}}
    return {"metadata": meta, "spec": {"config": json.dumps(config)}}


def reported(mode="shared", shares=2, resource=HCA):
    """What the node reports: two cards in one pool."""
    pool = ReportedPool(resource, mode, shares, shares, 2)
    cards = tuple(card(number, resource) for number in range(2))
    return NodeReport("0.1.0", cards, pools=(pool,))


def card(number, resource=HCA):
    """A card of the report."""
    name = f"mlx5_{number}"
    port = ReportedPort(name, 1, "ACTIVE", "Ethernet", "200G", netdev=f"ens{number}f0")
    return ReportedCard(CardId(f"0000:8{number}:00.0"), name, (resource,), 0, (port,))


def pod(name="worker-0", phase="Running", node=NODE_NAME, count=1, **annotations):
    """A pod that asks for shares; keyword arguments are its annotations."""
    container = {"name": "main", "resources": {"limits": {HCA: str(count)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": annotations,
        },
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


def statuses():
    """What a pod is told that has one interface, on the second card."""
    return tuple(own_attached(STATUS))


def attached(name="worker-0"):
    """A pod that runs with it."""
    return pod(name, **{NETWORKS: "rail-net", OWN_ANNOTATION: STATUS})


def opener(made):
    """How a program gets to this API server."""

    @asynccontextmanager
    async def opened(_):
        yield Cluster(made.line())

    return opened


def put_pod(made, document):
    """Write a pod."""
    made.put(POD, document)


def remove_pod(made, name):
    """Delete a pod of namespace default."""
    made.remove(POD, name, "default")
