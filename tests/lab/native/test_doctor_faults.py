"""Faults that are made by intent, one by one: `kube-rdma doctor` has the right cause at the top.

The table FAULTS has all that needs no verbs and no kernel of its own; tests/lab/machines has the
others. A fault waits for what it does to people, then the doctor is asked once; it is undone
afterwards, also on failure, and the doctor has to be silent about it again.
"""

import json
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.native.replay import Replay
from tests.kit import doctor, manifests
from tests.kit.pods import UNTIL_ASKED, sleeping_pod

EXAMPLE = scc.examples() / "s1-vke"
NAMESPACE, LABEL = "kube-rdma-vke", "vke.node.rdma.mode"
RESOURCE, CARDS, NODE = "vke.volcengine.com/rdma", 8, "node-1"
AGENT = "kube-rdma agent --role=plugin --role=node --networks"
OFF = "kube-rdma.io/agent"
NETWORKS, STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
POOL, FOLDER = "faults", "/etc/cni/net.d"
NOBODY = 65534
STATE, ASIDE = "/var/lib/kube-rdma", "/run/kube-rdma.aside"
SUBNETS = (".10-74-", ".10-76-", ".10-77-", ".10-78-")  # as the names of blocks have them


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with seed S1's agents, a network on eth0, and a doctor; node-1 is labelled."""
    scc.install_kinds(native)
    for name in ("daemonset", "controller"):
        cluster.kubectl(native, "apply", "-f", f"{EXAMPLE}/{name}.yaml")
    cluster.apply(native, pool("10.74.0.0/24"), definition(POOL))
    label(native, LABEL, "shared")
    cluster.rollout(native, "rdma-device-plugin", NAMESPACE)
    cluster.wait(
        native, "-n", NAMESPACE, "deployment/kube-rdma-controller", "--for=condition=Available"
    )
    healthy(native)
    cluster.until_chained(native, NODE)
    doctor.call(native, NODE)
    yield native
    doctor.dismiss(native)
    label(native, LABEL)
    cluster.kubectl(native, "delete", "net-attach-def", POOL)
    for name in ("controller", "daemonset"):
        cluster.kubectl(native, "delete", "-f", f"{EXAMPLE}/{name}.yaml", "--cascade=foreground")
    cluster.kubectl(native, "delete", "ippool", POOL, "--ignore-not-found")
    remove_blocks(native)


def label(lab, key, value=""):
    """Label the node; an empty value takes the label away."""
    words = f"{key}={value}" if value else f"{key}-"
    cluster.kubectl(lab, "label", "node", NODE, words, "--overwrite")


def healthy(lab):
    cluster.wait_for_resource(lab, RESOURCE, CARDS, node=NODE)


def pool(subnet, name=POOL):
    return manifests.ip_pool(name, ranges=[{"subnet": subnet}], blockSize=2, restSeconds=0)


def definition(name, **config):
    """A network on the cluster's interface, with addresses of the pool."""
    words = {
        "cniVersion": "1.0.0",
        "type": "macvlan",
        "master": "eth0",
        "ipam": {"type": "kube-rdma-ipam", "pool": POOL},
    }
    return manifests.network(name, words | config, "default")


def static(address):
    return {"type": "static", "addresses": [{"address": f"{address}/24"}]}


def remove_blocks(lab):
    """Those of this file's subnets; an agent keeps its blocks when a pool goes."""
    names = cluster.kubectl(lab, "get", "ipblocks", "-o", "name").split()
    if ours := [name for name in names if any(subnet in name for subnet in SUBNETS)]:
        cluster.kubectl(lab, "delete", *ours)


@contextmanager
def pods(lab, *names, networks="", wait=True, container=None, **more):
    """Pods with a share and maybe networks; Ready, and removed at the end."""
    annotations = {NETWORKS: networks} if networks else {}
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 1} | more.pop("spec", {})
    documents = [
        sleeping_pod(name, limits={RESOURCE: 1}, annotations=annotations | more, **spec)
        for name in names
    ]
    for document in documents:
        document["spec"]["containers"][0].update(container or {})
    try:
        cluster.apply(lab, *documents)
        if wait:
            cluster.ready(lab, *names)
        yield f"pod/default/{names[0]}"
    finally:
        cluster.kubectl(lab, "delete", "pod", *names, "--ignore-not-found")


def on_node(lab, *words):
    return cluster.shell(lab, NODE, *words)


