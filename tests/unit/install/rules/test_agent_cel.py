"""What the policies let agents and an operator write is what their code writes; see the lab's
test_agent_policy and test_operator_rights for the same at an API server."""

import re

import pytest

from kube_rdma.attach.documents import network_status
from kube_rdma.fabric.rules.leaves import BLOCK, DIALECTS, FAULTS, LEAF, LEAVES, OWN
from kube_rdma.install.installation import assignment, objects
from kube_rdma.install.rules.presets import PRESETS
from kube_rdma.ipam.rules.grant import MOST_REQUESTS
from kube_rdma.model import ipam, repair
from kube_rdma.model.attach.attachment import RESTART
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.operator.rules.placement import PLACE_LABELS, READY_LABEL
from kube_rdma.operator.upgrades import CLOSED_MARK
from kube_rdma.pools.rules.holdings import EFFECT
from kube_rdma.pools.rules.holdings import KEYS as STARTUP_TAINTS
from kube_rdma.pools.rules.labels import FEATURE
from tests.kit.policies import AGENTS, NFD_RIGHT, ONLY_AGENTS, OPERATOR, agents_keys, policy

WRITTEN = {
    network_status.ANNOTATION,
    network_status.OWN_ANNOTATION,
    network_status.POD_NETWORKS_STATUS,
    RESTART,
}
OTHERS = ("k8s.v1.cni.cncf.io/networks", "x.kube-rdma.io/network-status", "kube-rdma.io/test", "")
MADE = ipam.IPPool(ipam.PoolName(""), ())  # what an agent chooses of a pool beside its addresses


def test_an_agent_tells_pods_what_it_has_to_tell():
    pattern = agents_keys("annotation")["pods"]
    assert all(re.search(pattern, key) for key in WRITTEN)
    assert not [key for key in OTHERS if re.search(pattern, key)]


def test_an_agent_marks_a_pod_with_one_label():
    pattern = agents_keys("label")["pods"]
    assert re.search(pattern, RESTART)
    assert not [key for key in (*OTHERS, "app") if re.search(pattern, key)]


@pytest.mark.parametrize(
    "said",
    [
        f"!key.startsWith('{FEATURE}/')",
        "authorizer.group('{1}').resource('{2}').check('{0}').allowed()".format(*NFD_RIGHT),
        f"taint.key in {list(STARTUP_TAINTS)} && taint.effect == '{EFFECT}'",
        f".spec.driver == '{DRIVER}' && ",
        f"object.metadata.name.substring({len(f'000-{DRIVER}-')}) == variables.node",
        f"one.?addresses.orValue([]).size() <= {ipam.BLOCK_ADDRESSES})",
        f"variables.pins.size() <= {ipam.BLOCK_ADDRESSES} ",
        f"0 <= place && place < {ipam.BLOCK_ADDRESSES})",
        f"object.spec.ranges.size() <= {ipam.MOST_MADE_RANGES} ",
        f"object.spec.?excludes.orValue([]).size() <= {ipam.MOST_MADE_EXCLUDES} ",
        f"object.spec.?restSeconds.orValue({MADE.cooldown:.0f}) == {MADE.cooldown:.0f} ",
        f"object.spec.?blockSize.orValue({MADE.block_size}) == {MADE.block_size} ",
        f"wants.size() <= {MOST_REQUESTS} ",
    ],
)
def test_the_policy_has_the_names_and_numbers_of_the_agent(said):
    rules = [" ".join(one["expression"].split()) for one in policy(AGENTS)["validations"]]
    assert [rule for rule in rules if said in f"{rule} "]


def test_an_operator_writes_its_labels_and_its_mark():
    """Without them no driver comes, and none goes."""
    assert [one for one in objects((), "nvidia-operator", "admission") if OPERATOR in str(one)]
    validation, _ = policy(OPERATOR)["validations"]
    for key in (*PLACE_LABELS.values(), READY_LABEL, CLOSED_MARK):
        assert f"'{key}'" in validation["expression"]
    variables = {one["name"]: one["expression"] for one in policy(OPERATOR)["variables"]}
    assert "'metadata.labels'" in variables["fields"]
    assert variables["operates"] == "true"


def test_a_controller_writes_its_labels_of_leaves_and_its_annotations():
    made = policy("controller-labels-nodes.kube-rdma.io", "default")
    validation, of_taints = made["validations"]
    every = (LEAF, BLOCK, *DIALECTS.values(), OWN, LEAVES, FAULTS, repair.KEY, repair.BURN_IN)
    for key in every:
        assert f"'{key}'" in validation["expression"]
    assert f"one.key == '{repair.KEY}'" in of_taints["expression"]
    assert f"one.key in ['{repair.KEY}', '{repair.BURN_IN}']" in of_taints["expression"]
    variables = {one["name"]: one["expression"] for one in made["variables"]}
    assert (variables["operates"], variables["repairs"]) == ("false", "false")


def test_an_agent_does_not_write_what_is_expected_of_its_node():
    (fields,) = (
        one["expression"] for one in policy(AGENTS)["variables"] if one["name"] == "fields"
    )
    assert "'nodereports': ['metadata.ownerReferences']" in fields
    (strays,) = (
        one["expression"] for one in policy(AGENTS)["variables"] if one["name"] == "strays"
    )
    assert "'nodereports'," not in strays


def test_only_the_annotation_that_an_agent_writes_is_kept_from_others():
    """Its key is the agent's, and all that others write passes by a condition that cannot fail."""
    made = policy(ONLY_AGENTS)
    (condition,) = made["matchConditions"]
    key = f".metadata.?annotations[?'{network_status.OWN_ANNOTATION}']"
    texts = " ".join(condition["expression"].split())
    assert texts == f"object{key} != (oldObject == null ? optional.none() : oldObject{key})"
    (validation,) = made["validations"]
    assert f"annotation {network_status.OWN_ANNOTATION}." in validation["message"]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("parts", ["true", "false"])
def test_agents_alone_have_the_right_by_which_that_policy_knows_them(preset, parts):
    """With and without names and receipts; whoever else had it could say what a pod got."""
    layers = [assignment(f"controller.{part}={parts}") for part in ("names", "repair")]
    made = list(objects(layers, preset, "rights"))
    is_installed = ONLY_AGENTS in str([*objects(layers, preset, "admission")])
    (expression,) = (one["expression"] for one in policy(ONLY_AGENTS, preset)["validations"])
    right = ("kube-rdma.io", "nodereports", "create")
    asked = ".group('{}').resource('{}').check('{}').allowed()".format(*right)
    assert f"authorizer{asked}" in " ".join(expression.split())
    roles = {
        one["metadata"]["name"]
        for one in made
        for rule in one.get("rules", ())
        if one["kind"] == "ClusterRole"
        if "nodereports" in rule["resources"] and "create" in rule["verbs"]
    }
    accounts = {
        subject["name"]
        for one in made
        if one["kind"].endswith("Binding") and one.get("roleRef", {}).get("name") in roles
        for subject in one["subjects"]
    }
    assert accounts == ({"kube-rdma-agent"} if is_installed else set())
