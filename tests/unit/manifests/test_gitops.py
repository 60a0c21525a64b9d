"""The manifests of docs/install.md for Flux and Argo CD: neither is run, so each is read.

They are YAML, their values are values of the chart, and their IPPools are understood.
"""

import json

import pytest
import yaml

from kube_rdma.install.installation import objects
from kube_rdma.ipam import ip_pool
from kube_rdma.lib.text import reader
from kube_rdma.lib.text.document import of_value
from tests.documents.pages import blocks, pages

PAGE = "docs/install.md"
DOCUMENTS = [
    (block.place, document)
    for block in blocks(PAGE, pages()[PAGE])
    if block.language == "yaml"
    for document in yaml.safe_load_all(block.text)
    if "kind" in document
]


def of_kind(kind):
    return [document for _, document in DOCUMENTS if document["kind"] == kind]


@pytest.fixture(params=["Flux", "Argo CD"])
def values(request):
    """The values that a tool gives to the chart."""
    if request.param == "Flux":
        (release,) = of_kind("HelmRelease")
        return release["spec"]["values"]
    (application,) = of_kind("Application")
    (chart,) = [each for each in application["spec"]["sources"] if "helm" in each]
    return chart["helm"]["valuesObject"]


@pytest.mark.parametrize("document", of_kind("IPPool"), ids=lambda each: each["metadata"]["name"])
def test_pools_are_understood(document):
    """With annotations of Argo CD, which kube-rdma ignores."""
    assert ip_pool.load(of_value(document, PAGE)).name == document["metadata"]["name"]


def test_values_are_values_of_the_chart_without_pools(values):
    """Which would be hooks; pools are objects of their own."""
    kinds = {each["kind"] for each in objects([reader.read(json.dumps(values).encode(), PAGE)])}
    assert "IPPool" not in kinds
    assert "DaemonSet" in kinds
    assert ("CustomResourceDefinition" in kinds) is values.get("crds", {}).get("install", True)


def test_argo_cd_s_rules_of_health_name_every_kind_that_has_ready():
    (rules,) = of_kind("ConfigMap")
    prefix = "resource.customizations.health."
    assert {key.removeprefix(prefix) for key in rules["data"]} == {
        "kube-rdma.io_IPPool",
        "kube-rdma.io_NodePolicy",
        "mellanox.com_NicClusterPolicy",
    }
    assert len(set(rules["data"].values())) == 1