@contextmanager
def undone(lab, script, undo):
    """A script of the node's shell, and the one that takes it back."""
    try:
        on_node(lab, script)
        yield "node"
    finally:
        on_node(lab, undo)


@contextmanager
def stopped_agent(lab):
    """An agent that does nothing more, and whose sockets are still where they were."""
    try:
        on_node(lab, "pkill", "-STOP", "-f", AGENT)
        yield "node"
    finally:
        on_node(lab, "pkill", "-CONT", "-f", AGENT)


@contextmanager
def cable_out(lab):
    replay = Replay(lab, NODE)
    replay.down("mlx5_3")
    try:
        cluster.wait_for_resource(lab, RESOURCE, CARDS - 1, node=NODE)
        yield "node"
    finally:
        replay.up("mlx5_3")
        healthy(lab)


def small_mtu(lab):
    usual = on_node(lab, "cat /proc/sys/net/ipv6/conf/ib2/mtu").strip()
    return undone(lab, "ip link set ib2 mtu 1400", f"ip link set ib2 mtu {usual}")


@contextmanager
def node_of_a_device_gone(lab):
    path, aside = "/dev/infiniband/uverbs3", "/dev/uverbs3.aside"
    with undone(lab, f"mv {path} {aside}", f"mv {aside} {path}") as target:
        yield target
    healthy(lab)


@contextmanager
def card_in_a_bond(lab):
    """The kernel's word for it is a link in sysfs; the tree that stands for it is changed."""
    tree = lab.home / "nodes" / NODE / "sys"
    bond = tree / "devices/virtual/net/bond0"
    (bond / "bonding").mkdir(parents=True)
    master = tree / "class/net/ib4/master"
    shown = tree / "class/net/bond0"
    shown.symlink_to("../../devices/virtual/net/bond0")
    master.symlink_to(bond)
    try:
        yield "node"
    finally:
        master.unlink()
        shown.unlink()
        (bond / "bonding").rmdir()
        bond.rmdir()


@contextmanager
def agent_gone(lab):
    """Somebody took the node out by its label: its agent ends and nobody serves the resource."""
    label(lab, OFF, "off")
    try:
        cluster.wait_for_resource(lab, RESOURCE, 0, node=NODE)
        yield "node"
    finally:
        label(lab, OFF)
        cluster.rollout(lab, "rdma-device-plugin", NAMESPACE)
        healthy(lab)


@contextmanager
def registration_lost(lab):
    """The kubelet starts again while the agent hangs: nobody tells it of the resource."""
    with stopped_agent(lab) as target:
        on_node(lab, "kill -9 $(pidof kubelet)")
        cluster.wait_for_resource(lab, RESOURCE, 0, node=NODE)
        cluster.until_on_node(lab, NODE, "[ -S /var/lib/kubelet/device-plugins/kubelet.sock ]")
        waiting.until(lab, "a kubelet that knows its pods", lambda: doctor.codes(lab))
        yield target
    healthy(lab)


@contextmanager
def conflist_rewritten(lab):
    """The cluster's plugin writes its list again, as after its upgrade, and the agent hangs."""
    aside = "/run/list.aside"
    script = (
        f"f=$(grep -l kube-rdma {FOLDER}/*.conflist | head -n1); cp $f {aside}; "
        "echo $f > /run/list.name; "
        f"""grep -v kube-rdma $f > /dev/null; printf '%s' '{json.dumps(CLUSTERS)}' > $f"""
    )
    with stopped_agent(lab), undone(lab, script, f"cat {aside} > $(cat /run/list.name)") as target:
        yield target


CLUSTERS = {
    "cniVersion": "1.0.0",
    "name": "lab",
    "plugins": [{"type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local"}}],
}


@contextmanager
def set_aside_by_cilium(lab):
    """Cilium's agent takes the lists of others away and leaves its own."""
    own = {"cniVersion": "0.3.1", "name": "cilium", "plugins": [{"type": "cilium-cni"}]}
    back = f"{FOLDER}/05-cilium.conflist"
    script = (
        f"cd {FOLDER}; for f in *.conflist; do mv $f $f.cilium_bak; done; "
        f"printf '%s' '{json.dumps(own)}' > {back}"
    )
    undo = f"rm -f {back}; cd {FOLDER}; for f in *.cilium_bak; do mv $f ${{f%.cilium_bak}}; done"
    with stopped_agent(lab), undone(lab, script, undo) as target:
        yield target


