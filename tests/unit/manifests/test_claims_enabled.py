"""What an installation has with claims.enabled: the option, the folder and the rights, together."""

import re

import pytest

from kube_rdma.install.installation import assignment, objects, policy_values
from kube_rdma.lib.schema import LOOKAROUND
from kube_rdma.model.claims.claim import CARD_CLASS, SHARED_CLASS
from tests.unit.manifests.test_installation import CHART, held, narrows

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
