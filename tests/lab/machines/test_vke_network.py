"""Seed S1's pods on the lab: an interface and an RDMA device for each block, in each mode.

On the topology two-nodes with two cards; test_vke_four_cards runs all of it with one, two and four.
"""

import ipaddress
import json
import re

import pytest
import yaml

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import in_pod, measure
from kube_rdma_lab.waiting import until
from tests.documents.on_lab import followed
from tests.kit import mpi

EXAMPLE = scc.examples() / "s1-vke"
RESOURCE = "vke.volcengine.com/rdma"
LABEL = "vke.node.rdma.mode"
NODES = ("node-1", "node-2")
STATUS = "k8s.volcengine.com/network-status"
OWN = "kube-rdma.io/network-status"
MODES = {"exclusive": 1, "shared": 1, "shared-multi": 16}  # shares of a card
SLOW = [pytest.param(mode, marks=pytest.mark.slow) for mode in ("shared", "shared-multi")]
GATEWAY_FREE = ipaddress.ip_network("192.168.120.0/22")  # where the example's pool gives from


def cards(lab):
    """The interfaces of a node's RDMA cards."""
    return [nic.name for nic in lab.topology.nodes[0].nics if nic.soft_roce]


@pytest.fixture(scope="module")
def page(lab):
    """The example's page, followed as far as cards are offered; a call goes on to its workload."""
    with followed(lab, "examples/s1-vke/README.md", later=1) as used:
        yield used


@pytest.fixture(scope="module")
def s1(lab, page):
    """The lab as the example's page makes it: agent, addresses and mode."""
    return lab


def switch(lab, mode, *nodes):
    """Put nodes into a mode; wait until they offer its shares."""
    for node in nodes:
        cluster.kubectl(lab, "label", "node", node, f"{LABEL}={mode}", "--overwrite")
    for node in nodes:
        quantity = MODES[mode] * len(cards(lab))
        cluster.wait_for_resource(lab, RESOURCE, quantity, node=node)


@pytest.fixture
def start(s1, tmp_path):
    """Start the example's pod with so many cards on a node; all are removed at the end."""
    started = []

    def run(count, node, **changes):
        document = yaml.safe_load((EXAMPLE / f"pod-{count}.yaml").read_text())
        name = f"rdma-{count}-{node}"
        document["metadata"]["name"] = name
        document["spec"]["nodeName"] = node
        document["metadata"]["annotations"] |= changes
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document))
        started.append(name)
        admit(s1, name, path)
        return name

    yield run
    if started:
        cluster.kubectl(s1, "delete", "pod", *started, "--ignore-not-found")


def ready(lab, name):
    """Wait until a pod is Ready; say what its events say if it is not."""
    try:
        cluster.ready(lab, name)
    except Unavailable as error:
        raise AssertionError(notes(lab, name)) from error


def admit(lab, name, path):
    """Make a pod, anew as its controller would do while the kubelet refuses it.

    A card that was just given back is offered again when its RDMA device is there, and the node's
    allocatable is some seconds older than what the kubelet admits pods by.
    """
    for _ in range(20):
        cluster.kubectl(lab, "apply", "-f", str(path))
        cluster.kubectl(lab, "wait", f"pod/{name}", "--for=jsonpath={.status.startTime}")
        status = cluster.get(lab, f"pod/{name}")["status"]
        if status.get("reason") != "UnexpectedAdmissionError":
            return
        cluster.kubectl(lab, "delete", "pod", name)
    raise AssertionError(status)


def notes(lab, name):
    """What the events about a pod say."""
    words = ("events", f"--field-selector=involvedObject.name={name}")
    return [each["message"] for each in cluster.get(lab, *words)["items"]]


def annotation(lab, pod, name):
    return json.loads(cluster.get(lab, f"pod/{pod}")["metadata"]["annotations"][name])


def inside(lab, pod, *words):
    return cluster.kubectl(lab, "exec", pod, "--", *words)


def links(lab, node):
    """What stays of a node's RDMA interfaces: name, MAC, MTU, state and addresses."""
    found = {}
    for link in json.loads(cluster.shell(lab, node, "ip", "-j", "address")):
        if link["ifname"] in cards(lab):
            addresses = sorted(
                (one["local"], one["prefixlen"])
                for one in link["addr_info"]
                if one["scope"] == "global"
            )
            up = "UP" in link["flags"]
            found[link["ifname"]] = (link["address"], link["mtu"], up, addresses)
    return found


def rdma_links(lab, node):
    """The node's RDMA devices with their interfaces."""
    shown = cluster.shell(lab, node, "rdma", "link")
    return sorted(re.findall(r"link (\S+)/1 .* netdev (\S+)", shown))


@pytest.fixture
def deployment(s1, page):
    """The page's workload; behind the test it has no pods any more, for these hold the cards."""
    page()
    yield
    cluster.kubectl(s1, "scale", "deployment/rdma", "--replicas=0")
    cluster.kubectl(s1, "wait", "pod", "-l", "app=rdma", "--for=delete", "--timeout=10m")


