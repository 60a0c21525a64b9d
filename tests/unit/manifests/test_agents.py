"""Agents as values and platforms change them: placement, labels, claims, OpenShift."""

import re
from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.claims.templates import CARD_CLASS, SHARED_CLASS
from kube_rdma.install.installation import assignment, blueprints, policy_values
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import DISTRIBUTIONS, PRESETS, merged
from kube_rdma.lib.schema import LOOKAROUND
from kube_rdma.operator.rules.daemon_sets import DRIVER_ACCOUNT
from kube_rdma_lab.installation import objects
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.rules import judge
from tests.kit.policies import NFD_RIGHT
from tests.unit.manifests.test_installation import (
    CHART,
    documents,
    held,
    narrows,
    pods,
    with_hooks,
    without_recommended,
)

NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [1]}}
BESIDE = {"requiredDuringSchedulingIgnoredDuringExecution": [2]}
WITH_AGENT = [preset for preset in PRESETS if preset != "nvidia-operator"]


def templates(preset, **agent):
    """The templates of agents and of what follows them, by the name of their DaemonSet."""
    listed = [replace(one, for_helm=False) for part in blueprints().values() for one in part]
    made = filled(listed, merged({"preset": preset, "agent": agent}))
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in made
        if one["kind"] == "DaemonSet"
    }


@pytest.mark.parametrize("preset", WITH_AGENT)
def test_an_affinity_takes_the_place_of_the_chart_s_own(preset):
    by_name = templates(preset, affinity={"nodeAffinity": NODES, "podAntiAffinity": BESIDE})
    leaving = by_name.pop("kube-rdma-leaving", None)
    (agent,) = by_name.values()
    assert agent["spec"]["affinity"] == {"nodeAffinity": NODES, "podAntiAffinity": BESIDE}
    # Nodes are cleaned wherever agents were, whoever else is there.
    assert leaving is None or leaving["spec"]["affinity"] == {"nodeAffinity": NODES}


@pytest.mark.parametrize("preset", WITH_AGENT)
@pytest.mark.parametrize("priority", ["rdma", ""])
def test_priority_and_annotations_are_those_of_the_cleaning_too(preset, priority):
    further = {"priorityClassName": priority, "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}}
    for template in templates(preset, **further).values():
        assert template["spec"].get("priorityClassName", "") == priority
        assert template["metadata"]["annotations"] == {"a": "b"}
        assert template["metadata"]["labels"]["c"] == "d"
    for template in templates(preset).values():
        assert template["spec"]["priorityClassName"] == "system-node-critical"


# The labeller as a value of the installation: the DaemonSet of labels.yaml, in any namespace.

ROOT = Path(__file__).parents[3]
LABELLER = "kube-rdma-labels"


def daemon_set(made, name):
    (one,) = [
        each for each in made if (each["kind"], each["metadata"]["name"]) == ("DaemonSet", name)
    ]
    return one


@pytest.mark.parametrize("preset", ["nvidia", "nvidia-operator", "default"])
def test_the_labeller_of_a_value_is_that_of_labels_yaml(preset):
    """On every node, whatever label the agents need, and with the image of the installation.

    But its type of SELinux: that of labels.yaml keeps it from the labels of the distribution.
    """
    made = objects([assignment("labeller.enabled=true")], preset)
    value = daemon_set(made, LABELLER)["spec"]["template"]["spec"]
    file = daemon_set(documents(ROOT / "examples/s3-network/labels.yaml"), "node-labels")
    expected = file["spec"]["template"]["spec"]
    expected["containers"][0]["securityContext"]["seLinuxOptions"] = {"type": "spc_t"}
    assert value == expected
    assert narrows(made, *NFD_RIGHT)
    assert LABELLER not in str(objects((), preset))


@pytest.mark.parametrize("preset", ["ack", "scc", "efa"])
def test_no_labeller_is_where_no_account_is(preset):
    assert objects([assignment("labeller.enabled=true")], preset) == objects((), preset)


def test_the_labeller_can_read_what_it_labels_where_selinux_enforces():
    """The agents' own type would leave it without the node's /etc/os-release."""
    environment = ENVIRONMENTS["rhel"]
    version = assignment(f"kubernetesVersion=v1.{environment.kubernetes}")
    made = objects([version, assignment("labeller.enabled=true")], "nvidia")
    seen = [one for one in judge(made, environment) if LABELLER in one.where]
    assert [one.rule for one in seen] == []


# OpenShift's constraints: nobody names a user, and who needs more is bound to what allows it.


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia", "nvidia-operator", "ib"])
def test_on_openshift_nobody_names_a_user(preset, distribution):
    """The constraint of everyone gives pods one of the namespace's, which is never root."""
    users = {
        (container["securityContext"].get("runAsUser"))
        for pod in pods(with_hooks(preset, distribution=distribution)).values()
        for container in pod["containers"]
        if container["securityContext"].get("runAsNonRoot")
    }
    assert users == {None if distribution == "openshift" else 65532}


def test_on_openshift_what_a_policy_deploys_may_be_privileged():
    """Agents, and drivers with an account of their own."""
    made = with_hooks("nvidia-operator", distribution="openshift")
    bound = {
        subject["name"]
        for each in made
        if each.get("roleRef", {}).get("name") == "system:openshift:scc:privileged"
        for subject in each["subjects"]
    }
    accounts = {each["metadata"]["name"] for each in made if each["kind"] == "ServiceAccount"}
    assert bound == {"kube-rdma-agent", DRIVER_ACCOUNT}
    assert bound <= accounts
    elsewhere = with_hooks("nvidia-operator")
    assert DRIVER_ACCOUNT not in {each["metadata"]["name"] for each in elsewhere}


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "nvidia-operator"])
def test_openshift_allows_what_it_would_forbid(preset):
    """A binding for the very account that the agents have."""
    values = merged({"preset": preset, "distribution": "openshift"})
    made = [each for part in blueprints().values() for each in filled(part, values)]
    (agent,) = [each for each in made if each["kind"] == "DaemonSet"]
    account = agent["spec"]["template"]["spec"]["serviceAccountName"]
    (binding,) = [
        each
        for each in made
        if each.get("roleRef", {}).get("name") == "system:openshift:scc:privileged"
    ]
    (subject,) = binding["subjects"]
    place = {"name": account, "namespace": agent["metadata"]["namespace"]}
    assert subject == {"kind": "ServiceAccount", **place}
    accounts = [each for each in made if each["kind"] == "ServiceAccount"]
    assert [each["metadata"] for each in without_recommended(accounts)].count(place) == 1


