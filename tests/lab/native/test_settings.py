"""What containers are told of their cards, as docs/settings.md has it.

Seed S3's agent on constructed cards, with the seed's kind of pool and with one that gives devices
at Allocate. test_older runs this file on a runtime that reads no CDI files. What a container may
lock is seen on machines (test_pod_network): root of a native node may not raise a limit.
"""

import json

import pytest
import yaml

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

RESOURCE = "rdma/hca_shared_devices_a"
NODE, NAMESPACE = "node-1", "mlnx-network-operator"
CARDS = 8
OWN = "/usr/share/kube-rdma"
MELLANOX = {"vendors": ["15b3"]}
CONFIGS = {
    "auto": {
        "configList": [
            {"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 1000, "selectors": MELLANOX}
        ]
    },
    "none": manifests.node_policy(
        "early", {"resource": RESOURCE, "mode": "hca", "attach": "none", "selectors": [MELLANOX]}
    ),
}


@pytest.fixture(scope="module")
def cdi(native):
    """Whether the runtime reads CDI files; containerd 1.7 as it comes does not."""
    info = cluster.get(native, f"node/{NODE}")["status"]["nodeInfo"]
    return not info["containerRuntimeVersion"].startswith("containerd://1.")


@pytest.fixture(scope="module", params=CONFIGS)
def lab(request, native):
    """Native nodes with seed S3's agents, whose pool has this `attach`."""
    example = scc.examples() / "s3-network" / "agent.yaml"
    documents = list(yaml.safe_load_all(example.read_text()))
    (conf,) = (one for one in documents if one["kind"] == "ConfigMap")
    conf["data"] = {"config.json": json.dumps(CONFIGS[request.param])}
    scc.install_kinds(native)
    cluster.label_cards(native)
    cluster.apply(native, *documents)
    try:
        cluster.rollout(native, "rdma-shared-dp-ds", NAMESPACE)
        cluster.wait_for_resource(native, RESOURCE, "1k", node=NODE)
        yield native
    finally:
        cluster.kubectl(native, "delete", "-f", str(example), "--cascade=foreground")


@pytest.fixture(scope="module", params=[False, True], ids=["own network", "host network"])
def pod(request, lab):
    """A pod without networks of kube-rdma, of a user without rights."""
    document = sleeping_pod("told", limits={RESOURCE: 1}, nodeName=NODE, hostNetwork=request.param)
    (container,) = document["spec"]["containers"]
    container["securityContext"] = {"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}
    cluster.apply(lab, document)
    try:
        cluster.ready(lab, "told")
        yield lambda script: cluster.kubectl(lab, "exec", "told", "--", "sh", "-c", script)
    finally:
        cluster.kubectl(lab, "delete", "pod", "told", "--grace-period=1")


def test_a_pod_without_a_network_opens_every_card(pod):
    nodes = pod("ls /dev/infiniband").split()
    assert len([node for node in nodes if node.startswith("uverbs")]) == CARDS
    assert "rdma_cm" in nodes


def test_a_container_is_told_of_its_cards(pod, cdi):
    where = "/etc/nccl.conf" if cdi else f"{OWN}/{RESOURCE}/nccl.conf"
    (line,) = [line for line in pod(f"cat {where}").splitlines() if not line.startswith("#")]
    variable, _, names = line.partition("==")
    assert variable == "NCCL_IB_HCA"
    assert len(names.split(",")) == CARDS
    assert ("absent" in pod("[ -e /etc/nccl.conf ] || echo absent")) is not cdi


def test_the_script_is_found(pod, cdi):
    """On the PATH, or by a line that works in either case."""
    words = f"PATH=$PATH:{OWN}/bin; command -v nccl_env.sh; . nccl_env.sh >/dev/null; echo sourced"
    found, sourced = pod(words).split()
    assert (found, sourced) == (
        "/usr/local/bin/nccl_env.sh" if cdi else f"{OWN}/bin/nccl_env.sh",
        "sourced",
    )


def test_nobody_can_write_there(pod, cdi):
    where = "/usr/local/bin" if cdi else f"{OWN}/bin"
    assert "kept" in pod(f"echo a >> {where}/nccl_env.sh || echo kept")


def test_the_hook_that_lifts_the_limit_is_run_where_files_are_read(lab, pod, cdi):
    found = cluster.shell(lab, NODE, "grep -l memlock /var/run/cdi/kube-rdma* || true").split()
    assert bool(found) is cdi
