"""OpenShift's constraints: nobody names a user, and who needs more is bound to what allows it."""

import pytest

from kube_rdma.install.installation import blueprints
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import DISTRIBUTIONS, PRESETS, merged
from kube_rdma.operator.rules.daemon_sets import DRIVER_ACCOUNT
from tests.unit.manifests.test_installation import pods, with_hooks, without_recommended


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
