"""The main job: what `make demo` prints is true."""

import re

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc, table
from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.demo.perftest import in_pod, measure
from tests.documents.pages import blocks, pages

CM_TEST = ("ib_read_bw", "-R", "-F", "-q", "1", "-u", "18", "-n", "100")
EXPECTED_DEVICES = ("rdma_cm", "umad0", "umad1", "uverbs0", "uverbs1")


@pytest.mark.core
def test_every_node_offers_a_thousand_shares(proof):
    assert [(node.name, node.allocatable) for node in proof.nodes] == [
        ("node-1", "1k"),
        ("node-2", "1k"),
    ]


@pytest.mark.core
def test_the_pods_run_on_two_nodes_and_see_the_pool_s_devices(proof):
    assert {pod.node for pod in proof.pods} == {"node-1", "node-2"}
    assert [pod.devices for pod in proof.pods] == [EXPECTED_DEVICES, EXPECTED_DEVICES]


@pytest.mark.core
def test_the_seed_s_read_test_moves_bytes_over_the_cards(lab, proof):
    assert proof.read.iterations > 0
    cards = {node.rdma_ip(nic) for node in lab.topology.nodes for nic in node.nics}
    addresses = {".".join(gid.split(":")[-4:]) for gid in proof.read.gids}
    assert len(addresses) == 2
    assert addresses <= cards


@pytest.mark.core
def test_rdma_cm_connects_pods_on_the_host_s_network(lab, proof):
    """As the seed says of programs with `-R`; the address is one of a card, there that of bond0."""
    manifest = ("-n", scc.NAMESPACE, "-f", f"{scc.examples()}/s2-scc/rdma-cm-pods.yaml")
    cluster.kubectl(lab, "apply", *manifest)
    try:
        cluster.rollout(lab, "rdma-cm-test", scc.NAMESPACE)
        server, client = (host_pod(lab, node) for node in lab.topology.nodes)
        outcome = measure(lab, server, client, CM_TEST)
    finally:
        cluster.kubectl(lab, "delete", *manifest, "--cascade=foreground")
    assert outcome.iterations == 100
    assert outcome.addresses == {server.address, client.address}


def host_pod(lab, node):
    """The example's pod on a node as a place to run perftest in, and the node's first card."""
    words = ("-n", scc.NAMESPACE, "-l", "name=rdma-cm-test")
    field = f"--field-selector=spec.nodeName={node.name}"
    (pod,) = cluster.get(lab, "pods", *words, field)["items"]
    return in_pod(lab, pod["metadata"]["name"], node.rdma_ip(node.nics[0]), namespace=scc.NAMESPACE)


@pytest.mark.core
def test_write_bandwidth_is_measured_for_pods_and_hosts_in_one_run(proof):
    assert min(run.iterations for run in proof.pod_to_pod.outcomes) == 1000
    assert min(run.iterations for run in proof.host_to_host.outcomes) == 1000
    assert table.ratio(proof) in table.render(proof)


@pytest.mark.core
def test_readme_shows_what_it_prints(proof):
    """As `make demo` calls it, and but for the figures, which differ from run to run."""
    page = blocks("README.md", pages()["README.md"])
    (shown, *_) = (block.shown for block in page if block.shown)
    assert without_figures(shown) == without_figures(
        table.render(proof, program=".venv/bin/kube-rdma")
    )


def without_figures(text):
    """A dash is the ratio on a machine so slow that its bandwidth is shown as 0.

    README has the kernel of `make demo`; CI has another one here, and that one in emulated/.
    """
    figures = re.sub(r"\d[\d.]*|—", "#", " ".join(text.split()))
    return figures.replace("Linux #-user-mode", "Linux #+deb#-amd#")


@pytest.mark.core
def test_a_container_may_read_and_write_its_devices_but_make_none(lab, proof):
    first = scc.PODS[0]
    node = "/dev/infiniband/uverbs0"
    enter = ("-n", scc.NAMESPACE, "exec", first, "--")
    cluster.kubectl(lab, *enter, "sh", "-c", f"exec 3<>{node}")
    # uverbs0 is the pool's, /dev/kmsg (1:11) is not; a privileged container could open it.
    script = "mknod /tmp/kmsg c 1 11 && head -c 1 /tmp/kmsg"
    with pytest.raises(Exception, match="Operation not permitted"):
        cluster.kubectl(lab, *enter, "sh", "-c", script)


@pytest.mark.slow
def test_the_seed_s_own_privileged_daemonset_does_the_same(lab, proof, capsys):
    try:
        again = demonstrate(lab, lambda event: None, daemonset="daemonset-document.yaml", pairs=1)
        pods = cluster.get(lab, "pods", "-n", "kube-system", "-l", "name=rdma-sriov-dp-ds")["items"]
    finally:
        scc.install(lab, "daemonset-preset.yaml")
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    assert [each["securityContext"] for each in containers] == [{"privileged": True}] * 2
    assert [pod.devices for pod in again.pods] == [EXPECTED_DEVICES, EXPECTED_DEVICES]
    assert again.read.iterations > 0
