"""Cards by claims where there are verbs: a node that is moved below a transfer, and pools of cards.

What needs no RDMA device is in native/test_claims.py and native/test_claims_resource.py. Here one
`ib_write_bw` writes without an end between two pods while its node goes from shares of the device
plugin to claims and back; then pods have a whole card, and a virtual function, by claim.
"""

import json
import re

import pytest

from kube_rdma.model.claims.device import DRIVER
from kube_rdma.programs.install.installation import assignment, objects
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import Endpoint, measure
from tests.documents.shell import Shell
from tests.kit import share_pods
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # a second installation, and a transfer without an end
NODE, OTHER = "node-1", "node-2"
NAMESPACE, AGENT = "kube-rdma", "kube-rdma-agent"
HCA, CLASS = "rdma/hca", "rdma-hca"
OWN, FUNCTION = "lab/own", "lab/function"
POOL = "claims"
CARD, PHYSICAL = "ens2f0", "ens4f0"
GONE = ("--ignore-not-found", "--grace-period=1", "--wait")
VALUES = (
    "claims.enabled=true",
    f"claims.classes=[{{name: {CLASS}, resource: {HCA}}}]",
    """agent.config='{"mode": "hca"}'""",
)
WRITES = "ib_write_bw -d rxe0 -u 18 -F --report_gbits --run_infinitely -D 5"
LOG = "/tmp/writes"
# Each pod names the device of its own card and the GID of its address there.
WRITE_TEST = ("sh", "-c", '. nccl_env.sh && exec ib_write_bw -d "${UCX_NET_DEVICES%:*}" "$@"')
NUMBERS = ("perftest", "-n", "300", "-u", "18", "-F", "--report_gbits")


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


def place(lab, pod, address=None):
    """A pod as a place to run perftest in."""
    dialled = address or cluster.get(lab, f"pod/{pod}")["status"]["podIP"]
    return Endpoint(pod, dialled, lambda *words: lab.kubectl("exec", pod, "--", *words))


def policy():
    """A card and the functions of another for claims; nothing for the plugin."""
    own = {"resource": OWN, "mode": "exclusive", "selectors": [{"interfaces": [CARD]}]}
    functions = {
        "resource": FUNCTION,
        "mode": "sriov",
        "selectors": [{"physicalFunctions": [PHYSICAL], "rdma": False}],
    }
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": "claims"},
        "spec": {"pools": [pool | {"serve": "claims"} for pool in (own, functions)]},
    }


def device_class(name, resource):
    attribute = f'device.attributes["{DRIVER}"].resource == "{resource}"'
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}" && {attribute}'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [selector]},
    }


def pod(name, node, class_name, **parameters):
    """A pod with a device of a class as `net1`, and the template of its claim."""
    document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters", **parameters}
    devices = {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": class_name}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": document}}],
    }
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }
    made = sleeping_pod(
        name,
        nodeSelector={"kubernetes.io/hostname": node},
        terminationGracePeriodSeconds=1,
        resourceClaims=[{"name": "nic", "resourceClaimTemplateName": name}],
    )
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    return template, made


@pytest.fixture(scope="module")
def pools(agents):
    """Cards of the pool `lab/own` and functions of `lab/function` on both nodes, by claims."""
    addresses = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": POOL},
        "spec": {"ranges": [{"subnet": "10.77.0.0/24"}], "restSeconds": 0},
    }
    classes = (device_class("own", OWN), device_class("function", FUNCTION))
    cluster.apply(agents, addresses, *classes, policy())
    try:
        for resource, count in ((OWN, 2), (FUNCTION, 4)):
            what = f"{count} devices of {resource}"
            waiting.until(agents, what, lambda r=resource, n=count: offered(agents, r) >= n)
        yield agents
    finally:
        cluster.kubectl(agents, "delete", "pods,resourceclaimtemplates", "--all", *GONE)
        cluster.kubectl(agents, "delete", "deviceclass", "own", "function")
        cluster.kubectl(agents, "delete", "nodepolicy", "claims")
        cluster.kubectl(agents, "delete", "ippool", POOL)


def offered(lab, resource):
    """How many devices of a resource the slices have."""
    slices = [one["spec"] for one in cluster.get(lab, "resourceslices")["items"]]
    devices = [device for spec in slices for device in spec.get("devices", ())]
    return sum(
        device["attributes"].get("resource", {}).get("string") == resource for device in devices
    )


def links(lab, node):
    """The names of a node's interfaces."""
    return {link["ifname"] for link in json.loads(cluster.shell(lab, node, "ip", "-j", "link"))}


def test_whole_cards_of_claims_talk_and_come_home(pools):
    """Each pod has the node's own card as net1, with its RDMA device; ends give both back."""
    names = {"own-1": NODE, "own-2": OTHER}
    documents = [each for name, node in names.items() for each in pod(name, node, "own", pool=POOL)]
    before = {node: links(pools, node) for node in names.values()}
    assert all(CARD in seen for seen in before.values())
    cluster.apply(pools, *documents)
    cluster.ready(pools, *names)
    assert all(CARD not in links(pools, node) for node in names.values())
    ends = [place(pools, name, address(pools, name)) for name in names]
    outcome = measure(pools, *ends, (*WRITE_TEST, *NUMBERS))
    assert outcome.addresses == {end.address for end in ends}
    cluster.kubectl(pools, "delete", "pod", *names, *GONE)
    for node, seen in before.items():
        waiting.until(pools, f"the cards of {node}", lambda n=node, s=seen: s <= links(pools, n))


def test_a_function_of_a_claim_is_the_pods_interface_and_comes_home(pools):
    """The one that the scheduler allocated, by its PCI address."""
    before = links(pools, OTHER)
    cluster.apply(pools, *pod("function", OTHER, "function", type="host-device", pool=POOL))
    cluster.ready(pools, "function")
    (claim,) = cluster.get(pools, "pod/function")["status"]["resourceClaimStatuses"]
    status = cluster.get(pools, f"resourceclaim/{claim['resourceClaimName']}")["status"]
    (result,) = status["allocation"]["devices"]["results"]
    shown = inside(pools, "function", "readlink -f /sys/class/net/net1/device").strip()
    assert shown.rpartition("/")[2] == result["device"].replace("-", ":", 2).replace("-", ".")
    assert address(pools, "function").startswith("10.77.0.")
    cluster.kubectl(pools, "delete", "pod", "function", *GONE)
    waiting.until(pools, "the function", lambda: before <= links(pools, OTHER))


def address(lab, pod):
    """The pod's address on net1, as its own namespace shows it."""
    shown = inside(lab, pod, "ip -4 -o address show dev net1")
    return re.search(r"inet ([\d.]+)/24", shown)[1]
