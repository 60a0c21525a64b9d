"""The main job: what `make demo` prints is true."""

from kube_rdma_lab.demo import scc, table
from kube_rdma_lab.demo.main import demonstrate

EXPECTED_DEVICES = ("rdma_cm", "umad0", "umad1", "uverbs0", "uverbs1")


def test_every_node_offers_a_thousand_shares(proof):
    assert [(node.name, node.allocatable) for node in proof.nodes] == [
        ("node-1", "1k"),
        ("node-2", "1k"),
    ]


def test_the_pods_run_on_two_nodes_and_see_the_pool_s_devices(proof):
    assert {pod.node for pod in proof.pods} == {"node-1", "node-2"}
    assert [pod.devices for pod in proof.pods] == [EXPECTED_DEVICES, EXPECTED_DEVICES]


def test_the_seed_s_read_test_moves_bytes_over_the_cards(lab, proof):
    assert proof.read.gbps > 0
    cards = {node.rdma_ip(nic) for node in lab.topology.nodes for nic in node.nics}
    addresses = {".".join(gid.split(":")[-4:]) for gid in proof.read.gids}
    assert len(addresses) == 2
    assert addresses <= cards


def test_write_bandwidth_is_measured_for_pods_and_hosts_in_one_run(proof):
    assert proof.pod_to_pod.median > 0
    assert proof.host_to_host.median > 0
    assert f"{proof.ratio:.2f}" in table.render(proof)


def test_the_seed_s_own_privileged_daemonset_does_the_same(lab, proof, capsys):
    try:
        again = demonstrate(lab, lambda event: None, daemonset="daemonset-seed.yaml", pairs=1)
        pods = scc.get(lab, "pods", "-n", "kube-system", "-l", "name=rdma-sriov-dp-ds")["items"]
    finally:
        scc.install(lab, "daemonset-preset.yaml")
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    assert [each["securityContext"] for each in containers] == [{"privileged": True}] * 2
    assert [pod.devices for pod in again.pods] == [EXPECTED_DEVICES, EXPECTED_DEVICES]
    assert again.read.gbps > 0
