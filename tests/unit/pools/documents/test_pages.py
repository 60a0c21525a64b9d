"""docs/config.md and docs/schema: what they show is what is read."""

import json
import re
from pathlib import Path

import pytest

from kube_rdma.pools.config import parse_config
from kube_rdma.pools.documents.config import DIALECTS, schema

DOCS = Path(__file__).parents[4] / "docs"
EXAMPLES = re.findall(r"```(?:json|yaml)\n(.*?)```", (DOCS / "config.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_schema_is_written_down(name):
    assert schema(name) + "\n" == (DOCS / "schema" / f"{name}.json").read_text()


@pytest.mark.parametrize("name", DIALECTS)
def test_the_schema_names_every_field(name):
    text = json.loads(schema(name))
    assert DIALECTS[name].key in text["properties"]
    assert text["additionalProperties"] is False


@pytest.mark.parametrize("name", DIALECTS)
def test_parts_of_the_schema_have_no_docstrings(name):
    parts = json.loads(schema(name)).get("$defs", {})
    assert not [part for part, each in parts.items() if "description" in each]


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_of_the_page_is_read_without_a_warning(text):
    found = parse_config(text.encode(), "example")
    assert found.pools
    assert not found.warnings


def test_the_page_has_an_example_of_each_dialect():
    assert len(EXAMPLES) == len(DIALECTS)
    for example, dialect in zip(EXAMPLES, DIALECTS.values(), strict=True):
        assert dialect.key in example
