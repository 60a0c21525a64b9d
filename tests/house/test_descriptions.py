"""Each field that users write or read has a sentence: `kubectl explain` shows nothing else of it.

So has each value of the Helm chart.

The form is that of Kubernetes' API conventions: the field's name first, then what it is, its unit,
what it is when it is left out, an example.
"""

import json
import re

import pytest

from kube_rdma.claims.parameters import ClaimParametersObject
from kube_rdma.cli.definitions import DEFINITIONS, OPERATOR_DEFINITIONS
from kube_rdma.lib.schema import definition, structural
from kube_rdma.pools.documents.config import DIALECTS, untitled
from kube_rdma_tools.chart import chart_files

KINDS = {each.kind: each for each in (*DEFINITIONS, *OPERATOR_DEFINITIONS)}
LONGEST = 60  # words of all sentences of one field
RIDDLES = ("Of", "By", "Nor", "What", "That", "Between", "The whole")
INSIDE = re.compile(r"\bDESIGN\b|\bdecision \d|\bseeds?\b", re.IGNORECASE)


def fields(schema, path):
    """The path, name and description of each field below a schema."""
    parts = [*schema.get("$defs", {}).items(), ("", schema)]
    for part, each in parts:
        yield from _below(each, f"{path}{'/' * bool(part)}{part}")


def _below(schema, path):
    for name, each in schema.get("properties", {}).items():
        yield f"{path}.{name}", name, each.get("description", "")
        yield from _below(each, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _below(schema[key], f"{path}[]")


def fault(name, text):
    """What is wrong with the sentence of a field, or None."""
    if not text:
        return "has no sentence"
    if re.split(r"[\s,:]", text, maxsplit=1)[0].strip("`") != name:
        return f"does not begin with its name: {text}"
    return fault_of_text(text)


def fault_of_text(text):
    """What is wrong with a text that users see, or None."""
    if text.startswith(tuple(f"{word} " for word in RIDDLES)):
        return f"begins as a riddle: {text}"
    if INSIDE.search(text):
        return f"speaks of the makers' papers: {text}"
    if not text.endswith("."):
        return f"is no sentence: {text}"
    if len(text.split()) > LONGEST:
        return f"is too long: {text}"
    return None


def faults(schema, path):
    """All that is wrong below a schema, a line each."""
    found = ((where, fault(name, text)) for where, name, text in fields(schema, path))
    return [f"{where} {what}" for where, what in found if what]


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_of_a_kind_has_its_sentence(kind):
    (version,) = definition(KINDS[kind])["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    without = [line for line in faults(schema, kind) if not line.startswith(f"{kind}.metadata has")]
    assert without == []  # the API server describes metadata itself, and takes no other words
    assert fault(kind, schema["description"]) is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_field_of_a_configuration_has_its_sentence(dialect):
    assert faults(untitled(DIALECTS[dialect].model), dialect) == []


def test_each_parameter_of_a_claim_has_its_sentence():
    schema = structural(ClaimParametersObject)
    assert faults(schema, "ClaimParameters") == []
    assert fault("ClaimParameters", schema["description"]) is None


def test_each_value_of_the_chart_has_its_sentence():
    schema = json.loads(chart_files()["values.schema.json"])
    assert faults(schema, "chart") == []
    texts = [each["description"] for each in (schema, *schema["$defs"].values())]
    assert not list(filter(None, map(fault_of_text, texts)))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has no sentence"),
        ("The size of a block.", "does not begin with its name"),
        ("blockSize is how many addresses a node takes at once", "is no sentence"),
        ("blockSize is 16 (DESIGN, decision 2).", "speaks of the makers' papers"),
        ("blockSize is that of the seed.", "speaks of the makers' papers"),
        ("blockSize is " + "very " * 60 + "large.", "is too long"),
    ],
)
def test_a_fault_is_found(text, what):
    planted = {"properties": {"spec": {"description": "spec is it.", "properties": {}}}}
    planted["properties"]["spec"]["properties"]["blockSize"] = {"description": text}
    (found,) = faults(planted, "Kind")
    assert found.startswith(f"Kind.spec.blockSize {what}")


@pytest.mark.parametrize("word", RIDDLES)
def test_a_riddle_is_found(word):
    assert fault_of_text(f"{word} message.").startswith("begins as a riddle")


def test_a_good_sentence_passes():
    assert fault("blockSize", "blockSize is how many addresses a node takes at once.") is None
