"""Roles for people, and the Role of a doctor."""

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma.install.rules.presets import PRESETS, merged, namespaces
from kube_rdma_lab.installation import objects
from tests.unit.manifests.test_installation import FOR_PEOPLE, rules_of

NETWORKS = "network-attachment-definitions"
AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-"


@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia-operator", "ib"])
def test_view_and_edit_of_kubernetes_take_in_own_kinds_and_networks(preset):
    """To view reads; to edit writes only what is in a namespace, and no status."""
    made = objects((), preset)
    roles = {
        label.removeprefix(AGGREGATED): rules_of(made, one["metadata"]["name"])
        for one in made
        for label in one["metadata"].get("labels", ())
        if label.startswith(AGGREGATED)
    }
    kinds = {
        one["spec"]["names"]["plural"]: one["spec"]["scope"]
        for one in made
        if one["kind"] == "CustomResourceDefinition" and one["spec"]["group"] == "kube-rdma.io"
    }
    assert set(roles) == {"view", "edit"}
    assert {resource for resource, _ in roles["view"]} == {*kinds, NETWORKS}
    assert {verb for _, verb in roles["view"]} == {"get", "list", "watch"}
    assert {resource for resource, _ in roles["edit"]} == {
        plural for plural, scope in kinds.items() if scope == "Namespaced"
    }
    foreign = {
        (group, *rule["resources"])
        for one in made
        if one["metadata"]["name"].startswith("kube-rdma-aggregate-to-")
        for rule in one["rules"]
        for group in rule["apiGroups"]
        if group != "kube-rdma.io"
    }
    assert foreign == {("k8s.cni.cncf.io", NETWORKS)}


@pytest.mark.parametrize("preset", PRESETS)
def test_no_account_of_kube_rdma_has_a_role_for_people(preset):
    """What people may do is no wider right of an agent or a controller."""
    bound = {
        one["roleRef"]["name"]
        for one in objects((), preset)
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding")
    }
    assert not bound & set(FOR_PEOPLE)


# The Role by which a doctor from elsewhere runs in the agents' containers, in each preset.


def roles(preset, *layers):
    """The roles of a doctor."""
    return [
        each for each in objects(layers, preset) if each["metadata"]["name"].endswith("-doctor")
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_doctor_from_elsewhere_has_the_agents_namespace_and_no_other(preset):
    """A Role, so that no account reaches containers of other namespaces by it."""
    (role,) = roles(preset)
    namespace = merged({"preset": preset})["namespace"]["name"]
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", namespace)
    assert [(one["resources"], one["verbs"]) for one in role["rules"]] == [
        (["pods"], ["get", "list"]),
        (["pods/exec"], ["get", "create"]),
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_whoever_installs_may_leave_it_out(preset):
    assert not roles(preset, assignment("roles.doctor=false"))


@pytest.mark.parametrize("preset", PRESETS)
def test_an_installation_binds_nobody_to_it(preset):
    bound = [each["roleRef"]["name"] for each in objects((), preset) if "roleRef" in each]
    assert not [name for name in bound if name.endswith("-doctor")]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_doctor_looks_for_agents_where_presets_install_them(preset):
    assert merged({"preset": preset})["namespace"]["name"] in namespaces()


def test_the_first_place_to_look_is_that_of_the_default_preset():
    assert namespaces()[0] == "kube-rdma"