@contextmanager
def full_disk(lab):
    """Something fills the disk of the agent's state; a pod that has a network ends all the same.

    The disk is a small one: agent and doctor begin anew to see it, and to see the node's own again.
    """
    size = "mount -t tmpfs -o size=2m none"
    script = f"cp -a {STATE} {ASIDE}; {size} {STATE}; cp -a {ASIDE}/. {STATE}/; rm -r {ASIDE}"
    undo = (
        f"rm -f {STATE}/filler; cp -a {STATE} {ASIDE}; umount -l {STATE}; "
        f"rm -rf {STATE}/*; cp -a {ASIDE}/. {STATE}/; rm -r {ASIDE}"
    )
    try:
        with undone(lab, script, undo) as target:
            begun_anew(lab)
            with pods(lab, "ends", networks=POOL):
                on_node(lab, f"dd if=/dev/zero of={STATE}/filler bs=4k 2>/dev/null || true")
                cluster.kubectl(lab, "delete", "pod", "ends")
            yield target
    finally:
        begun_anew(lab)


def begun_anew(lab):
    """Another agent and another doctor on the node, for one has the folders of its start."""
    cluster.kubectl(lab, "delete", "pod", "-n", NAMESPACE, "-l", "name=rdma-device-plugin")
    cluster.rollout(lab, "rdma-device-plugin", NAMESPACE)
    healthy(lab)
    cluster.kubectl(lab, "delete", "pod", "-n", doctor.NAMESPACE, doctor.NAME, "--grace-period=1")
    doctor.call(lab, NODE)


def blocks_without_shares(lab):
    blocks = json.dumps([{"cniConf": {"name": "rdma"}}] * 2)
    more = {"k8s.volcengine.com/pod-networks": blocks}
    return pods(lab, "contradicts", wait=False, **more)


def without_ipc_lock(lab):
    """An image that lowers its limit, as one of a runtime of an older kind has it."""
    command = ["sh", "-c", f"ulimit -l 64; {UNTIL_ASKED[-1]}"]
    return pods(lab, "unlocked", container={"command": command})


def lock_for_a_user(lab):
    command = ["sh", "-c", f"ulimit -l 64; {UNTIL_ASKED[-1]}"]
    rights = {"runAsUser": NOBODY, "capabilities": {"add": ["IPC_LOCK"]}}
    return pods(lab, "inert", container={"command": command, "securityContext": rights})


@contextmanager
def address_twice(lab):
    """A network whose addresses are written by hand, and two pods that are copies."""
    cluster.apply(lab, definition("twice", ipam=static("10.75.0.9")))
    try:
        with pods(lab, "first-of-two", networks="twice", wait=False):
            cluster.ready(lab, "first-of-two")
            with pods(lab, "second-of-two", networks="twice") as target:
                yield target
    finally:
        cluster.kubectl(lab, "delete", "net-attach-def", "twice")


@contextmanager
def other_subnet(lab):
    """The pool is made anew with other addresses below a pod that runs."""
    with pods(lab, "of-old", networks=POOL) as target:
        cluster.kubectl(lab, "delete", "ippool", POOL)
        cluster.apply(lab, pool("10.76.0.0/24"))
        try:
            yield target
        finally:
            cluster.kubectl(lab, "delete", "ippool", POOL)
            remove_blocks(lab)
            cluster.apply(lab, pool("10.74.0.0/24"))


@contextmanager
def no_address_left(lab):
    """A pool of two addresses and a third pod."""
    cluster.apply(lab, pool("10.77.0.0/30", "narrow"), definition("narrow", ipam=NARROW))
    try:
        with (
            pods(lab, "has-1", "has-2", networks="narrow"),
            pods(lab, "has-none", networks="narrow", wait=False) as target,
        ):
            cluster.until_event(lab, "FailedCreatePodSandBox", "IPPool narrow")
            yield target
    finally:
        cluster.kubectl(lab, "delete", "net-attach-def", "narrow")
        cluster.kubectl(lab, "delete", "ippool", "narrow")


@contextmanager
def network_of_nobody(lab):
    """An annotation with a name that nobody has defined."""
    with pods(lab, "asks-nobody", networks="nowhere", wait=False) as target:
        cluster.until_event(lab, "FailedCreatePodSandBox", "nowhere")
        yield target


def rails_in_a_subnet(lab):
    add, remove = (
        f"ip addr {verb} 10.70.0.1/24 dev ib0; ip addr {verb} 10.70.0.2/24 dev ib1"
        for verb in ("add", "del")
    )
    return undone(lab, add, remove)


