"""NodePolicies on a real API server: what its schema refuses, and what agents make of the rest."""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from tests.documents.shell import Shell
from tests.kit import manifests

EXAMPLE = scc.examples() / "s1-vke" / "daemonset.yaml"
CONTROLLER = scc.examples() / "s1-vke" / "controller.yaml"
CRDS = scc.examples().parent / "config/crds"
NAMESPACE = "kube-rdma-vke"
RESOURCE = "example.org/hca"
FABRIC = {"trafficClass": 106, "timeout": 22, "variables": {"NCCL_IB_AR_THRESHOLD": "0"}}
POOL = {"resource": RESOURCE, "mode": "hca", "shares": 10}


@pytest.fixture(scope="module")
def installed(native):
    """The definitions, served; they stay, others may use them."""
    cluster.kubectl(native, "apply", "-f", str(CRDS))
    cluster.wait(native, "-f", str(CRDS), "--for=condition=Established")
    return native


@pytest.fixture(scope="module")
def lab(installed):
    """Native nodes with seed S1's agents, whose nodes have no label."""
    scc.install_kinds(installed)
    cluster.kubectl(installed, "apply", "-f", str(EXAMPLE))
    cluster.rollout(installed, "rdma-device-plugin", NAMESPACE)
    yield installed
    cluster.kubectl(installed, "delete", "nodepolicies", "--all")
    cluster.kubectl(installed, "delete", "-f", str(EXAMPLE), "--cascade=foreground")
    cluster.kubectl(installed, "delete", "nodereports", "--all")


def policy(name, *pools, **spec):
    return manifests.node_policy(name, *pools, **spec)


def with_fabric(**fabric):
    return policy("a", POOL | {"fabric": fabric})


def test_a_whole_policy_is_taken_and_columns_are_shown(installed):
    """With every kind of field that it can have."""
    selectors = [{"vendors": ["15b3"], "pKeys": ["0x8001"], "rdma": True}]
    facts = {"*": {"fabric": "a"}}
    whole = policy(
        "whole",
        POOL | {"bind": "pool", "attach": "none", "selectors": selectors, "extraInfo": facts},
        {"resource": "rdma/shared", "mode": "shared", "fabric": FABRIC},
        {"resource": "rdma/vf", "mode": "sriov", "bind": "per-card"},
        nodeSelector={"no": "node"},
        priority=7,
        virtualFunctions=[{"selectors": [{"interfaces": ["ens1"]}], "count": 8}],
        rails=["0000:1a:00.0", "ens2f0"],
    )
    cluster.kubectl(installed, "create", "--validate=strict", "-f", "-", stdin=json.dumps(whole))
    try:
        head, row = cluster.kubectl(installed, "get", "nodepolicies", "whole").splitlines()
        columns = ["NAME", "PRIORITY", "NODES", "APPLIED", "PENDING", "REFUSED", "READY", "AGE"]
        assert head.split() == columns
        assert row.split()[:2] == ["whole", "7"]
    finally:
        cluster.kubectl(installed, "delete", "nodepolicy", "whole")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (policy("a"), "spec.pools"),
        (policy("a", POOL | {"mode": "hcas"}), "spec.pools[0].mode"),
        (policy("a", POOL | {"shares": 0}), "spec.pools[0].shares"),
        (policy("a", POOL | {"shared": 1}), 'unknown field "spec.pools[0].shared"'),
        (policy("a", POOL | {"resource": "hca"}), "a resource is named like rdma/hca"),
        (policy("a", POOL | {"resource": "kubernetes.io/a"}), "not kubernetes.io"),
        (policy("a", POOL | {"resource": "requests.a/b"}), "a resource is named like"),
        (policy("a", POOL, POOL | {"mode": "shared"}), "a resource has one pool"),
        (policy("a", POOL | {"mode": "shared", "bind": "pool"}), "only in mode hca"),
        (with_fabric(timeout=32), "fabric.timeout"),
        (with_fabric(variables={"LD_PRELOAD": "a"}), "a variable is of NCCL_ or UCX_"),
        (with_fabric(variables={"NCCL_A": "1\nB"}), "one line of ASCII"),
        (with_fabric(variables={"NCCL_IB_HCA": "a"}), "each container's own"),
        (policy("a", POOL | {"selectors": [{}]}), "this selector chooses nothing"),
        (policy("a", POOL | {"selectors": [{"vendors": []}]}), "this selector chooses nothing"),
        (policy("a", POOL | {"rdmaLimits": {}}), "these limits limit nothing"),
        (policy("a", POOL, rails=["ens1", "ens1"]), "a card has one rail"),
        (policy("a", POOL, virtualFunctions=[{"selectors": [], "count": 1}]), "selectors"),
        (policy("a", *[POOL | {"resource": f"a/{n}"} for n in range(65)]), "at most 64"),
    ],
)
def test_what_the_schema_can_say_is_said_by_the_api_server(installed, spec, says):
    """Before any agent reads it."""
    with pytest.raises(Unavailable) as caught:
        cluster.kubectl(installed, "create", "--validate=strict", "-f", "-", stdin=json.dumps(spec))
    assert says in str(caught.value)


