"""MPI over UCX between two pods, whose programs find card and GID without being told any variable.

Open MPI starts its far half by ssh, whose children have none of the container's variables; so what
they know stands in files. Ping-pong is NetPIPE's, of Debian, whose own file turns UCX off until
somebody says `pml ucx`; the card's counters say which way its bytes went.
"""

import json
import re

import pytest

from kube_rdma.model.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from tests.documents.on_lab import followed

NEAR, FAR = "rdma-test-pod-2", "rdma-test-pod-1"
OWN = "kube-rdma.io/network-status"
LARGEST, ROUNDS = 4096, 5
KEY, HOST_KEY, PORT = "~/.ssh/id_dropbear", "~/.ssh/host", "2222"
SSH = f"dbclient -y -p {PORT}"  # with that key


@pytest.fixture(scope="module")
def pods(lab):
    """The two pods of seed S3, on two nodes; the first lets the second in."""
    with followed(lab, "examples/s3-network/README.md", behind=2):
        for pod in (NEAR, FAR):
            script = f"mkdir -p ~/.ssh && dropbearkey -t ed25519 -f {KEY} && cp {KEY} {HOST_KEY}"
            inside(lab, pod, script)
        public = inside(lab, NEAR, f"dropbearkey -y -f {KEY} | grep ^ssh").strip()
        allow = f"echo '{public}' > ~/.ssh/authorized_keys && chmod 600 ~/.ssh/*"
        inside(lab, FAR, f"{allow} && dropbear -r {HOST_KEY} -p {PORT} -P /dev/shm/dropbear.pid")
        yield lab


def inside(lab, pod, script):
    """What a shell in the pod prints; the time of a slow machine is its own."""
    return waiting.run(lab, lab.kubectl("exec", pod, "--", "sh", "-c", script))


def address(lab, pod):
    return cluster.get(lab, f"pod/{pod}")["status"]["podIP"]


def device(lab, pod):
    """The node and the pod's own RDMA device, as its annotation has it."""
    found = cluster.get(lab, f"pod/{pod}")
    (own,) = json.loads(found["metadata"]["annotations"][OWN])
    return found["spec"]["nodeName"], own["rdmaDevice"]


def sent(lab, pod):
    """Bytes that the pod's device has sent."""
    node, name = device(lab, pod)
    shown = cluster.shell(lab, node, f"rdma statistic show link {name}/1")
    return int(re.search(r"sent_bytes (\d+)", shown)[1])


def ping_pong(lab, *words):
    """NetPIPE between the pods: what it prints, the largest message last."""
    hosts = "/dev/shm/hosts"
    lines = f"{address(lab, NEAR)}\\n{address(lab, FAR)}\\n"
    options = f"--mca plm_rsh_agent '{SSH}' --mca pml ucx {' '.join(words)}"
    run = (
        f"cd /dev/shm && mpirun.openmpi --allow-run-as-root -np 2 --hostfile {hosts} --map-by node"
        f" {options} NPopenmpi -u {LARGEST} -n {ROUNDS}"
    )
    return inside(lab, NEAR, f"printf '{lines}' > {hosts} && {run} 2>&1")


def test_mpi_takes_the_pod_s_own_card_by_itself(pods):
    """Its bytes are the card's: of each size both halves send so many."""
    before = [sent(pods, pod) for pod in (NEAR, FAR)]
    shown = ping_pong(pods)
    sizes = [int(size) for size in re.findall(r"^\s*\d+:\s+(\d+) bytes", shown, re.MULTILINE)]
    assert max(sizes) >= LARGEST
    after = [sent(pods, pod) for pod in (NEAR, FAR)]
    for first, last in zip(before, after, strict=True):
        assert last - first > ROUNDS * sum(sizes)


def test_a_card_that_is_not_the_pod_s_is_of_no_use(pods):
    """A variable of the user's wins over the file; the node's own card moves nothing for a pod."""
    with pytest.raises(Unavailable):
        ping_pong(pods, "-x UCX_NET_DEVICES=rxe0:1 -x UCX_TLS=rc")


def test_ucx_shows_no_other_card(pods):
    """Of all devices in the pod's sysfs."""
    shown = inside(pods, NEAR, "ucx_info -d")
    found = set(re.findall(r"Device: (rxe\S*):1", shown))
    assert found == {device(pods, NEAR)[1]}
    assert len(inside(pods, NEAR, "ls /sys/class/infiniband").split()) > 1