@pytest.mark.usefixtures("deployment")
def test_a_deployment_has_a_card_and_an_address_in_each_of_its_pods(s1):
    """The document's way to run a workload; its pods come back by themselves."""
    # Without those that the kubelet refused while a card was just coming back (see admit).
    running = ("-l", "app=rdma", "--field-selector=status.phase=Running")
    pods = cluster.get(s1, "pods", *running)["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(NODES)
    for pod in pods:
        name = pod["metadata"]["name"]
        (own,) = annotation(s1, name, OWN)
        assert own["interface"] == "eth1"
        shown = inside(s1, name, "ip", "-4", "-o", "address", "show", "dev", "eth1")
        (address,) = re.findall(r"inet ([\d.]+)/24", shown)
        assert ipaddress.ip_address(address) in GATEWAY_FREE


@pytest.mark.parametrize("mode", ["exclusive", *SLOW])
def test_each_block_has_a_card_an_address_and_a_gid(s1, start, mode):
    node = NODES[0]
    switch(s1, mode, node)
    before = links(s1, node), rdma_links(s1, node)
    for count in (1, 2, 4) if len(cards(s1)) == 4 else (len(cards(s1)),):
        name = start(count, node)
        ready(s1, name)
        own = annotation(s1, name, OWN)
        assert [one["interface"] for one in own] == [f"eth{n}" for n in range(1, count + 1)]
        assert len({one["rdmaDevice"] for one in own}) == count
        assert all("gidIndex" in one for one in own)
        told = [one for one in annotation(s1, name, STATUS) if one["cniName"] == "rdma"]
        for place, one in enumerate(told):
            info = one["deviceInfo"]
            shown = inside(s1, name, "ip", "-4", "-o", "address", "show", "dev", info["ifName"])
            (address,) = re.findall(r"inet ([\d.]+)/24", shown)
            assert info["ips"] == [address], place
            assert ipaddress.ip_address(address) in GATEWAY_FREE
        nodes = inside(s1, name, "ls", "/dev/infiniband").split()
        assert len([each for each in nodes if each.startswith("uverbs")]) == count
        cluster.kubectl(s1, "delete", "pod", name)
        assert (links(s1, node), rdma_links(s1, node)) == before


def test_two_blocks_and_one_card_are_refused_with_both_numbers(s1, start):
    switch(s1, "shared", NODES[0])
    blocks = json.dumps([{"cniConf": {"name": "rdma"}}] * 2)
    name = start(1, NODES[0], **{"k8s.volcengine.com/pod-networks": blocks})
    path = "{.status.phase}=Pending"
    cluster.wait(s1, f"pod/{name}", f"--for=jsonpath={path}")
    until(s1, "an event with '2 blocks'", lambda: [n for n in notes(s1, name) if "2 blocks" in n])
    assert any("hold 1 of it" in note for note in notes(s1, name))


# Of a common user without rights, in whose environment nobody has put anything.
USER = "setpriv --reuid=nobody --clear-groups --inh-caps=-all --bounding-set=-all"
OWN_CARD = '. nccl_env.sh && exec ib_write_bw -d "${UCX_NET_DEVICES%:*}" -x "$UCX_IB_GID_INDEX"'
WRITE_TEST = ("sh", "-c", f'exec {USER} sh -c "$0" perftest "$@"', f'{OWN_CARD} "$@"')


@pytest.mark.parametrize("mode", ["exclusive", *SLOW])
def test_programs_take_their_own_card_from_node_to_node(s1, start, mode):
    """perftest by a common user, and MPI over UCX; nobody tells either of a card or a GID."""
    switch(s1, mode, *NODES)
    owns = {}
    for node in NODES:
        name = start(1, node)
        ready(s1, name)
        (owns[name],) = annotation(s1, name, OWN)
    server, client = (endpoint(s1, name, own) for name, own in owns.items())
    outcome = measure(s1, server, client, (*WRITE_TEST, "-n", "300", "-F", "--report_gbits"))
    assert outcome.addresses == {server.address, client.address}
    mpi.let_in(s1, *owns)
    before = [sent(s1, *place) for place in owns.items()]
    sizes = mpi.ping_pong(s1, *owns)
    assert max(sizes) >= mpi.LARGEST
    after = [sent(s1, *place) for place in owns.items()]
    for first, last in zip(before, after, strict=True):
        assert last - first > mpi.ROUNDS * sum(sizes)


def sent(lab, pod, own):
    return mpi.sent(lab, cluster.get(lab, f"pod/{pod}")["spec"]["nodeName"], own["rdmaDevice"])


def endpoint(lab, pod, own):
    """A pod as a place to run perftest in, with the address of its own card."""
    shown = inside(lab, pod, "ip", "-4", "-o", "address", "show", "dev", own["interface"])
    (address,) = re.findall(r"inet ([\d.]+)/", shown)
    return in_pod(lab, pod, address)
