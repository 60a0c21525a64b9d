"""Two nodes, four rails, and a router between them: each card is cabled to a port of its own.

The real agent, kubelet, containerd and API server on native nodes; a rail of a node is a veth whose
other end is in the network namespace of a router, with a /31 as leaves have it. Two of the pools
name the slices of the nodes, as a fabric whose routers are configured first; of the other two the
router learns where they are from the pods. docs/ip.md, docs/networks.md.
"""

import json
import subprocess
from contextlib import contextmanager
from ipaddress import ip_address, ip_interface

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.native import node as native_node
from kube_rdma_lab.waiting import until
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

EXAMPLE, NAMESPACE = scc.examples() / "s3-network", "mlnx-network-operator"
NODES = ("node-1", "node-2")
RAILS = range(4)
CHOSEN = (0, 1)  # rails whose slices the pool names
SPARE, FAR = "spare", "10.30.0.0/16"
ACROSS = [(mine, other) for mine in RAILS for other in RAILS]


def in_lab(lab, *words):
    """Run words of this machine in the lab's namespaces."""
    done = subprocess.run([*lab.enter(), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def in_router(lab, process, *words):
    """Run words in the network namespace of a process of the lab."""
    return in_lab(lab, "nsenter", "-t", process, "-n", "--", *words)


def port(node, rail):
    """The router's interface for a card."""
    return f"n{NODES.index(node)}r{rail}"


def slice_of(node, rail):
    """The slice that the pool of a rail names for a node, in another order on the second rail."""
    place = NODES.index(node) if rail == 0 else len(NODES) - NODES.index(node)
    return f"10.20.{rail}.{2 * place}/31"


def definition(name, **plugin):
    config = {"cniVersion": "1.0.0", **plugin}
    return manifests.network(name, config, "default")


def pool(rail):
    chosen = [{"node": node, "subnet": slice_of(node, rail)} for node in NODES]
    per_node = {"prefix": 31, "gatewayIndex": 0} | ({"nodes": chosen} if rail in CHOSEN else {})
    return manifests.ip_pool(
        f"routed-{rail}",
        ranges=[{"subnet": f"10.20.{rail}.0/28", "perNode": per_node}],
        routes=[{"dst": "10.20.0.0/16"}],
        restSeconds=0,
    )


@contextmanager
def a_router(lab):
    """A network namespace that forwards, as the process that holds it.

    It ends with the process, and the process with its input: a run that is killed leaves nothing,
    where `ip netns add` leaves its file in the machine's /run.
    """
    words = [*lab.enter(), "unshare", "--net", "sh", "-c", "echo $$; exec cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        process = held.stdout.readline().strip()
        in_router(lab, process, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        yield process
        held.stdin.close()


def connect(lab, process):
    """A cable from the router to each card of each node."""
    for node in NODES:
        first = native_node.first_process(lab.home, lab.node(node)).strip()
        names = [(port(node, rail), f"rail{rail}") for rail in RAILS]
        for far, near in (*names, (f"n{NODES.index(node)}s", SPARE)):
            ends = ("type", "veth", "peer", "name", near, "netns", first)
            in_lab(lab, "ip", "link", "add", far, "netns", process, *ends)
            in_router(lab, process, "ip", "link", "set", far, "up")
            cluster.shell(lab, node, f"ip link set {near} up")


@pytest.fixture(scope="module")
def router(native):
    """Words run in the router, which has a cable to each card."""
    with a_router(native) as process:
        connect(native, process)
        yield lambda *words: in_router(native, process, *words)


@pytest.fixture(scope="module")
def lab(native, router):
    """The agent and the controller of seed S3, a pool and a network for each rail."""
    scc.install_kinds(native)
    cluster.label_cards(native)
    networks = [
        definition(
            f"rail-{rail}",
            type="macvlan",
            master=f"rail{rail}",
            ipam={"type": "kube-rdma-ipam", "pool": f"routed-{rail}"},
        )
        for rail in RAILS
    ]
    networks.append(definition("card", type="host-device", device=SPARE))
    files = [word for name in ("agent", "controller") for word in ("-f", f"{EXAMPLE}/{name}.yaml")]
    cluster.kubectl(native, "apply", *files)
    cluster.apply(native, *networks, *map(pool, RAILS))
    cluster.rollout(native, "rdma-shared-dp-ds", NAMESPACE)
    cluster.until_chained(native)
    yield native
    cluster.kubectl(native, "delete", "pods", "--all", "-n", "default", "--grace-period=1")
    names = [each["metadata"]["name"] for each in networks]
    cluster.kubectl(native, "delete", "network-attachment-definitions", *names)
    pools = [f"routed-{rail}" for rail in RAILS]
    cluster.kubectl(native, "delete", "ippools.kube-rdma.io", *pools)
    cluster.kubectl(native, "delete", *files, "--cascade=foreground")
    cluster.kubectl(native, "label", "node", "--all", f"{cluster.CARDS_LABEL}-")


def start(lab, name, node, *networks):
    asking = {"k8s.v1.cni.cncf.io/networks": ",".join(networks)}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 1}
    cluster.apply(lab, sleeping_pod(name, annotations=asking, **spec))


def inside(lab, name, *words):
    return cluster.kubectl(lab, "exec", name, "--", *words)


def addresses(lab, name):
    """The address of each rail's interface, with its length."""
    found = {}
    for rail in RAILS:
        (link,) = json.loads(
            inside(lab, name, "ip", "-j", "-4", "address", "show", f"net{rail + 1}")
        )
        (one,) = link["addr_info"]
        found[rail] = ip_interface(f"{one['local']}/{one['prefixlen']}")
    return found


@pytest.fixture(scope="module")
def pods(lab, router):
    """A pod of four rails on each node; the router has an address in each slice that they got."""
    for node in NODES:
        start(lab, f"on-{node}", node, *(f"rail-{rail}" for rail in RAILS))
    cluster.ready(lab, *(f"on-{node}" for node in NODES))
    found = {node: addresses(lab, f"on-{node}") for node in NODES}
    for node, own in found.items():
        for rail, address in own.items():
            gateway = f"{address.network.network_address}/31"
            router("ip", "address", "replace", gateway, "dev", port(node, rail))
    return found


def test_each_node_has_a_slice_of_each_rail(lab, pods):
    """No two nodes one, those that the pools name as they are named, and the router is in each."""
    slices = [address.network for own in pods.values() for address in own.values()]
    assert len(set(slices)) == len(slices) == len(NODES) * len(RAILS)
    assert {network.prefixlen for network in slices} == {31}
    for node, own in pods.items():
        for rail in CHOSEN:
            assert str(own[rail].network) == slice_of(node, rail)
        assert all(address.ip != address.network.network_address for address in own.values())


@pytest.mark.parametrize(("mine", "other"), ACROSS)
def test_rails_reach_each_other_through_the_router(lab, pods, mine, other):
    """From each rail of one node to each of the other: by the router, and not by eth0."""
    here, there = pods["node-1"][mine], pods["node-2"][other]
    (way,) = json.loads(
        inside(lab, "on-node-1", "ip", "-j", "route", "get", str(there.ip), "from", str(here.ip))
    )
    assert ip_address(way["gateway"]) == here.network.network_address
    assert way["dev"] == f"net{mine + 1}"
    ping = ("ping", "-c", "3", "-W", "5", "-I", str(here.ip), str(there.ip))
    assert " 0% packet loss" in inside(lab, "on-node-1", *ping)


def test_router_advertisements_are_ignored(lab, pods):
    """On each rail."""
    for rail in RAILS:
        path = f"/proc/sys/net/ipv6/conf/net{rail + 1}/accept_ra"
        assert inside(lab, "on-node-1", "cat", path).strip() == "0"


def test_a_node_whose_slice_is_full_says_so(lab, pods):
    """A /31 has one address beside the router's; the pod starts when the other one ends."""
    start(lab, "second", "node-1", "rail-0")
    cluster.until_event(
        lab, "FailedCreatePodSandBox", f"{slice_of('node-1', 0)}, which node node-1 has of the pool"
    )
    cluster.kubectl(lab, "delete", "pod", "second")


def test_a_card_s_routes_are_the_node_s_again_when_its_pod_ends(lab):
    """A card with a /32 behind a router, with a table and a rule of its own."""
    node, hop = "node-1", "10.29.0.1"
    table = f"{FAR} via {hop} dev {SPARE} onlink table 201"
    cluster.shell(lab, node, f"ip address add 10.29.0.8/32 dev {SPARE}")
    for route in (f"{hop} dev {SPARE}", f"10.29.0.0/24 via {hop} dev {SPARE} metric 50", table):
        cluster.shell(lab, node, f"ip route add {route}")
    cluster.shell(lab, node, "ip rule add from 10.29.0.8 lookup 201 priority 900")

    def ways():
        shown = f"ip route show table all dev {SPARE}; ip rule show priority 900"
        lines = cluster.shell(lab, node, shown).splitlines()
        return sorted(line.strip() for line in lines if "proto kernel" not in line)

    before = [line.replace(" linkdown", "") for line in ways()]
    assert len([line for line in before if hop in line]) == 3
    start(lab, "whole", node, "card")
    cluster.ready(lab, "whole")
    assert SPARE not in cluster.shell(lab, node, "ip -br link")
    cluster.kubectl(lab, "delete", "pod", "whole")

    def is_back():
        links = cluster.shell(lab, node, "ip -br link")
        now = [line.replace(" proto static", "") for line in ways()] if SPARE in links else []
        return now == before

    until(lab, "the node's routes over the card", is_back)
    cluster.shell(lab, node, "ip rule del priority 900")
