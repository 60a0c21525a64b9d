"""Names, labels and versions of a release, and the conditions for its end."""

import json
import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.install.documents.values import Digest, Tag
from kube_rdma.install.installation import assignment, blueprints
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import PRESETS, merged
from kube_rdma.install.rules.release import (
    GROUP,
    SINCE,
    labelled,
    lacking,
    still_needed,
    version_label,
)
from kube_rdma.model.install import Blueprint, Spread
from kube_rdma.model.kubernetes import PodState
from kube_rdma_lab.installation import objects

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
            or (kind, name) in {("PodMonitor", "rdma-a"), ("PrometheusRule", "rdma-a")}
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
    """Agents, controllers and operators of other releases are held by policies of their own."""
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
    controller = "rdma-a-operator" if preset == "nvidia-operator" else "rdma-a-controller"
    assert held_accounts == {agent, controller}


# What a version of Kubernetes does not have is left out, and what it has stays.

forms = st.sampled_from(["1.{}", "v1.{}", "v1.{}.3", "v1.{}.5-gke.1100", "1.{}.2+k3s1"])


@given(st.integers(0, 60), forms)
def test_every_form_of_a_version_has_what_its_minor_version_has(minor, form):
    values = merged({"preset": "vke", "kubernetesVersion": form.format(minor)})
    assert {name: values["platform"][name] for name in SINCE} == {
        name: minor >= since for name, since in SINCE.items()
    }


@pytest.mark.parametrize("values", [{}, {"kubernetesVersion": ""}, {"kubernetesVersion": None}])
def test_without_a_version_it_is_the_newest(values):
    assert all(merged({"preset": "vke", **values})["platform"][name] for name in SINCE)


@pytest.mark.parametrize(
    ("preset", "pods", "version", "kinds"),
    [
        ("vke", {}, "1.28", ["ValidatingAdmissionPolicy"]),
        ("vke", {}, "1.30", ["CEL"]),
        ("vke", {}, "1.31", []),
        ("ack", {}, "1.28", ["ValidatingAdmissionPolicy"]),
        ("ack", {"check": False}, "1.28", []),
        ("scc", {}, "1.28", []),
        ("scc", {"check": True}, "1.28", ["ValidatingAdmissionPolicy"]),
        ("scc", {"complete": True}, "1.35", ["MutatingAdmissionPolicy"]),
        ("scc", {"complete": True}, "1.36", []),
    ],
)
def test_what_is_asked_for_and_left_out_is_said(preset, pods, version, kinds):
    given_values = {"preset": preset, "kubernetesVersion": version, "admission": {"pods": pods}}
    sentences = lacking(merged(given_values))
    assert [sentence.split()[4].rstrip(",") for sentence in sentences] == kinds
    assert all(sentence.startswith(f"Kubernetes {version} has no ") for sentence in sentences)


@pytest.mark.parametrize(("version", "count"), [("1.24", 1), ("1.25", 0), ("", 0)])
def test_rules_of_definitions_are_left_out_where_clients_refuse_them(version, count):
    """A note says so, where there are definitions at all."""
    values = merged({"preset": "vke", "kubernetesVersion": version})
    definitions = list(filled(blueprints()["definitions"], values))
    assert ("x-kubernetes-validations" in str(definitions)) is not bool(count)
    told = [sentence for sentence in lacking(values) if "rules of definitions" in sentence]
    assert len(told) == count
    values["crds"]["install"] = False
    assert not [sentence for sentence in lacking(values) if "rules of definitions" in sentence]


def test_a_version_that_is_too_old_is_named():
    (first, *_) = lacking(merged({"preset": "vke", "kubernetesVersion": "v1.20.15-vke.18"}))
    assert first == "Kubernetes v1.20.15-vke.18 is older than 1.22, which kube-rdma needs."
    assert not lacking(merged({"preset": "scc", "kubernetesVersion": "1.22"}))


# The labels that Kubernetes recommends: on all objects and pods, as the API server takes them.

LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")  # apimachinery validation
VALUES = merged({"preset": "vke", "agent": {"podLabels": {"team": "a", f"{GROUP}name": "b"}}})


def form(word):
    """Texts that a value of the installation may be."""
    return st.from_regex(word.__metadata__[0].form, fullmatch=True)


@given(form(Tag), form(Digest))
def test_a_version_is_a_label(tag, digest):
    version = version_label(tag, digest)
    assert len(version) <= 63
    assert LABEL.fullmatch(version)
    assert digest.replace(":", "-").startswith(version) if digest else version in tag


@pytest.mark.parametrize("preset", PRESETS)
def test_what_belongs_together_is_found_by_them(preset):
    """Whoever renders without Helm has an instance too: the preset, or the release's own name."""
    for fullname, instance in (("", preset), ("rdma-a", "rdma-a")):
        layers = [assignment("image.tag=1.2.3")]
        layers += [assignment(f"fullnameOverride={fullname}")] if fullname else []
        for made in objects(layers, preset):
            labels = made["metadata"]["labels"]
            wanted = {
                "name": "kube-rdma",
                "instance": instance,
                "version": "1.2.3",
                "part-of": "kube-rdma",
                "managed-by": "kube-rdma",
            }
            assert {f"{GROUP}{key}": value for key, value in wanted.items()}.items() <= (
                labels.items()
            )
            assert labels[f"{GROUP}component"]


def test_they_stand_beside_the_labels_that_an_object_has():
    """In front of a user's own, which change none of them."""
    template = {"metadata": {"labels": {"name": "x", "more": Spread("agent.podLabels")}}}
    body = {"metadata": {"name": "x", "labels": {"own": "y"}}, "spec": {"template": template}}
    (made,) = filled([labelled(Blueprint(body, component="agent"), "workloads")], VALUES)
    assert made["metadata"]["labels"]["own"] == "y"
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert (labels["name"], labels["team"]) == ("x", "a")
    assert (labels[f"{GROUP}name"], labels[f"{GROUP}component"]) == ("kube-rdma", "agent")


def test_without_a_component_of_its_own_an_object_has_its_part_s():
    (made,) = filled([labelled(Blueprint({"metadata": {"name": "x"}}), "pools")], VALUES)
    assert made["metadata"]["labels"][f"{GROUP}component"] == "pools"


# Who must be gone before the agents go.

NOTE = "kube-rdma.io/network-status"
POD = PodState("team", "a", "1", annotations=((NOTE, "[]"),), phase="Running")


@pytest.mark.parametrize(
    ("pod", "needed"),
    [
        (POD, True),
        (replace(POD, phase="Pending"), True),
        (replace(POD, deleting=True), True),
        (replace(POD, phase="Succeeded"), False),
        (replace(POD, phase="Failed"), False),
        (replace(POD, annotations=(("another.io/network-status", "[]"),)), False),
    ],
)
def test_a_pod_with_networks_that_has_not_ended_needs_an_agent(pod, needed):
    assert bool(still_needed([pod], NOTE)) is needed


def test_the_refusal_names_some_of_many():
    refusal = still_needed([replace(POD, name=name) for name in "edcba"], NOTE)
    assert "team/a, team/b, team/c and 2 more" in str(refusal)
