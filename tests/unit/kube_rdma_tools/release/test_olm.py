"""The bundle for OLM: what the chart installs for an operator, in the form that OLM takes."""

import json

import pytest
import yaml

from kube_base.errors import Broken
from kube_rdma.install.installation import objects
from kube_rdma.lib.text import reader
from kube_rdma_tools.release import olm
from kube_rdma_tools.release.source_tree import CHART
from tests.house.tree import ROOT

IMAGE = "registry.example.com/rdma/kube-rdma"
SAYS = {**yaml.safe_load((ROOT / CHART / "Chart.yaml").read_text()), "version": "0.2.0-rc.1"}
POLICY = yaml.safe_load((ROOT / olm.EXAMPLE).read_text())
# Of a registry+v1 bundle: operator-registry, pkg/lib/bundle/supported_resources.go.
TAKEN = {
    *("ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"),
    *("ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "PriorityClass"),
    *("PrometheusRule", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount"),
    "ServiceMonitor",
}


def bundle(says=SAYS):
    files = olm.bundle_files(IMAGE, says, POLICY)
    return {name: file.data.decode() for name, file in files.items()}


FILES = bundle()
MANIFESTS = [yaml.safe_load(text) for name, text in FILES.items() if name.startswith("manifests/")]
(CSV,) = [one for one in MANIFESTS if one["kind"] == "ClusterServiceVersion"]
INSTALL = CSV["spec"]["install"]["spec"]
VALUES = {
    "image": {"repository": IMAGE, "tag": "0.2.0-rc.1"},
    "distribution": "openshift",
}
RENDERED = objects([reader.read(json.dumps(VALUES).encode(), "values")], "nvidia-operator")


def rendered(kind):
    return {one["metadata"]["name"]: one for one in RENDERED if one["kind"] == kind}


def test_olm_takes_every_object_and_decides_the_namespace():
    assert {one["kind"] for one in MANIFESTS} <= TAKEN
    assert not [one for one in MANIFESTS if "namespace" in one["metadata"]]
    assert CSV["metadata"]["name"] == "kube-rdma.v0.2.0-rc.1"


def test_the_operator_is_the_deployment_of_the_chart():
    made = {one["name"]: one["spec"] for one in INSTALL["deployments"]}
    assert made == {name: one["spec"] for name, one in rendered("Deployment").items()}


@pytest.mark.parametrize(
    ("field", "kind"), [("permissions", "Role"), ("clusterPermissions", "ClusterRole")]
)
def test_each_account_has_the_rights_of_its_role(field, kind):
    made = {one["serviceAccountName"]: one["rules"] for one in INSTALL[field]}
    roles = {name: one["rules"] for name, one in rendered(kind).items()}
    for binding in rendered(f"{kind}Binding").values():
        rules = roles.get(binding["roleRef"]["name"], [{"resourceNames": ["privileged"]}])
        (account,) = binding["subjects"]
        for rule in rules:
            assert any(rule.items() <= one.items() for one in made[account["name"]])


def test_each_account_of_the_chart_is_made_and_no_role_is_there_twice():
    accounts = {one["serviceAccountName"] for one in INSTALL["permissions"]}
    assert accounts == rendered("ServiceAccount").keys()
    bound = {one["roleRef"]["name"] for one in RENDERED if "roleRef" in one}
    names = {one["metadata"]["name"] for one in MANIFESTS if one["kind"].endswith("Role")}
    assert names == {*rendered("Role"), *rendered("ClusterRole")} - bound


def test_each_kind_that_is_defined_is_owned():
    owned = {one["name"] for one in CSV["spec"]["customresourcedefinitions"]["owned"]}
    assert owned == rendered("CustomResourceDefinition").keys()


def test_its_example_deploys_the_image_of_the_release():
    (policy,) = json.loads(CSV["metadata"]["annotations"]["alm-examples"])
    plugin = policy["spec"]["devicePlugin"]
    named = f"{plugin['repository']}/{plugin['image']}:{plugin['version']}"
    assert named == f"{IMAGE}:0.2.0-rc.1" == CSV["metadata"]["annotations"]["containerImage"]


def test_the_image_of_the_bundle_says_what_its_metadata_says():
    annotations = yaml.safe_load(FILES["metadata/annotations.yaml"])["annotations"]
    lines = FILES["bundle.Dockerfile"].splitlines()
    labels = dict(line.split(" ")[1].split("=") for line in lines if line.startswith("LABEL"))
    assert labels == annotations
    assert annotations["operators.operatorframework.io.bundle.package.v1"] == "kube-rdma"


def test_who_maintains_it_is_who_maintains_the_chart():
    owner = {"name": "jane", "email": "jane@example.com"}
    says = {**SAYS, "home": "https://forge.example/jane/rdma", "maintainers": [owner]}
    spec = yaml.safe_load(bundle(says)["manifests/kube-rdma.clusterserviceversion.yaml"])["spec"]
    assert spec["maintainers"] == [owner]
    assert spec["provider"] == {"name": "jane", "url": says["home"]}
    assert "provider" not in CSV["spec"]


def test_an_object_that_nobody_sorted_is_named(monkeypatch):
    monkeypatch.setattr(olm, "_BESIDE", ())
    with pytest.raises(Broken, match="OLM takes no ClusterRole, CustomResourceDefinition"):
        bundle()
