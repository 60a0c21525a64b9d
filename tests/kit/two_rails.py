"""A preset on nodes with two rails, for tests of what it lets pods do besides."""

import json
from contextlib import contextmanager

from kube_rdma.install.installation import assignment
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from tests.kit import manifests


@contextmanager
def installed(lab, *values, preset="rails", resource="rdma/nic", shares=2):
    """Agents and controller with these values, and addresses for two rails; all go at the end."""
    scc.install_kinds(lab)
    made = objects([*map(assignment, values)], preset)
    pools = [
        manifests.ip_pool(f"rail-{n}", ranges=[{"subnet": f"10.10.{n}.0/24"}], restSeconds=0)
        for n in range(2)
    ]
    cluster.apply(lab, *made, *pools)
    items = [*pools, *(one for one in made if one["kind"] != "CustomResourceDefinition")]
    try:
        cluster.rollout(lab, "kube-rdma-agent", "kube-rdma")
        cluster.wait_for_resource(lab, resource, shares)
        yield
    finally:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        words = ("--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(lab, "delete", "-f", "-", *words, stdin=text)
