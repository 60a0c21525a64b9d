"""Seed S3's transcript, line by line, on machines that have no RDMA until its operator brings it.

The drivers are real containers of the lab that load real modules (kube_rdma_lab/build/drivers.py).
What differs from the document stands in examples/s3-network/README.md.
"""

import re

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from tests.groups import own
from tests.lab.conftest import up
from tests.lab.machines import test_pod_network as pair

NAME = "test-drivers"
SPACE = ("-n", "mlnx-network-operator")
POLICY = "nicclusterpolicy/example-nicclusterpolicy"
FEATURE = "feature.node.kubernetes.io"
LABELS = (f"{FEATURE}/pci-15b3.present=true", f"{FEATURE}/pci-10de.present=true")
PODS = pair.PODS
# The seed's own words, which try each size; fewer writes of each, for cards that are emulated.
SIZES_TEST = ("sh", "-c", pair.SCRIPT, "perftest", "-a", "-n", "5", "-u", "18")
LOADED = "cut -d' ' -f1 /proc/modules"
MODULES = {"mlx5_core", "ib_uverbs", "rdma_rxe"}  # beside what these need


@pytest.fixture(scope="module")
def drivers(machine):
    """The lab for drivers, with labels of the system and the document's operator."""
    command = "kube-rdma lab up --topology drivers"
    with up(own(NAME), "drivers", command, "KUBE_RDMA_TEST_DRIVERS") as lab:
        scc.install_kinds(lab)
        cluster.kubectl(lab, "apply", "-f", example("../config/operator"))
        cluster.kubectl(lab, "apply", "-f", example("s3-network/labels.yaml"))
        cluster.kubectl(lab, "apply", "-f", example("s3-network/operator.yaml"))
        yield lab


def example(name):
    return str(scc.examples() / name)


def nodes(lab):
    return [node.name for node in lab.topology.nodes]


def say(lab, *words):
    """One of the document's commands of kubectl, with what it printed."""
    return cluster.kubectl(lab, *words)


def pods_of(lab, component):
    """The pods of a part of the policy, by node."""
    listed = cluster.get(lab, *SPACE, "pods", "-l", f"kube-rdma.io/component={component}")["items"]
    return {pod["spec"]["nodeName"]: pod for pod in listed}


def ready_at(pod):
    (condition,) = (c for c in pod["status"]["conditions"] if c["type"] == "Ready")
    return condition["lastTransitionTime"]


@pytest.mark.slow  # boots machines of its own
def test_from_labels_to_verbs_as_the_document_has_it(drivers):
    """Its commands in its order, up to the deletion of its pods, for which an upgrade waits."""
    lab = drivers
    for node in nodes(lab):
        assert not MODULES & set(cluster.shell(lab, node, LOADED).split())
        assert f"node/{node} labeled" in say(lab, "label", "nodes", node, *LABELS, "--overwrite")
    cluster.wait(lab, *SPACE, "deployment/kube-rdma-operator", "--for=condition=Available")
    created = say(lab, "create", "-f", example("s3-network/rdma-net-ipam.yaml"))
    assert "networkattachmentdefinition.k8s.cni.cncf.io/rdma-net-ipam created" in created
    created = say(lab, "create", "-f", example("s3-network/nic-cluster-policy-lab.yaml"))
    assert created == "nicclusterpolicy.mellanox.com/example-nicclusterpolicy created\n"
    cluster.wait(lab, *SPACE, POLICY, "--for=jsonpath={.status.state}=ready")
    look_at_what_runs(lab)
    for pod in ("rdma-test-pod1.yml", "rdma-test-pod2.yml"):
        created = say(lab, "create", "-f", example(f"s3-network/{pod}"))
        assert re.fullmatch(r"pod/rdma-test-pod-[12] created\n", created)
    cluster.ready(lab, *PODS)
    talk(lab)
    upgrade(lab)


