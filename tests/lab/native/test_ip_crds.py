"""Pools, blocks and leases of addresses on a real API server: what it takes, what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kube_base.errors import Unavailable
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam import objects as ip_objects
from kube_rdma.ipam import objects as ip_pool_status
from kube_rdma.ipam.objects import IPPoolStatus, PoolFindings
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.ipam import NodeLease, Usage
from kube_rdma_lab import cluster

ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "config/crds"
TESTS = "tests/contract/cluster/test_ip_kinds.py"
SPEC = {
    "ranges": [
        {"subnet": "10.10.0.0/24", "rail": 0, "start": "10.10.0.10", "gateway": "10.10.0.1"},
        {"subnet": "fd00:10::/64"},
    ],
    "excludes": ["10.10.0.20-10.10.0.29"],
    "routes": [{"dst": "10.10.0.0/16", "gw": "10.10.0.1"}],
}
BLOCK = {
    "network": "default",
    "first": "10.10.0.64",
    "edition": 1,
    "holdings": [{"node": "node-1", "addresses": ["10.10.0.64-10.10.0.95"]}],
    "pins": [{"owner": "default/a/net1", "address": "10.10.0.64"}],
}
BLOCK_NAME = "default.10-10-0-64"
LEASE = NodeLease("node-1", "", "boot", 1, fenced=True)


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes: only the API server is asked."""
    return native


def document(kind, name, spec, **more):
    """Return an object of ours."""
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
        **more,
    }


@pytest.fixture
def write(lab, tmp_path):
    """Hand objects to kubectl."""

    def put(word, *documents, options=()):
        path = tmp_path / "objects.json"
        whole = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        path.write_text(json.dumps(whole))
        return cluster.kubectl(lab, word, "-f", str(path), *options)

    return put


@pytest.fixture(scope="module")
def installed(lab):
    """The definitions, served; they stay, others may use them."""
    cluster.kubectl(lab, "apply", "-f", str(CRDS))
    cluster.wait(lab, "-f", str(CRDS), "--for=condition=Established")


def test_the_api_server_keeps_our_objects(installed, lab, write):
    """Pool with status, block and lease come back as they were; kubectl shows the columns."""
    pool = ip_pool.load(of_value(document("IPPool", "training", SPEC), "pool"))
    usages = (Usage(family="IPv4", rail=0, size=234, held=32, free=202, nodes=1),)
    status = ip_pool_status.pool_status(None, pool, PoolFindings(1, usages), "2026-01-01T00:00:00Z")
    whole = document("IPPool", "training", SPEC)
    whole["status"] = msgspec.to_builtins(status)
    objects = document("IPPool", "training", SPEC), document("IPBlock", BLOCK_NAME, BLOCK)
    write("apply", *objects)
    write("replace", whole, options=("--subresource=status",))
    shown = cluster.kubectl(lab, "get", "ippools").split("\n")
    assert shown[0].split() == ["NAME", "RANGES", "USED", "FREE", "READY", "AGE"]
    assert shown[1].split()[:6] == [
        "training",
        "10.10.0.0/24,",
        "fd00:10::/64",
        "32",
        "202",
        "True",
    ]
    found = json.loads(cluster.kubectl(lab, "get", "ippools", "training", "-o", "json"))
    assert ip_pool.decode(json.dumps(found["spec"]).encode()).excludes == pool.excludes
    assert (found["spec"]["blockSize"], found["spec"]["network"]) == (32, "default")
    assert msgspec.convert(found["status"], IPPoolStatus) == status
    block = json.loads(cluster.kubectl(lab, "get", "ipblocks", BLOCK_NAME, "-o", "json"))
    assert block["spec"] == BLOCK
    write("delete", *objects)


def test_the_api_server_keeps_a_node_lease(lab, write):
    """With a label and annotations, and without a holder when it is only fenced."""
    name = ip_objects.lease_name(LEASE.node)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": dict((ip_objects.LEASE_LABEL,)),
            "annotations": ip_objects.lease_annotations(LEASE),
        },
        "spec": msgspec.to_builtins(ip_objects.lease_spec(LEASE)),
    }
    write("create", lease)
    try:
        words = ("-n", "kube-system", "get", "lease", name, "-o", "json")
        found = json.loads(cluster.kubectl(lab, *words))
        spec = ip_objects.decode_lease(json.dumps(found["spec"]).encode())
        assert ip_objects.lease(name, spec, found["metadata"]["annotations"]) == LEASE
    finally:
        cluster.kubectl(lab, "-n", "kube-system", "delete", "lease", name)


def test_objects_of_addresses_on_a_real_api_server(installed, lab):
    """The same tests as on the fake: compare-and-swap of blocks, boards and leases."""
    enter = ["nsenter", f"--target={lab.state.pid}", "--net", "--"]
    keys = {"KUBE_RDMA_TEST_KUBECONFIG": f"{lab.home}/pki/admin.kubeconfig"}
    command = [*enter, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **keys}, capture_output=True, text=True, check=False
    )
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


@pytest.mark.parametrize(
    ("name", "spec", "says"),
    [
        ("a", {"ranges": []}, "spec.ranges"),
        ("a", {"ranges": [{"subnet": "10.0.0.0/24"}], "blockSize": 5000}, "spec.blockSize"),
        ("a", {"ranges": [{"subnet": "10.0.0.0/24"}], "network": "A"}, "spec.network"),
        ("a", {"ranges": [{"subnet": "10.0.0.0/24", "rail": -1}]}, "spec.ranges[0].rail"),
        ("a", {"ranges": [{"subnet": 7}]}, "spec.ranges[0].subnet"),
        ("a", {"ranges": [{"subnet": "10.0.0.0/24"}], "excluded": []}, 'excluded"'),
        ("a.b", {"ranges": [{"subnet": "10.0.0.0/24"}]}, "metadata.name"),
    ],
)
def test_the_api_server_refuses_by_the_schema(installed, write, name, spec, says):
    """What the schema can say, it says even where no webhook is installed."""
    with pytest.raises(Unavailable) as caught:
        write("create", document("IPPool", name, spec), options=("--validate=strict",))
    assert says in str(caught.value)