def troubles(lab, node):
    return cluster.get(lab, f"nodereport/{node}")["status"].get("troubles", [])


def test_a_policy_reaches_the_nodes_that_it_selects_and_no_others(lab):
    """By its label; another mode for all nodes loses against a higher priority."""
    selector = {"kubernetes.io/hostname": "node-1"}
    cluster.apply(lab, policy("first", POOL, nodeSelector=selector, priority=1))
    cluster.wait_for_resource(lab, RESOURCE, 10, node="node-1")
    shown = cluster.get(lab, "node/node-2")["status"]["allocatable"]
    assert shown.get(RESOURCE, "0") == "0"

    cluster.apply(lab, policy("second", POOL | {"shares": 20}))
    cluster.wait_for_resource(lab, RESOURCE, 20, node="node-2")
    assert cluster.get(lab, "node/node-1")["status"]["allocatable"][RESOURCE] == "10"
    assert troubles(lab, "node-1") == []

    cluster.apply(lab, policy("second", POOL | {"shares": 20}, priority=1))
    waiting.until(
        lab,
        "the overlap in the report",
        lambda: any("NodePolicy first and NodePolicy second" in t for t in troubles(lab, "node-1")),
    )
    assert "second" in cluster.until_event(lab, "PoliciesOverlap")
    assert troubles(lab, "node-2") == []

    cluster.kubectl(lab, "delete", "nodepolicy", "first")
    cluster.wait_for_resource(lab, RESOURCE, 20, node="node-1")
    cluster.kubectl(lab, "delete", "nodepolicy", "second")
    cluster.wait_for_resource(lab, RESOURCE, 0, node="node-1")


@pytest.fixture
def controlled(lab):
    """The same with the example's controllers."""
    cluster.kubectl(lab, "apply", "-f", str(CONTROLLER))
    yield lab
    cluster.kubectl(lab, "delete", "-f", str(CONTROLLER), "--cascade=foreground")


def until_status(lab, name, **counts):
    """Wait for these numbers in a policy's status, all others being zero."""

    def numbers():
        status = cluster.get(lab, f"nodepolicy/{name}").get("status", {})
        return {key: n for key, n in status.items() if isinstance(n, int) and n} == counts

    waiting.until(lab, f"status {counts} of {name}", numbers)


def reasons(lab, name):
    """Of the conditions of a policy."""
    path = "jsonpath={.status.conditions[*].reason}"
    return cluster.kubectl(lab, "get", "nodepolicy", name, "-o", path).split()


def told_of(lab, name):
    """What `kube-rdma status` says of a policy: codes, and whether each is advice."""
    with Shell({"KUBECONFIG": str(lab.kubeconfig)}) as shell:
        _, printed = shell.run("kube-rdma status -o json")
    problems = json.loads(printed)["problems"]
    return [(p["code"], p["advice"]) for p in problems if p["about"] == f"nodepolicy/{name}"]


def test_a_policy_says_on_which_nodes_it_is_applied(controlled):
    """From a policy for all nodes, by another one above it, to one that is for no node."""
    lab = controlled
    cluster.apply(lab, policy("base", POOL))
    until_status(lab, "base", observedGeneration=1, nodes=2, applied=2)
    cluster.wait(lab, "nodepolicy/base", "--for=condition=Ready")

    selector = {"kubernetes.io/hostname": "node-1"}
    cluster.apply(lab, policy("special", POOL | {"shares": 20}, nodeSelector=selector, priority=1))
    until_status(lab, "special", observedGeneration=1, nodes=1, applied=1)
    until_status(lab, "base", observedGeneration=1, nodes=2, applied=1, overruled=1)
    _, base, special = cluster.kubectl(lab, "get", "nodepolicies").splitlines()
    assert base.split()[:7] == ["base", "0", "2", "1", "0", "0", "True"]
    assert special.split()[:7] == ["special", "1", "1", "1", "0", "0", "True"]

    cluster.apply(lab, policy("base", POOL | {"shares": 30}, priority=1))
    until_status(lab, "base", observedGeneration=2, nodes=2, applied=2)
    until_status(lab, "special", observedGeneration=1, nodes=1, refused=1)
    cluster.wait(lab, "nodepolicy/special", "--for=condition=Ready=False")
    (remark,) = cluster.get(lab, "nodepolicy/special")["status"]["remarks"]
    assert remark["node"] == "node-1"
    assert "NodePolicy base: spec.pools[0]" in remark["message"]
    assert told_of(lab, "special") == [("PolicyRefused", False)]

    cluster.apply(lab, policy("special", POOL, nodeSelector={"no": "node"}))
    waiting.until(lab, "nobody", lambda: "NoNodeMatches" in reasons(lab, "special"))
    assert told_of(lab, "special") == [("PolicyPending", True)]
    assert not told_of(lab, "base")
    cluster.kubectl(lab, "delete", "nodepolicies", "--all")
    cluster.wait_for_resource(lab, RESOURCE, 0, node="node-1")
