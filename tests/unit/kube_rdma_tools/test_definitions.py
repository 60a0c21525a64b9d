"""The definitions in config are what the models make, by the rules of structural schemas."""

from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from kube_base.errors import Refused
from kube_rdma.cli.definitions import DEFINITIONS, OPERATOR_DEFINITIONS
from kube_rdma.ipam import ip_pool
from kube_rdma.lib.schema import definition, structural
from kube_rdma.lib.text.document import of_value
from kube_rdma_tools.definitions import files

ROOT = Path(__file__).parents[3]
FORBIDDEN = {"$ref", "$defs", "title", "examples", "anyOf", "const", "discriminator"}


@pytest.mark.parametrize("name", files())
def test_the_definitions_are_written_down(name):
    """`tools/crds` writes them."""
    assert files()[name] == (ROOT / name).read_text(encoding="utf-8")


def test_there_are_no_others():
    folders = ("config/crds", "config/operator", "docs/reference")
    written = {path for folder in folders for path in (ROOT / folder).iterdir()}
    assert {str(path.relative_to(ROOT)) for path in written} == set(files())


def nodes(schema):
    """Every schema in a schema."""
    yield schema
    for inner in schema.get("properties", {}).values():
        yield from nodes(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key])


@pytest.mark.parametrize("one", DEFINITIONS + OPERATOR_DEFINITIONS, ids=lambda one: one.kind)
def test_a_definition_keeps_the_rules(one):
    """Each node has a type, no key that the API server refuses, no null for a default."""
    (version,) = definition(one)["spec"]["versions"]
    found = list(nodes(version["schema"]["openAPIV3Schema"]))
    assert len(found) > 10
    metadata = version["schema"]["openAPIV3Schema"]["properties"]["metadata"]
    assert set(metadata) <= {"type", "properties"}
    assert set(metadata.get("properties", ())) <= {"name", "generateName"}
    for node in found:
        assert not FORBIDDEN & set(node), node
        assert "type" in node, node
        assert node.get("default", 1) is not None
        assert node.get("additionalProperties") is not False
    folder = "crds" if one in DEFINITIONS else "operator"
    assert yaml.load(files()[f"config/{folder}/{one.plural}.yaml"], yaml.CSafeLoader) == definition(
        one
    )


def paths(schema, path=""):
    """Where each schema in a schema stands, by the names of fields."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from paths(inner, f"{path}.{name}".removeprefix("."))
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from paths(schema[key], f"{path}[]")


OLD_NUMBERS = {
    "BandwidthCheck": {
        "spec.minGbps",
        "spec.maxMicroseconds",
        "status.lowest",
        "status.highest",
        "status.pairs[].figure",
        "status.suspects[].median",
        "status.suspects[].due",
    },
    "NodeReport": {"status.cards[].ports[].rateGbps", "status.rejected[].ports[].rateGbps"},
}
"""What the release before writes; server-side apply refuses a field that a schema does not have, so
without them its agents and controllers could write no status any more."""


@pytest.mark.parametrize("one", DEFINITIONS, ids=lambda one: one.kind)
def test_no_kind_has_floating_point_but_in_fields_that_go(one):
    """Kubernetes' API conventions; what is left says that it goes."""
    (version,) = definition(one)["spec"]["versions"]
    found = dict(paths(version["schema"]["openAPIV3Schema"]))
    numbers = {path for path, each in found.items() if each["type"] == "number"}
    assert numbers == OLD_NUMBERS.get(one.kind, set())
    for path in numbers:
        assert "it is removed in the next release" in " ".join(found[path]["description"].split())


def test_a_status_in_a_document_of_people_is_a_struct_with_its_fault():
    """`config check` gets whole objects, as kubectl shows them."""
    whole = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "p"}}
    whole["spec"] = {"ranges": [{"subnet": "10.0.0.0/24"}]}
    want = {"node": "n", "family": "IPv4", "count": 1, "address": "10.0.0.4"}
    assert ip_pool.load(of_value({**whole, "status": {"wants": [want], "news": 1}})).ranges
    for broken in ({"wants": [{**want, "count": "1"}]}, {"wants": [{**want, "address": "x"}]}, 7):
        with pytest.raises(Refused, match="status: kube-rdma does not write it so"):
            ip_pool.load(of_value({**whole, "status": broken}))


@pytest.mark.parametrize("one", DEFINITIONS, ids=lambda one: one.kind)
def test_kubectl_has_a_short_name_a_category_and_more_columns(one):
    """`kubectl get kube-rdma -o wide` shows all of the group."""
    said = definition(one)["spec"]
    assert said["names"]["categories"] == ["kube-rdma"]
    assert len(said["names"]["shortNames"]) == 1
    columns = said["versions"][0]["additionalPrinterColumns"]
    assert columns[-1]["name"] == "Age"
    assert {each.get("priority", 0) for each in columns} <= {0, 1}


def conditions():
    """The schema of status.conditions of each kind that has them, by the kind's name."""
    for one in DEFINITIONS + OPERATOR_DEFINITIONS:
        (version,) = definition(one)["spec"]["versions"]
        schemas = dict(paths(version["schema"]["openAPIV3Schema"]))
        if "status.conditions" in schemas:
            yield one.kind, schemas["status.conditions"]


def test_conditions_are_merged_by_their_type():
    """So a client that applies one condition takes no other away."""
    found = dict(conditions())
    assert {"IPPool", "NicClusterPolicy", "NodePolicy"} <= set(found)
    for schema in found.values():
        assert schema["x-kubernetes-list-map-keys"] == ["type"]


def test_a_choice_of_types_is_a_mistake_of_ours():
    """A structural schema cannot say it."""

    class Choice(BaseModel):
        value: int | str

    with pytest.raises(TypeError, match="no choice"):
        structural(Choice)