# What an installation has with claims.enabled: the option, the folder and the rights, together.

REGISTRY = ("/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins_registry", False)


def claim_folders(made):
    """By which the kubelet finds a driver: the host's path, the agent's, and if read-only."""
    return {
        (volume["hostPath"]["path"], mount["mountPath"], mount.get("readOnly", False))
        for each in made
        if each["kind"] == "DaemonSet"
        for pod in [each["spec"]["template"]["spec"]]
        for volume in pod["volumes"]
        for mount in pod["containers"][0]["volumeMounts"]
        if volume["name"] == mount["name"] == "plugins-registry"
    }


def test_claims_are_announced_to_the_kubelet_where_it_is():
    """Its root moves plugins_registry, and the agent looks for it below the usual one."""
    words = ("claims.enabled=true", "host.kubelet=/data/kubelet")
    made = objects([assignment(word) for word in words], "default")
    assert claim_folders(made) == {("/data/kubelet/plugins_registry", *REGISTRY[1:])}


@pytest.mark.parametrize("preset", ["default", "vke", "nvidia", "ib"])
def test_agents_write_slices_only_where_claims_are_enabled(preset):
    """The option and the right come together, and a policy holds whoever has the right."""
    for enabled in (False, True):
        made = objects([assignment(f"claims.enabled={str(enabled).lower()}")], preset)
        words = [
            word
            for each in made
            if each["kind"] == "DaemonSet"
            for word in each["spec"]["template"]["spec"]["containers"][0]["args"]
        ]
        assert ("--claims" in words) is enabled
        assert claim_folders(made) == ({REGISTRY} if enabled else set())
        accounts = narrows(made, "delete", "resource.k8s.io", "resourceslices")
        assert bool(accounts) is enabled
        assert accounts <= held(made, "resourceslices")
        told = narrows(made, "patch", "resource.k8s.io", "resourceclaims/status")
        assert told == accounts
        assert told <= held(made, "resourceclaims/status")


def test_the_agents_of_a_policy_serve_claims_where_their_operator_s_installation_does():
    """The operator hands the value on; rights, policy and classes are those of its installation."""
    for enabled in (False, True):
        made = objects([assignment(f"claims.enabled={str(enabled).lower()}")], "nvidia-operator")
        (deployment,) = (each for each in made if each["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        words = [word for word in container["args"] if word.startswith("--policy-set=claims.")]
        assert words == ["--policy-set=claims.enabled=true"] * enabled
        given = policy_values([word.partition("=")[2] for word in words], "")
        assert bool(given.get("claims")) is enabled
        accounts = narrows(made, "delete", "resource.k8s.io", "resourceslices")
        assert bool(accounts) is enabled
        assert accounts <= held(made, "resourceslices")
        assert accounts <= held(made, "resourceclaims/status")
        classes = {one["metadata"]["name"] for one in made if one["kind"] == "DeviceClass"}
        assert classes == ({CARD_CLASS, SHARED_CLASS} if enabled else set())


def test_the_classes_of_templates_come_with_claims_and_may_stay_away():
    """Those that `kube-rdma claim` names; a cluster may have others of these names."""
    wanted = {CARD_CLASS, SHARED_CLASS}
    for words, classes in (
        (("claims.enabled=true",), wanted),
        (("claims.enabled=true", "claims.templateClasses=false"), set()),
        ((), set()),
    ):
        made = objects([assignment(word) for word in words], "default")
        assert {one["metadata"]["name"] for one in made if one["kind"] == "DeviceClass"} == classes


@pytest.mark.parametrize("preset", ["default", "vke", "nvidia-operator"])
def test_dranet_s_names_are_a_choice_beside_claims(preset):
    """Of a policy's agents by the operator's installation."""
    option = {"nvidia-operator": "--policy-set=claims.dranetAttributes=true"}
    for words, has in (
        (("claims.enabled=true", "claims.dranetAttributes=true"), True),
        (("claims.enabled=true",), False),
        (("claims.dranetAttributes=true",), False),
    ):
        made = objects([assignment(word) for word in words], preset)
        assert (option.get(preset, "--dranet-attributes") in str(made)) is has


def test_helm_can_read_every_pattern_of_the_schema():
    """Go's expressions look neither ahead nor behind, and one of those spoils the whole schema."""
    patterns = re.findall(r'"pattern": "(.*)"', (CHART / "values.schema.json").read_text())
    assert len(patterns) > 5
    assert not [each for each in patterns if LOOKAROUND.search(each)]
