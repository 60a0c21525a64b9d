"""Seed S1 on VKE's own network: the walk of examples/s1-vke behind a stand-in of cello-meta.

The stand-in keeps to what Cello publishes of its meta plugin (../machines/meta_plugin/cello.go);
the README's steps, kubelet, containerd, libcni and agent are real. What VKE's component left on the
node goes as docs/migrate.md says. In mode `exclusive`: a constructed card moves into a pod, and can
carry no other interface.
"""

import json
import re

import pytest
import yaml

from kube_rdma.attach.rules.conflist import CELLO_RDMA, RDMA_CONF, SAVED
from kube_rdma_lab import cluster
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.documents.on_lab import followed
from tests.documents.pages import blocks, pages
from tests.documents.rules import Runs
from tests.documents.shell import Shell
from tests.kit.node_files import put_program, put_text
from tests.kit.parts import MACHINES

NODE, FOLDER, BINARIES = "node-1", "/etc/cni/net.d", "/opt/cni/bin"
README, PAGE = "examples/s1-vke/README.md", "docs/migrate.md"
IMAGE = "localhost/kube-rdma:dev"
POD, CARDS = "rdma-1", 8
META, LEFT = "01-cello-meta.conflist", "20-rdma.conflist"
CELLO = {
    "type": "cello-meta",
    "capabilities": {"io.kubernetes.cri.pod-annotations": True},
    "defaultCni": "lab",  # the lab's own list, in the place of cello-chainer
}
FILES = {META: ("cello-meta", CELLO), LEFT: ("rdma", {"type": CELLO_RDMA})}


def node(lab, script):
    return cluster.shell(lab, NODE, script)


def cards(lab):
    """The interfaces of cards that the node has itself."""
    return re.findall(r"(?m)^ib\d+", node(lab, "ip -br link"))


@pytest.fixture(scope="module")
def vke(native):
    """A node with Cello's meta plugin and what VKE's component leaves, and kube-rdma on it."""
    with open_store() as store:
        built = go.build_module(store, "meta_plugin", MACHINES) / "meta_plugin"
        put_program(native, NODE, f"{BINARIES}/cello-meta", built)
    for file, (name, plugin) in FILES.items():
        conf = {"cniVersion": "0.3.1", "name": name, "plugins": [plugin]}
        put_text(native, NODE, f"{FOLDER}/{file}", json.dumps(conf))
    try:
        with followed(native, README, Runs.NATIVE):
            label = "vke.node.rdma.mode=exclusive"
            cluster.kubectl(native, "label", "node", NODE, "--overwrite", label)
            mode = r"--for=jsonpath={.metadata.labels.kube-rdma\.io/mode}=exclusive"
            cluster.wait(native, f"node/{NODE}", mode)
            yield native
            cluster.kubectl(native, "delete", "pod", POD, "--grace-period=1", "--ignore-not-found")
        kept = {META, "10-lab.conflist", f"{LEFT}{SAVED}"}  # all of others, nothing of kube-rdma
        assert set(node(native, f"ls {FOLDER}").split()) == kept
    finally:
        node(native, f"rm -f {FOLDER}/{META} {FOLDER}/{LEFT}* {BINARIES}/cello-meta")


def start(lab):
    """The document's pod with one card, on the node."""
    pod = yaml.safe_load((scc.examples() / f"s1-vke/{POD.replace('rdma', 'pod')}.yaml").read_text())
    pod["spec"]["nodeName"] = NODE
    cluster.apply(lab, pod)


def clear(vke):
    """By the page's command, once the Event has said that Cello calls a plugin that is gone."""
    start(vke)
    cluster.until_event(vke, "FailedCreatePodSandBox", CELLO_RDMA)
    cluster.until_event(vke, "NetworkConfiguration", f"fail until {LEFT} is removed")
    (block,) = [one for one in blocks(PAGE, pages()[PAGE]) if "network clear-vke" in one.text]
    variables = {"KUBECONFIG": str(vke.kubeconfig), "NODE": NODE}
    with Shell(variables, vke.state.binaries) as shell:
        for command in block.commands:
            shell.check(re.sub(r"(?<=--image=)\S+", IMAGE, command.text))
    cluster.until_on_node(vke, NODE, f"[ -e {FOLDER}/{LEFT}{SAVED} ]")
    cluster.until_on_node(vke, NODE, f"[ -e {FOLDER}/{RDMA_CONF} ]")


def test_cello_calls_kube_rdma_for_the_pod_of_the_document(vke):
    """After what the component left is gone: a card moves in as eth1, and is back afterwards."""
    clear(vke)
    cluster.ready(vke, POD)
    assert "eth1" in cluster.kubectl(vke, "exec", POD, "--", "ip", "-br", "link")
    assert len(cards(vke)) == CARDS - 1
    cluster.kubectl(vke, "delete", "pod", POD, "--grace-period=1")
    until(vke, "the card", lambda: len(cards(vke)) == CARDS)
