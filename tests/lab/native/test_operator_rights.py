"""Who else may what: an operator of nodes, people and a namespace's checks; and no second operator.

At a real API server, with the rights and policies that an installation brings.
"""

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.fabric.rules.leaves import BLOCK, DIALECTS, LEAF
from kube_rdma.install.installation import assignment, objects
from kube_rdma.model.operator import AppliedState
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY
from kube_rdma.operator.documents.nic_cluster_policy import PolicyVerdict, policy_status
from kube_rdma.operator.rules.placement import PLACE_LABELS, READY_LABEL
from kube_rdma_lab import cluster
from kube_rdma_lab.build.product import IMAGE
from kube_rdma_lab.demo import scc
from kube_rdma_lab.waiting import until
from tests.kit import helm as kit

SPACE, NODE = "mlnx-network-operator", "node-1"
OPERATOR = f"system:serviceaccount:{SPACE}:kube-rdma-operator"
CONTROLLER = "system:serviceaccount:kube-rdma-vke:kube-rdma-controller"
MARK = "kube-rdma.io/closed-for-upgrade"
# As docs/verify.md has it.
CHECKS = r"""
kubectl create namespace train
kubectl -n train create rolebinding kube-rdma-checks --clusterrole=kube-rdma-bandwidth-check \
    --serviceaccount=kube-rdma-vke:kube-rdma-controller
kubectl auth can-i create pods/exec -n train \
    --as=system:serviceaccount:kube-rdma-vke:kube-rdma-controller
"""
VENDOR = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "network-operator", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "vendor"}},
        "template": {
            "metadata": {"labels": {"app": "vendor"}},
            "spec": {
                "nodeSelector": {"nowhere": "yes"},
                "containers": [{"name": "c", "image": "example.org/cloud/network-operator:v26.1"}],
            },
        },
    },
}
DEFINITION = "nicclusterpolicies.mellanox.com"
RELEASES = Path(__file__).parents[2] / "data" / "nic-cluster-policies"


@pytest.fixture(scope="module")
def lab(native):
    """Rights and policies of two releases, one of them an operator; nothing of them runs."""
    scc.install_kinds(native)
    made = [
        each
        for preset in ("vke", "nvidia-operator")
        for part in ("namespace", "rights", "admission")
        for each in objects((), preset, part)
    ]
    made += reading_nodes()
    cluster.apply(native, *made)
    yield native
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    cluster.kubectl(native, "delete", "--wait", "--ignore-not-found", "-f", "-", stdin=text)


def reading_nodes():
    """A right that kubectl needs and the operator does not: it reads what it is to patch."""
    group, name = "rbac.authorization.k8s.io", "test-kubectl-reads-nodes"
    _, _, space, account = OPERATOR.split(":")
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": space}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    return [
        {**head, "kind": "ClusterRole", "rules": [rule]},
        {**head, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]


def patch(lab, body, *words, account=OPERATOR):
    """Patch the node as the operator would, or another account."""
    kind = ("--type=merge", "-p", json.dumps(body))
    cluster.kubectl(lab, f"--as={account}", "patch", "node", NODE, *kind, *words)


def closed(value):
    mark = None if value is None else "true"
    return {"metadata": {"annotations": {MARK: mark}}, "spec": {"unschedulable": value}}


