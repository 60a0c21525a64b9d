"""What a release is called: by its document, or by a name of its own that it shares with nobody."""

import json
from itertools import combinations

import pytest

from kube_base.frozen import replace
from kube_rdma.install.installation import blueprints
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import PRESETS, merged

# With all that is optional, so that every name is seen.
EVERYTHING = {
    "namespace": {"name": "shared", "create": False},
    "crds": {"install": False},
    "roles": {"install": False},
    "admission": {"pods": {"check": True, "complete": True}},
    "metrics": {"port": 9879, "podMonitor": True, "rules": True, "dashboards": True},
}
# Selectors cannot be changed: an upgrade of an installed release is refused with others.
SELECTORS = {
    **{
        preset: {"DaemonSet": "kube-rdma-agent", "Deployment": "kube-rdma-controller"}
        for preset in ("default", "rails", "rdma-ib")
    },
    "efa": {"DaemonSet": "kube-rdma-agent"},
    "ack": {"DaemonSet": "ack-rdma-dp-ds"},
    "scc": {"DaemonSet": "rdma-sriov-dp-ds"},
    "vke": {"DaemonSet": "rdma-device-plugin", "Deployment": "kube-rdma-controller"},
    "nvidia": {"DaemonSet": "rdma-shared-dp-ds", "Deployment": "kube-rdma-controller"},
    "nvidia-operator": {"Deployment": "kube-rdma-operator"},
    "ib": {"DaemonSet": "rdma-vf", "Deployment": "kube-rdma-controller"},
}


def release(preset, **given):
    """All objects of a release, those that only Helm has too."""
    listed = [one for part in blueprints().values() for one in part]
    values = merged({"preset": preset, **given})
    return list(filled([replace(one, for_helm=False) for one in listed], values))


def names(made):
    """Without networks, which pods name: a second release in a namespace creates none."""
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for one in made
        if one["kind"] != "NetworkAttachmentDefinition"
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_releases_with_own_names_share_none(preset):
    """In one namespace, whatever they install, and not with those that have no own name."""
    others = {
        name: names(release(name, **EVERYTHING | {"fullnameOverride": f"rdma-{name}"}))
        for name in PRESETS
        if name != preset
    }
    plain = names(release(preset, **EVERYTHING))
    own = names(release(preset, **EVERYTHING, fullnameOverride="rdma-a"))
    # The accounts of what a policy deploys are those of every operator.
    accounts = {name for name in own if "kube-rdma-agent" in name[2]}
    assert bool(accounts) is (preset == "nvidia-operator")
    assert own - accounts
    for listed in (plain, *others.values()):
        assert not (own - accounts) & listed
    for first, second in combinations(others.values(), 2):
        assert not first & second


@pytest.mark.parametrize("preset", PRESETS)
def test_all_names_of_a_release_with_an_own_one_begin_with_it(preset):
    for kind, _, name in names(release(preset, **EVERYTHING, fullnameOverride="rdma-a")):
        begins = name.startswith(("rdma-a-", "rdma-a.", "shared.rdma-a."))
        of_policy = preset == "nvidia-operator" and name == "kube-rdma-agent"
        assert (
            begins
            or of_policy
            or (kind, name)
            in {
                ("PodMonitor", "rdma-a"),
                ("PrometheusRule", "rdma-a"),
            }
        )


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("fullname", ["", "rdma-a"])
def test_what_a_release_names_is_there(preset, fullname):
    """Its accounts, ConfigMaps and roles, by whichever name."""
    made = release(preset, **EVERYTHING, fullnameOverride=fullname)
    present = names(made)
    for one in made:
        place = one["metadata"].get("namespace", "")
        if "roleRef" in one and one["roleRef"]["name"].startswith("system:") is False:
            kind = one["roleRef"]["kind"]
            role = (kind, place if kind == "Role" else "", one["roleRef"]["name"])
            assert role in present
            for subject in one["subjects"]:
                assert ("ServiceAccount", subject["namespace"], subject["name"]) in present
        template = one.get("spec", {}).get("template")
        if template:
            account = template["spec"].get("serviceAccountName")
            assert account is None or ("ServiceAccount", "shared", account) in present
            for volume in template["spec"].get("volumes", ()):
                if "configMap" in volume:
                    assert ("ConfigMap", "shared", volume["configMap"]["name"]) in present
            selector = one["spec"].get("selector", {}).get("matchLabels", {})
            assert selector.items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_installed_selects_as_it_always_did(preset):
    made = {
        one["kind"]: one["spec"]["selector"]["matchLabels"]
        for one in release(preset)
        if one["kind"] in ("DaemonSet", "Deployment") and "leaving" not in one["metadata"]["name"]
    }
    assert made == {kind: {"name": name} for kind, name in SELECTORS[preset].items()}


def test_a_name_of_the_controller_s_own_wins():
    made = release("vke", fullnameOverride="rdma-a", controller={"name": "mine"})
    assert ("Deployment", "kube-rdma-vke", "mine") in names(made)
    assert ("ClusterRole", "", "rdma-a-controller") in names(made)


@pytest.mark.parametrize("preset", ["vke", "nvidia-operator"])
def test_the_policy_holds_the_very_accounts_of_the_release(preset):
    """Agents and operators of other releases are held by policies of their own."""
    made = release(preset, fullnameOverride="rdma-a", namespace={"name": "shared"})
    held = {
        one["spec"]["matchConditions"][0]["expression"]
        for one in made
        if one["kind"] == "ValidatingAdmissionPolicy" and "matchConditions" in one["spec"]
    }
    accounts = {
        subject["name"]
        for one in made
        if one["kind"] == "ClusterRoleBinding" and "retirement" not in one["metadata"]["name"]
        for subject in one["subjects"]
    }
    held_accounts = {
        name for name in accounts if f"'system:serviceaccount:shared:{name}'" in json.dumps([*held])
    }
    agent = "kube-rdma-agent" if preset == "nvidia-operator" else "rdma-a-agent"
    operator = {"rdma-a-operator"} if preset == "nvidia-operator" else set()
    assert held_accounts == {agent} | operator
