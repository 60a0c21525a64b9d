"""Nodes without machines: a real cluster on this machine's kernel, with constructed cards."""

import platform
from contextlib import contextmanager
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.native import host
from kube_rdma_lab.native.replay import Replay

pytestmark = pytest.mark.core

NODE, OTHER = "node-1", "node-2"
CARDS = [f"mlx5_{number}" for number in range(8)]
POD = "rdma-test-pod"
MANAGER = "/dev/infiniband/rdma_cm"


def nodes_of(number):
    """The device nodes of a constructed card."""
    return {f"/dev/infiniband/uverbs{number}", f"/dev/infiniband/umad{number}"}


@contextmanager
def seed_pod(lab):
    """Seed S2's pod, unchanged, while it is needed; yields the device nodes that it sees.

    The seed leaves placement to the scheduler, so the other node is closed meanwhile.
    """
    cluster.kubectl(lab, "cordon", OTHER)
    cluster.kubectl(lab, "apply", "-f", f"{scc.examples()}/s2-scc/{POD}.yaml")
    try:
        cluster.ready(lab, POD)
        listed = cluster.kubectl(lab, "exec", POD, "--", "ls", "/dev/infiniband").split()
        yield {f"/dev/infiniband/{name}" for name in listed}
    finally:
        cluster.kubectl(lab, "delete", "pod", POD, "--grace-period=0", "--force")
        cluster.kubectl(lab, "uncordon", OTHER)


def test_nodes_are_real_and_have_this_machine_s_kernel(native):
    for node in cluster.get(native, "nodes")["items"]:
        info = node["status"]["nodeInfo"]
        assert info["kernelVersion"].split()[0] == platform.release()
        assert info["containerRuntimeVersion"].startswith("containerd://")


def test_a_node_sees_its_recorded_cards_and_none_of_this_machine_s_hardware(native):
    assert cluster.shell(native, NODE, "ls", "/sys/class/infiniband").split() == CARDS
    functions = set(cluster.shell(native, NODE, "ls", "/sys/bus/pci/devices").split())
    assert not functions & {path.name for path in Path("/sys/bus/pci/devices").glob("*")}


def test_a_node_writes_the_switches_of_its_network_and_no_others_of_the_kernel(native):
    cluster.shell(native, NODE, "sysctl", "-w", "net.ipv4.conf.eth0.arp_ignore=1")
    with pytest.raises(Unavailable, match="permission denied on key"):
        cluster.shell(native, NODE, "sysctl -w vm.swappiness=$(sysctl -n vm.swappiness)")


def test_the_kubelet_s_switches_are_the_node_s_own(native):
    """It wants the machine to panic on an oops: on a node that is a file."""
    own = cluster.shell(native, NODE, "grep -c ' /proc/sys/.* tmpfs ' /proc/mounts")
    assert int(own) == 6
    assert cluster.shell(native, NODE, "cat /proc/sys/kernel/panic_on_oops").strip() == "1"


def test_seed_s2_runs_unchanged_on_constructed_cards(recorded):
    cluster.wait_for_resource(recorded, scc.RESOURCE, "1k")
    with seed_pod(recorded) as devices:
        assert devices == {MANAGER}.union(*map(nodes_of, range(8)))


def test_a_card_that_is_pulled_is_given_to_no_pod_until_it_is_plugged_in_again(recorded):
    replay = Replay(recorded, NODE)
    address = replay.pull("mlx5_5")
    try:
        until_logged(recorded, "card vanished", "card=mlx5_5")
        with seed_pod(recorded) as devices:
            assert not devices & nodes_of(5)
            assert devices >= nodes_of(4)
    finally:
        replay.plug(address)
    until_logged(recorded, "card appeared", "card=mlx5_5")
    with seed_pod(recorded) as devices:
        assert devices >= nodes_of(5)


def until_logged(lab, event, text):
    """Wait until the agent on the node has said something."""
    log = "/var/log/pods/kube-system_rdma-device-plugin-*/*/*.log"
    cluster.until_on_node(lab, NODE, f"grep -hs '{event}' {log} | grep -q '{text}'")


def test_a_feature_that_this_kernel_lacks_is_named():
    """Tried as all others are; a machine without it is refused before anything is built."""
    with pytest.raises(
        Refused, match=r"this machine's kernel has no time travel \(CONFIG_TARDIS\)"
    ):
        host.check(1, trees=False, features={"time travel (CONFIG_TARDIS)": "false"})


def test_more_nodes_than_this_machine_s_inotify_limit_allows_are_refused():
    """Each would cost a crash at each start of a kubelet, with no other sign."""
    limit = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    with pytest.raises(Refused, match=r"inotify instances\. Raise it \(sysctl -w"):
        host.check(limit, trees=False)
