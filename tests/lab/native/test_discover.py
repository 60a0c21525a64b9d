"""From reports to pods: what discover proposes for five kinds of machines is installed as it is.

Agents that offer nothing report the cards of constructed machines. Then values and policies of
`kube-rdma discover` are installed, and a pod of each form starts on a node of each group.
"""

import json

import pytest
import yaml

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.product import IMAGE
from tests.documents.shell import Shell
from tests.groups import own
from tests.kit import helm as kit
from tests.kit.pods import sleeping_pod
from tests.lab.conftest import up

pytestmark = pytest.mark.slow  # it boots a lab of its own

NAME, RELEASE, NAMESPACE = "test-discover", "rdma", "kube-rdma"
# Five groups: the first has two nodes. What is offered on a node of each, and how many shares.
MACHINES = ("dgx-like", "dgx-like", "xe9680-like", "cx7-ib-and-storage", "r760xa-like", "cx5-dual")
SHARES = 16  # of a card in mode shared-multi
OFFERED = {
    "node-1": ("rdma/nic", 8 * SHARES),
    "node-2": ("rdma/nic", 8 * SHARES),
    "node-3": ("rdma/nic", 4 * SHARES),
    "node-4": ("rdma/nic", 8 * SHARES),
    "node-5": ("rdma/nic", 3 * SHARES),
    "node-6": ("rdma/vf", 3),
}
GROUPS = 5
# Pods without networks: the recorded GIDs of native nodes never follow an address.
GIVEN = ("--set", f"image.repository={IMAGE}", "--set", "admission.pods.check=false")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A node of each machine; KUBE_RDMA_TEST_DISCOVER=NAME takes a running lab."""
    file = tmp_path_factory.mktemp("topology") / "machines.yaml"
    file.write_text(yaml.safe_dump({"nodes": [{"native": True, "tree": m} for m in MACHINES]}))
    command = f"kube-rdma lab up --topology {file}"
    with up(own(NAME), "native", command, "KUBE_RDMA_TEST_DISCOVER") as running:
        yield running


@pytest.fixture(scope="module")
def helm(lab, tmp_path_factory):
    """A function that calls Helm 4, which has to succeed."""
    with kit.on_lab(lab, tmp_path_factory.mktemp("helm"), "kube-system") as helm_call:

        def call(*arguments):
            code, printed = helm_call(*arguments)
            assert not code, printed

        yield call


@pytest.fixture(scope="module")
def shell(lab):
    with Shell({"KUBECONFIG": str(lab.kubeconfig)}) as made:
        yield made


@pytest.fixture(scope="module")
def installed(lab, helm, shell, tmp_path_factory):
    """The folder with what was proposed, after it is installed, with addresses filled in."""
    folder = tmp_path_factory.mktemp("proposed")
    first = ("--set", "agent.config=", "--set", "crds.networkAttachmentDefinitions=true", *GIVEN)
    helm("install", RELEASE, str(kit.CHART), *first)
    cluster.rollout(lab, "kube-rdma-agent", NAMESPACE)

    def reported():
        listed = cluster.get(lab, "nodereports")["items"]
        return {one["metadata"]["name"] for one in listed if one.get("status", {}).get("cards")}

    waiting.until(lab, "reports of all nodes", lambda: reported() >= {*OFFERED})
    shell.check(f"kube-rdma discover --part values > {folder}/values.yaml")
    shell.check(f"kube-rdma discover --part policies > {folder}/policies.yaml")
    labels = [
        line[1:].strip()
        for line in (folder / "policies.yaml").read_text().splitlines()
        if "kubectl label node" in line
    ]
    for line in labels:
        cluster.kubectl(lab, *line.split()[1:])
    values = (folder / "values.yaml").read_text()
    for rail in range(8):
        before = f"# - {{name: rail-{rail}, spec: {{ranges: [{{subnet: SUBNET}}]}}}}"
        values = values.replace(before, before[2:].replace("SUBNET", f"10.7{rail}.0.0/24"))
    (folder / "values.yaml").write_text(values.replace("# pools:", "pools:"))
    more = ("--set", "crds.networkAttachmentDefinitions=true", *GIVEN)
    helm("upgrade", RELEASE, str(kit.CHART), "--values", f"{folder}/values.yaml", *more)
    cluster.rollout(lab, "kube-rdma-agent", NAMESPACE)
    cluster.kubectl(lab, "apply", "-f", f"{folder}/policies.yaml")
    return folder


def test_the_nodes_are_five_groups(lab, installed):
    policies = cluster.get(lab, "nodepolicies")["items"]
    assert len(policies) == GROUPS
    assert all(one["spec"]["nodeSelector"] for one in policies)


@pytest.mark.parametrize("node", OFFERED)
def test_a_pod_of_each_form_starts(lab, installed, node):
    resource, shares = OFFERED[node]
    cluster.wait_for_resource(lab, resource, shares, node=node)
    name = f"form-{node}"
    on = {"kubernetes.io/hostname": node}
    made = sleeping_pod(name, limits={resource: 1}, nodeSelector=on)
    try:
        cluster.apply(lab, made)
        cluster.ready(lab, name)
        devices = cluster.kubectl(lab, "exec", name, "--", "ls", "/dev/infiniband")
        assert "uverbs" in devices
    finally:
        cluster.kubectl(lab, "delete", "pod", name, "--ignore-not-found")


def test_what_is_installed_is_what_is_proposed(shell, installed):
    words = f"kube-rdma discover --against cluster --against {installed}/values.yaml"
    assert shell.check(words).strip() == "Nothing to change."


def test_a_node_whose_cards_are_not_as_recorded_is_one_line(lab, shell, installed):
    """As after the exchange of a card: the record says otherwise than the node."""
    policies = cluster.get(lab, "nodepolicies")["items"]
    (policy,) = (one for one in policies if one["metadata"]["name"].startswith("3x400g"))
    key = "kube-rdma.io/hardware"
    text = policy["metadata"]["annotations"][key]
    other = text.replace('"0000:37:00.0", "gbps": 400.0', '"0000:37:00.0", "gbps": 200.0')
    patch = {"metadata": {"annotations": {key: other}}}
    name = policy["metadata"]["name"]
    words = ("patch", "nodepolicy", name, "--type=merge", "-p")
    cluster.kubectl(lab, *words, json.dumps(patch))
    try:
        code, printed = shell.run("kube-rdma discover --against cluster")
        assert code == 1
        assert printed.strip().startswith("node-5: 0000:37:00.0 is 400G RoCE")
        assert len(printed.strip().splitlines()) == 1
    finally:
        cluster.kubectl(lab, *words, json.dumps({"metadata": {"annotations": {key: text}}}))
