"""Claims where there are verbs: a node that is moved below a transfer.

What needs no RDMA device is in native/test_claims.py and native/test_claims_resource.py. Here one
`ib_write_bw` writes without an end between two pods while its node goes from shares of the device
plugin to claims and back.
"""

import json
import re

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import in_pod, measure
from kube_rdma_lab.installation import objects
from tests.documents.shell import Shell
from tests.kit import share_pods

pytestmark = pytest.mark.slow  # a second installation, and a transfer without an end
NODE, OTHER = "node-1", "node-2"
NAMESPACE, AGENT = "kube-rdma", "kube-rdma-agent"
HCA, CLASS = "rdma/hca", "rdma-hca"
GONE = ("--ignore-not-found", "--grace-period=1", "--wait")
VALUES = (
    "claims.enabled=true",
    f"claims.classes=[{{name: {CLASS}, resource: {HCA}}}]",
    """agent.config='{"mode": "hca"}'""",
)
WRITES = "ib_write_bw -d rxe0 -u 18 -F --report_gbits --run_infinitely -D 5"
LOG = "/tmp/writes"


@pytest.fixture(scope="module")
def agents(lab):
    """Agents that can serve claims, and a class for the seed's resource."""
    scc.install_kinds(lab)
    made = objects([assignment(word) for word in VALUES], "default")
    cluster.apply(lab, *made)
    try:
        cluster.rollout(lab, AGENT, NAMESPACE)
        cluster.wait_for_resource(lab, HCA, "1k")
        yield lab
    finally:
        cluster.kubectl(lab, "delete", "pods", "-n", "default", "--all", *GONE)
        items = [one for one in made if one["kind"] != "CustomResourceDefinition"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        words = ("--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(lab, "delete", "-f", "-", *words, stdin=text)
        cluster.kubectl(lab, "delete", "resourceslices", "--all")


@pytest.fixture
def shell(agents, tmp_path):
    """A shell of somebody whose kubectl and kube-rdma speak with the lab's cluster."""
    variables = {"KUBECONFIG": str(agents.kubeconfig), "HOME": str(tmp_path)}
    with Shell(variables, agents.state.binaries) as opened:
        yield opened


def inside(lab, pod, script):
    return cluster.kubectl(lab, "exec", pod, "--", "sh", "-c", script)


def rows(lab, pod):
    """How many results a transfer without an end has printed, one each five seconds."""
    return len(re.findall(r"^ *65536 ", inside(lab, pod, f"cat {LOG}"), re.MULTILINE))


@pytest.fixture
def writing(agents):
    """A pod whose program writes to another node until the test ends; both have shares."""
    for name, node in (("server", OTHER), ("client", NODE)):
        share_pods.start(agents, name, node, 1, HCA)
    address = cluster.get(agents, "pod/server")["status"]["podIP"]
    inside(agents, "server", f"{WRITES} >{LOG} 2>&1 &")
    # The server listens some time after it was started: what is refused is tried again.
    dial = f"until {WRITES} {address} >{LOG} 2>&1; do sleep 1; done"
    inside(agents, "client", f"({dial}) >/dev/null 2>&1 &")
    waiting.until(agents, "a first result", lambda: rows(agents, "client"))
    yield "client"
    share_pods.end(agents)


def goes_on(lab, pod):
    """Wait for two more results of the same transfer."""
    before = rows(lab, pod)
    waiting.until(lab, "two more results", lambda: rows(lab, pod) >= before + 2)


def claim_of(lab, pod):
    status = cluster.get(lab, f"pod/{pod}")["status"].get("extendedResourceClaimStatus")
    return status["resourceClaimName"] if status else None


def test_a_transfer_goes_on_while_its_node_goes_to_claims_and_back(agents, shell, writing):
    """The same process, connection and container; pods that come later have a claim, or a share."""
    plan = json.loads(shell.check(f"kube-rdma migrate node {NODE} -o json"))
    before = share_pods.running(agents)
    client = inside(agents, writing, "pgrep -x ib_write_bw")
    for way, name, by_claim in (("steps", "later", True), ("wayBack", "last", False)):
        for step in plan[way]:
            for command in step["commands"]:
                shell.check(command)
        goes_on(agents, writing)
        share_pods.start(agents, name, NODE, 1, HCA)
        assert bool(claim_of(agents, name)) == by_claim
        outcome = measure(agents, place(agents, "server"), place(agents, name), scc.WRITE_TEST)
        assert outcome.iterations == 1000
        goes_on(agents, writing)
    assert inside(agents, writing, "pgrep -x ib_write_bw") == client
    after = share_pods.running(agents)
    assert {uid: after[uid] for uid in before} == before
    share_pods.nothing_failed(agents)


def place(lab, pod):
    """A pod as a place to run perftest in."""
    return in_pod(lab, pod, cluster.get(lab, f"pod/{pod}")["status"]["podIP"])
