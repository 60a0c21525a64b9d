"""Bad days of claims on the real kubelet: a node that boots anew, an absent driver, a lost card.

Agents, cards and network are those of tests/kit/claiming.py. A native node has no kernel of its
own, so what a reboot takes away is taken away by hand: containers, sandboxes and their namespaces,
runtime, kubelet, and all of /run. The disk stays. The kernel's boot id stays too, which on a
machine changes (tests/lab/machines/test_reboot.py reboots one, with shares).
"""

from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.native.replay import Replay
from tests.kit.claiming import (
    ADDRESS,
    FAILED,
    NAMESPACE,
    NETWORK,
    NODE,
    address_of,
    agents,
    applied,
    device_nodes,
    device_of,
    interface,
    of_template,
    slices,
)
from tests.kit.pods import in_network

# Each waits for things that a node or an agent does when it comes back: over 30 s.
pytestmark = pytest.mark.slow

OTHER_ADDRESS = "10.77.0.10"
AGENTS = ("-n", NAMESPACE, "daemonset/kube-rdma-agent")
NOWHERE = "test.kube-rdma.io/nowhere"
FILES = "/var/run/cdi/kube-rdma_claim-*"
KUBELET_LOG = "/var/log/kubelet.log"

# What goes with a kernel. Programs first, or the runtime would tidy up as no reboot does.
OFF = """
sv -w 60 force-stop kubelet kube-proxy >/dev/null
tasks=$(ctr -n k8s.io tasks ls | awk 'NR > 1 {print $2}')
sv -w 60 force-stop containerd >/dev/null
kill -9 $tasks $(pidof containerd-shim-runc-v2) 2>/dev/null
while pidof containerd-shim-runc-v2 >/dev/null; do sleep 0.1; done
awk '$2 ~ "^/(run|var/lib/kubelet)/" {print $2}' /proc/self/mounts | sort -r | xargs -r umount -l
find /run -mindepth 1 -delete
mkdir /run/lock
"""
ON = "sv start containerd kubelet kube-proxy"


@pytest.fixture(scope="module")
def lab(ethernet):
    """The agents, with an address pool and a network."""
    with agents(ethernet) as installed:
        yield installed


def networked(name, address):
    """A pod whose card by a claim has an interface with this address."""
    return of_template(name, {"network": NETWORK, "addresses": [address]})


def claim_of(lab, name):
    """The name of a pod's claim, and its uid."""
    (status,) = cluster.get(lab, f"pod/{name}")["status"]["resourceClaimStatuses"]
    name = status["resourceClaimName"]
    return name, cluster.get(lab, f"resourceclaim/{name}")["metadata"]["uid"]


def files(lab):
    """The uids of the claims that have a file for the runtime."""
    listed = cluster.shell(lab, NODE, f"ls {FILES} 2>/dev/null || true").split()
    return {one.rpartition("claim-")[2].removesuffix(".json") for one in listed}


def is_there(lab, what):
    """Whether an object is."""
    return bool(cluster.kubectl(lab, "get", what, "--ignore-not-found", "-o", "name"))


def is_given_back(lab, address):
    """Whether the next pod gets the address, and no claim has a file once it has ended."""
    with applied(lab, *networked("next", address)):
        cluster.ready(lab, "next")
        shown = interface(lab, "next")
    waiting.until(lab, "no file of a claim", lambda: not files(lab))
    return f"inet {address}/24" in shown


def test_a_node_that_boots_anew_gives_its_pods_what_they_had(lab):
    """Cards, address and files; a pod that was deleted meanwhile leaves none of them."""
    pods = {"stays": ADDRESS, "ends": OTHER_ADDRESS}
    with applied(lab, *(one for name in pods for one in networked(name, pods[name]))):
        cluster.ready(lab, *pods)
        before = device_nodes(lab, "stays")
        uids = {name: claim_of(lab, name)[1] for name in pods}
        assert files(lab) == set(uids.values())
        cluster.shell(lab, NODE, OFF)
        cluster.kubectl(lab, "delete", "pod", "ends", "--wait=false")
        cluster.shell(lab, NODE, ON)
        restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
        cluster.wait(lab, "pod/stays", restarted)
        cluster.ready(lab, "stays")
        assert device_nodes(lab, "stays") == before
        assert f"inet {ADDRESS}/24" in interface(lab, "stays")
        waiting.until(lab, "the end of the other pod", lambda: not is_there(lab, "pod/ends"))
        waiting.until(lab, "one file", lambda: files(lab) == {uids["stays"]})
    for address in pods.values():
        assert is_given_back(lab, address)