HARMS = {
    "label": {"metadata": {"labels": {"a": "b"}}},
    "annotation": {"metadata": {"annotations": {"a": "b"}}},
    "finalizer": {"metadata": {"finalizers": ["example.org/a"]}},
    "taint": {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
}


def in_force(lab, account=OPERATOR):
    try:
        patch(lab, HARMS["label"], "--dry-run=server", account=account)
    except Unavailable as error:
        return "The controller changes nothing" in str(error)
    return False


def test_an_operator_closes_a_node_and_opens_it_again(lab):
    until(lab, "the policy in force", lambda: in_force(lab))
    patch(lab, closed(True), "--dry-run=server")
    patch(lab, closed(True))
    patch(lab, closed(None))
    assert not cluster.get(lab, "node", NODE)["spec"].get("unschedulable")


@pytest.mark.parametrize("label", [*PLACE_LABELS.values(), READY_LABEL])
def test_an_operator_says_which_drivers_are_of_a_node(lab, label):
    """Without these labels no driver comes, and none goes."""
    until(lab, "the policy in force", lambda: in_force(lab))
    patch(lab, {"metadata": {"labels": {label: "x"}}})
    patch(lab, {"metadata": {"labels": {label: None}}})


@pytest.mark.parametrize("harm", HARMS)
def test_an_operator_changes_nothing_else_of_a_node(lab, harm):
    until(lab, "the policy in force", lambda: in_force(lab))
    with pytest.raises(Unavailable, match="The controller changes nothing of a node"):
        patch(lab, HARMS[harm])


@pytest.mark.parametrize("key", [LEAF, BLOCK, *DIALECTS.values()])
def test_a_controller_says_which_leaf_a_node_is_on(lab, key):
    until(lab, "the policy in force", lambda: in_force(lab, CONTROLLER))
    patch(lab, {"metadata": {"labels": {key: "x"}}}, account=CONTROLLER)
    patch(lab, {"metadata": {"labels": {key: None}}}, account=CONTROLLER)


@pytest.mark.parametrize("harm", [*HARMS.values(), closed(True)])
def test_a_controller_changes_nothing_else_of_a_node(lab, harm):
    until(lab, "the policy in force", lambda: in_force(lab, CONTROLLER))
    with pytest.raises(Unavailable, match="The controller changes nothing of a node"):
        patch(lab, harm, account=CONTROLLER)


def test_a_namespace_lets_the_controller_do_its_checks(lab):
    """By the names in docs/verify.md; it may not write checks, nor do them elsewhere."""
    lines = [shlex.split(line) for line in CHECKS.replace("\\\n", " ").split("\n") if line]
    try:
        printed = [cluster.kubectl(lab, *words[1:]) for words in lines]
        assert printed[-1].strip() == "yes"
        account = words_as(lines[-1])
        for words in (
            ("create", "bandwidthchecks", "-n", "train"),
            ("create", "pods/exec", "-n", "default"),
        ):
            with pytest.raises(Unavailable):
                cluster.kubectl(lab, "auth", "can-i", "-q", *words, account)
    finally:
        cluster.kubectl(lab, "delete", "namespace", "train", "--ignore-not-found")


def words_as(words):
    (account,) = [word for word in words if word.startswith("--as=")]
    return account


@pytest.fixture(scope="module")
def trial(lab, tmp_path_factory):
    """What Helm says to an installation of the operator, of which nothing is done."""
    home = tmp_path_factory.mktemp("helm")
    with kit.built(kit.NEWEST) as programs:

        def call():
            words = ("install", "second", str(kit.CHART), "-n", "kube-system", "--dry-run=server")
            values = ("preset=nvidia-operator", "crds.install=false", "roles.install=false")
            more = ("admission.install=false", "namespace.name=elsewhere", "controller.name=second")
            more = (*more, f"image.repository={IMAGE}")
            sets = [word for value in (*values, *more) for word in ("--set", value)]
            done = kit.run(programs[kit.NEWEST], home, *words, *sets, kubeconfig=lab.kubeconfig)
            return done.returncode, done.stderr

        yield call


def test_an_operator_is_not_installed_where_another_one_runs(lab, trial):
    assert trial()[0] == 0
    cluster.apply(lab, VENDOR)
    try:
        code, told = trial()
        assert code
        assert "NVIDIA's operator runs here: Deployment default/network-operator" in told
        cluster.kubectl(lab, "scale", "deployment/network-operator", "--replicas=0")
        assert trial()[0] == 0
    finally:
        cluster.kubectl(lab, "delete", "deployment", "network-operator")


def test_an_operator_is_not_installed_beside_a_definition_of_another_scope(lab, trial):
    cluster.delete_definition(lab, DEFINITION)
    (ours,) = [
        each
        for each in objects((), "nvidia-operator", "definitions")
        if each["metadata"]["name"] == DEFINITION
    ]
    cluster.apply(lab, {**ours, "spec": {**ours["spec"], "scope": "Cluster"}})
    try:
        code, told = trial()
        assert code
        assert "has scope Cluster, and controller.policyScope is Namespaced" in told
        assert "set controller.policyScope=Cluster" in told
    finally:
        cluster.delete_definition(lab, DEFINITION)


def created(lab, policy):
    """Create a policy and return it as the API server stored it."""
    words = ("create", "-o", "json", "-f", "-")
    return json.loads(cluster.kubectl(lab, *words, stdin=json.dumps(policy)))


def test_a_status_is_written_where_the_definition_has_fewer_fields(lab):
    """NVIDIA's before 26.7 have no conditions; an apply of one field too many is refused."""
    cluster.delete_definition(lab, DEFINITION)
    (theirs,) = [
        each
        for each in objects([], "nvidia-operator", "definitions")
        if each["metadata"]["name"] == DEFINITION
    ]
    status = theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del status["default"], status["properties"]["conditions"]
    del status["properties"]["observedGeneration"]
    cluster.apply(lab, theirs)
    verdict = PolicyVerdict(AppliedState.ERROR, "why")
    written = policy_status(None, 1, verdict, "2026-11-26T00:00:00Z")

    async def write() -> Any:
        async with connect(lab.kubeconfig) as client:
            seen = await client.get(NIC_CLUSTER_POLICY, "few", SPACE)
            place = (NIC_CLUSTER_POLICY, "few", SPACE, written)
            with pytest.raises(Refused, match="field not declared in schema"):
                await client.apply_status(*place, force=True)
            return await client.merge_status(*place, version=seen.version)

    try:
        cluster.wait(lab, f"crd/{DEFINITION}", "--for=condition=Established")
        policy = yaml.safe_load((RELEASES / "0.1.0.yaml").read_text())
        policy["metadata"] |= {"name": "few", "namespace": SPACE}
        created(lab, policy)
        stored = asyncio.run(write())
        assert (stored.status.state, stored.status.reason) == ("error", "why")
        assert not stored.status.conditions
    finally:
        cluster.delete_definition(lab, DEFINITION)


def test_a_definition_for_the_whole_cluster_takes_a_policy_that_names_a_namespace(lab):
    """So one file fits both scopes, as `config check` says; the namespace is dropped."""
    cluster.delete_definition(lab, DEFINITION)
    (ours,) = [
        each
        for each in objects(
            [assignment("controller.policyScope=Cluster")], "nvidia-operator", "definitions"
        )
        if each["metadata"]["name"] == DEFINITION
    ]
    cluster.apply(lab, ours)
    try:
        cluster.wait(lab, f"crd/{DEFINITION}", "--for=condition=Established")
        for path in sorted(RELEASES.glob("*.yaml")):
            policy = yaml.safe_load(path.read_text())
            policy["metadata"] |= {"name": f"of-{path.stem}", "namespace": SPACE}
            stored = created(lab, policy)
            assert "namespace" not in stored["metadata"]
            assert stored["spec"].keys() == policy["spec"].keys()
    finally:
        cluster.delete_definition(lab, DEFINITION)
