"""The Role by which a doctor from elsewhere runs in the agents' containers, in each preset."""

import pytest

from kube_rdma.install.installation import assignment, objects
from kube_rdma.install.rules.presets import PRESETS, merged, namespaces


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