@contextmanager
def no_driver(lab):
    """No node has an agent for a while; what it has booked is on the disk."""

    def select(value):
        patch = f'{{"spec":{{"template":{{"spec":{{"nodeSelector":{{"{NOWHERE}":{value}}}}}}}}}}}'
        cluster.kubectl(lab, "patch", *AGENTS, "-p", patch)

    words = ("-n", NAMESPACE, "pods", "-l", "name=kube-rdma-agent")
    select('"true"')
    try:
        waiting.until(lab, "the end of all agents", lambda: not cluster.get(lab, *words)["items"])
        yield
    finally:
        select("null")
        cluster.rollout(lab, "kube-rdma-agent", NAMESPACE)


def test_pods_that_end_without_the_driver_leave_nothing_behind(lab):
    """One is asked to end, the other is taken off the API server; the kubelet asks in vain."""
    pods = {"asked": ADDRESS, "forced": OTHER_ADDRESS}
    with applied(lab, *(one for name in pods for one in networked(name, pods[name]))):
        cluster.ready(lab, *pods)
        claims = {name: claim_of(lab, name) for name in pods}
        with no_driver(lab):
            cluster.kubectl(lab, "delete", "pod", "asked", "--wait=false")
            cluster.kubectl(lab, "delete", "pod", "forced", "--grace-period=0", "--force")
            forced, _ = claims["forced"]
            waiting.until(lab, "no claim", lambda: not is_there(lab, f"resourceclaim/{forced}"))
            for name in pods:
                asked = f"grep -q 'unprepare dynamic resources.*default/{name}' {KUBELET_LOG}"
                cluster.until_on_node(lab, NODE, asked)
            assert files(lab) == {uid for _, uid in claims.values()}
        waiting.until(lab, "the end of the pod", lambda: not is_there(lab, "pod/asked"))
        waiting.until(lab, "no file of a claim", lambda: not files(lab))
    for address in pods.values():
        assert is_given_back(lab, address)


def test_a_card_that_vanishes_before_its_claim_is_prepared_is_an_event_until_it_is_back(lab):
    """The kubelet, which asks for it, is away until the card is."""
    card = next(one for devices in slices(lab).values() for one in devices)
    name, address = card["name"], address_of(card)
    wish, pod = of_template("late")
    selector = f'device.attributes["resource.kubernetes.io"].pciBusID == "{address}"'
    (request,) = wish["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["selectors"] = [{"cel": {"expression": selector}}]
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]  # of a node without a kubelet
    replay = Replay(lab, NODE)
    start = partial(cluster.shell, lab, NODE, "sv", "start", "kubelet")
    with ExitStack() as back:
        back.callback(start)
        cluster.shell(lab, NODE, "sv", "-w", "60", "force-stop", "kubelet")
        back.enter_context(applied(lab, wish, pod))
        back.callback(start)  # a pod ends by a kubelet alone
        waiting.until(lab, "the card of the pod", lambda: allocated(lab, "late") == name)
        with ExitStack() as pulled:
            pulled.callback(replay.plug, replay.pull(address))
            start()
            note = cluster.until_event(lab, FAILED, f"device {name} has vanished from node {NODE}")
            assert "claim default/" in note
        cluster.ready(lab, "late")
        assert device_of(lab, "late") == name


def test_a_pod_whose_interface_went_with_its_card_is_told_where_its_owner_looks(lab):
    """A native link is moved and not removed, so what stood on it is removed by hand."""
    replay = Replay(lab, NODE)
    with applied(lab, *networked("loses", ADDRESS)):
        cluster.ready(lab, "loses")
        (address,) = (
            address_of(one)
            for devices in slices(lab).values()
            for one in devices
            if one["name"] == device_of(lab, "loses")
        )
        with ExitStack() as pulled:
            pulled.callback(replay.plug, replay.pull(address))
            uid = cluster.get(lab, "pod/loses")["metadata"]["uid"]
            cluster.shell(lab, NODE, in_network(uid, "ip link del net1"))
            cluster.until_event(lab, "RDMACardUnhealthy", address)
        note = cluster.until_event(lab, "NetworksLost")
        assert note.startswith(f"net1 (default/{NETWORK}) went with the card")
        assert "NetworksLost" in cluster.kubectl(lab, "describe", "pod", "loses")


def allocated(lab, name):
    """The device of a pod's claim; none before the scheduler has chosen."""
    if not cluster.get(lab, f"pod/{name}")["status"].get("resourceClaimStatuses"):
        return None
    try:
        return device_of(lab, name)
    except KeyError:
        return None