def look_at_what_runs(lab):
    """`kubectl get pods`, `lsmod`, `ibdev2netdev`; and that the driver came before the others."""
    names = say(lab, *SPACE, "get", "pods", "-o", "name")
    kernel = r"kver[0-9.]+-[a-z0-9-]+"
    for pattern in (
        rf"pod/ofed-driver-amd64-debian12-{kernel}-ds-",
        "pod/nv-peer-mem-driver-amd64-debian12-ds-",
        "pod/rdma-shared-dp-ds-",
    ):
        assert len(re.findall(pattern, names)) == len(nodes(lab))
    drivers = pods_of(lab, "state-OFED")
    for part in ("state-RDMA-device-plugin", "state-NV-Peer"):
        for node, pod in pods_of(lab, part).items():
            assert pod["metadata"]["creationTimestamp"] >= ready_at(drivers[node])
    for node, pod in drivers.items():
        shown = cluster.shell(lab, node, "lsmod | grep nv_peer_mem")
        assert re.search(r"^nv_peer_mem +\d+ +0 *$", shown, re.MULTILINE)
        assert re.search(r"^ib_core .*\bnv_peer_mem\b", shown, re.MULTILINE)
        devices = say(lab, *SPACE, "exec", pod["metadata"]["name"], "--", "ibdev2netdev")
        assert "mlx5_0 port 1 ==> ens2f0 (Up)" in devices.splitlines()
    cluster.wait_for_resource(lab, "rdma/hca_shared_devices_a", "1k")


def upgrade(lab):
    """Another driver in the policy waits for the two pods, and comes node by node behind them."""
    before = {node: pod["metadata"]["uid"] for node, pod in pods_of(lab, "state-OFED").items()}
    patch = '{"spec": {"ofedDriver": {"version": "2", "upgradePolicy": {"autoUpgrade": true}}}}'
    say(lab, *SPACE, "patch", POLICY, "--type=merge", "-p", patch)
    waiting.until(lab, "the pods' names", lambda: "default/rdma-test-pod-" in upgrade_message(lab))
    now = {node: pod["metadata"]["uid"] for node, pod in pods_of(lab, "state-OFED").items()}
    assert now == before
    for pod in PODS:
        assert f'pod "{pod}" deleted' in say(lab, "delete", "pod", pod, "--grace-period=1")
    cluster.wait(lab, *SPACE, POLICY, "--for=condition=DriversCurrent")
    pods = pods_of(lab, "state-OFED")
    assert not {pod["metadata"]["uid"] for pod in pods.values()} & set(before.values())
    assert {pod["spec"]["containers"][0]["image"].split(":")[0] for pod in pods.values()} == {
        "localhost/lab/ofed-driver-2"
    }
    first, second = sorted(pods.values(), key=lambda pod: pod["metadata"]["creationTimestamp"])
    assert ready_at(first) <= second["metadata"]["creationTimestamp"]
    cluster.wait(lab, *SPACE, POLICY, "--for=jsonpath={.status.state}=ready")


def upgrade_message(lab):
    conditions = cluster.get(lab, *SPACE, POLICY)["status"]["conditions"]
    return next(c["message"] for c in conditions if c["type"] == "DriversCurrent")


def talk(lab):
    """`ip addr show dev net1`, `ping`, and `ib_write_bw` of all sizes between the two pods."""
    first, second = PODS
    shown = say(lab, "exec", first, "--", "ip", "addr", "show", "dev", "net1")
    assert "mtu 9000" in shown
    assert re.search(r"inet 192\.168\.111\.\d+/24", shown)
    pinged = say(lab, "exec", second, "--", "ping", "-c", "3", pair.address(lab, first))
    assert "3 packets transmitted, 3 received" in pinged
    pair.writes(lab, SIZES_TEST)


@pytest.mark.slow
def test_what_the_policy_brought_goes_with_it(drivers):
    """Drivers unload when their containers stop: no module, no link and no shared header stays."""
    say(drivers, *SPACE, "delete", POLICY)
    say(drivers, "delete", "-f", example("s3-network/rdma-net-ipam.yaml"))
    gone = [*MODULES, "nv_peer_mem"]
    for node in nodes(drivers):
        waiting.until(
            drivers,
            f"no module of the drivers on {node}",
            lambda node=node: not set(gone) & set(cluster.shell(drivers, node, LOADED).split()),
        )
        assert "mellanox" not in cluster.shell(drivers, node, "cat", "/proc/mounts")