def strict_filter(lab):
    """A distribution's default, on rails of their own subnets."""
    path = "/proc/sys/net/ipv4/conf/ib0/rp_filter"
    add, remove = (
        f"ip addr {verb} 10.68.0.1/24 dev ib0; ip addr {verb} 10.69.0.1/24 dev ib1"
        for verb in ("add", "del")
    )
    usual = on_node(lab, f"cat {path}").strip()
    return undone(lab, f"{add}; echo 1 > {path}", f"{remove}; echo {usual} > {path}")


@contextmanager
def addresses_of_a_dead_node(lab):
    """A node that died with its agent still holds what a pod of another node needs."""
    cluster.apply(lab, pool("10.78.0.0/30", "held"), definition("held", ipam=HELD))
    holders = ("dead-1", "dead-2")
    try:
        with pods(lab, *holders, networks="held", spec={"nodeName": "node-2"}):
            cluster.kubectl(lab, "label", "node", "node-2", f"{OFF}=off", "--overwrite")
            gone = ("delete", "pod", *holders, "--force", "--grace-period=0")
            cluster.kubectl(lab, *gone)
            with pods(lab, "needs", networks="held", wait=False) as target:
                cluster.until_event(lab, "FailedCreatePodSandBox", "IPPool held")
                yield target
    finally:
        cluster.kubectl(lab, "label", "node", "node-2", f"{OFF}-")
        cluster.rollout(lab, "rdma-device-plugin", NAMESPACE)
        cluster.kubectl(lab, "delete", "net-attach-def", "held")
        cluster.kubectl(lab, "delete", "ippool", "held")


HELD = {"type": "kube-rdma-ipam", "pool": "held"}
NARROW = {"type": "kube-rdma-ipam", "pool": "narrow"}


class Fault(NamedTuple):
    """What is made, the code that has to stand first, and a word that is in what it is about."""

    make: object
    code: str
    about: str = ""


FAULTS = {
    "cable out": Fault(cable_out, "KR121", "mlx5_3"),
    "wrong MTU": Fault(small_mtu, "KR301", "ib2"),
    "missing char device": Fault(node_of_a_device_gone, "KR105", "uverbs3"),
    "card in a bond": Fault(card_in_a_bond, "KR115", "mlx5_4"),
    "plugin dead": Fault(agent_gone, "KR202", RESOURCE),
    "registration lost": Fault(registration_lost, "KR202", RESOURCE),
    "conflist rewritten": Fault(conflist_rewritten, "KR312", "CNI"),
    "Cilium owns CNI": Fault(set_aside_by_cilium, "KR311", "CNI"),
    "annotation against request": Fault(blocks_without_shares, "KR401", "annotations"),
    "missing IPC_LOCK": Fault(without_ipc_lock, "KR430", "main"),
    "memlock for a user": Fault(lock_for_a_user, "KR431", "main"),
    "duplicated IP": Fault(address_twice, "KR320", "10.75.0.9"),
    "wrong subnet": Fault(other_subnet, "KR321", "of-old"),
    "pool exhausted": Fault(no_address_left, "KR322", "narrow"),
}
# Drawn from what users complain of, when the doctor was written: not planned with it.
FAULTS |= {
    "network without a definition": Fault(network_of_nobody, "KR490", "CNI"),
    "rails in a subnet": Fault(rails_in_a_subnet, "KR302", "10.70.0.0/24"),
    "strict reverse path": Fault(strict_filter, "KR303", "ib0"),
    "full disk": Fault(full_disk, "KR207", STATE),
    "addresses of a dead node": Fault(addresses_of_a_dead_node, "KR322", "held"),
}
# These stay in every run; the others are slow.
QUICK = ("wrong MTU", "missing char device", "annotation against request")


def well(lab):
    """Whether the doctor has no more than advice, as before any fault."""
    return all(finding["severity"] == "advice" for finding in doctor.findings(lab))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FAULTS]
)
def test_the_right_cause_stands_first(lab, name):
    make, code, about = FAULTS[name]
    waiting.until(lab, "a node without an error", lambda: well(lab))
    with make(lab) as target:
        every = doctor.findings(lab, target)
    first = every[0]
    print([(each["code"], each["about"], each["evidence"], each["follows"]) for each in every])
    assert (first["code"], first["follows"]) == (code, None)
    assert about in first["about"]
    waiting.until(lab, "a doctor without that", lambda: code not in doctor.codes(lab))
