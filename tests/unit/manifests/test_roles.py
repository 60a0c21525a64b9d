"""Roles for people: what view and edit of Kubernetes take in, and that no account has one."""

import pytest

from kube_rdma.install.installation import objects
from kube_rdma.install.rules.presets import PRESETS
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
