"""A cluster in memory with addresses in it, and `kube-rdma ip` to look at them."""

import json

from click.testing import CliRunner

from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.cli.ip import ip
from kube_rdma.ipam import cluster as kinds
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_whereabouts import objects as whereabouts
from tests.kit.opener import opener_of

KINDS = [IP_POOL, kinds.IP_BLOCK, kinds.LEASE]
LEGACY = [whereabouts.POOL, whereabouts.RESERVATION, DEFINITION]


def meta(name, namespace="", **more):
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


class World:
    """What is at the API server, and the command."""

    def __init__(self, extra=()):
        self.server = FakeServer([*KINDS, *extra])
        for name in ("node-1", "node-2"):
            self.server.put(NODE, {"metadata": meta(name), "spec": {}, "status": {}})

    def pool(self, name, *ranges, **spec):
        made = [{"subnet": each} for each in ranges]
        self.server.put(IP_POOL, {"metadata": meta(name), "spec": {"ranges": made, **spec}})

    def block(self, first, *holdings, name=None):
        spec = {
            "network": "default",
            "first": first,
            "edition": 1,
            "holdings": [{"node": node, "addresses": list(spans)} for node, *spans in holdings],
        }
        name = name or f"default.{first.replace('.', '-')}"
        self.server.put(kinds.IP_BLOCK, {"metadata": meta(name), "spec": spec})

    def lease(self, node):
        notes = {"kube-rdma.io/ipam-boot": "b", "kube-rdma.io/ipam-beat": "1"}
        labels = {"kube-rdma.io/lease": "ipam"}
        document = {
            "metadata": meta(f"ipam.{node}", "kube-system", annotations=notes, labels=labels),
            "spec": {"holderIdentity": "j", "leaseDurationSeconds": 600},
        }
        self.server.put(kinds.LEASE, document)

    def pod(self, name, node, phase="Running"):
        spec = {"nodeName": node}
        document = {"metadata": meta(name, "default"), "spec": spec, "status": {"phase": phase}}
        self.server.put(POD, document)

    def attachment(self, name, conf):
        spec = {"config": conf if isinstance(conf, str) else json.dumps(conf)}
        document = {"metadata": meta(name, "default"), "spec": spec}
        self.server.put(DEFINITION, document)

    def legacy_pool(self, name, range_, **allocations):
        spec = {"range": range_, "allocations": allocations}
        document = {"metadata": meta(name, "kube-system"), "spec": spec}
        self.server.put(whereabouts.POOL, document)

    def run(self, *words, **more):
        return CliRunner().invoke(ip, [*map(str, words)], obj=opener_of(self.server), **more)

    def documents(self, plural):
        return {each["metadata"]["name"]: each for each in self.server.documents(plural)}
