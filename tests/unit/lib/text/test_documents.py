"""Reading JSON and YAML: values, places, and never an exception of another kind."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.lib.text import yaml_manifests
from kube_rdma.lib.text.document import MAX_DEPTH, Document, TextPosition, of_value
from kube_rdma.lib.text.reader import read
from kube_rdma.model.pools import Mode
from kube_rdma.pools.documents.config import parse

# All that JSON can hold, less what the module's docstring says this reader does not take.
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Zl", "Zp"]), max_size=50)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
)
MODES = st.sampled_from(["hca", "HCA", "sriov", None, 1])
NEARLY = st.dictionaries(st.sampled_from(["mode", "Mode", "x"]), MODES | JSON, max_size=3)
PIECES = st.sampled_from([*'{}[]:,"\\ 1-.eé', "true", "null", '"a"', '"b":', "\n", "[]]", "{}]"])
GARBAGE = st.text(st.sampled_from("{}[]:,\"' \n\t-#&*!?|>%@`\\\x00éhca")).map(str.encode)


def outcome(data):
    """The pools, or the refusal; anything else fails the test."""
    try:
        return parse(data, "file").pools
    except Refused as refused:
        return refused


@given(st.binary(max_size=200) | GARBAGE | NEARLY.map(lambda v: json.dumps(v).encode()))
@example(b"%YAML 9.9\n---\nmode: hca")
@example(b"a: &a [*a]")
@example(b"!<tag:yaml.org,2002:str> x")
@example(b"mode: |\n  hca")
@example(b"1" * 5000)
@example(b"\xef\xbb\xbf\x00")
def test_any_text_makes_pools_or_a_refusal(data):
    result = outcome(data)
    if isinstance(result, Refused):
        assert str(result).startswith("file:")
        assert result.remedy
    else:
        assert [spec.mode for spec in result] == [Mode.HCA]


@given(NEARLY)
def test_the_dialect_takes_one_value_only(value):
    assert (value == {"mode": "hca"}) == (
        not isinstance(outcome(json.dumps(value).encode()), Refused)
    )


@given(JSON, st.sampled_from([None, 1, "\t"]), st.text(" \t\r\n", max_size=4))
@example(1e22, None, "")
@example(-0.0, None, "")
@example({"a": [{"b": {}}], "": "yes"}, "\t", "\t\n\t")
def test_json_is_read_as_json_reads_it(value, indent, before):
    """With tabs as indentation and in front too, as long as a bracket opens the document."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = before + text if text[0] in "[{" else text
    assert read(text.encode(), "file").value == json.loads(text)


def both(text):
    """The document by way of JSON, if it is JSON, and by the parser of YAML."""
    results = []
    for reader in (read, lambda data, source: yaml_manifests.read(data.decode(), data, source)):
        try:
            results.append(reader(text.encode(), "file"))
        except Refused as refused:
            results.append(str(refused))
    return results


@given(JSON, st.sampled_from([None, 1, 3]), st.booleans())
@example({"a\\b": ["\n", "é", 1e22, {"b": [[], {}]}]}, 1, True)
def test_json_has_the_values_and_places_of_yaml(value, indent, ascii_only):
    """Two readers, one document: nobody sees which of them read it."""
    json_reader, parser = both(json.dumps([value], indent=indent, ensure_ascii=ascii_only))
    assert json_reader == parser


def test_json_without_a_catch_needs_no_parser_of_yaml(monkeypatch):
    monkeypatch.setattr(yaml_manifests, "read", None)
    assert read(b'{"a": [1, "b"], "c": {}}', "file").value == {"a": [1, "b"], "c": {}}


@given(st.lists(PIECES).map("".join))
@example('{"a" : 1}')
@example('{"a": 1,}')
@example('{"a"\n: 1}')
@example('{"a": 1, "a": 2}')
@example('["\\ud83d\\ude00"]')
@example('["\\x41"]')
@example("[1] x")
@example("[1]\t")
def test_what_is_nearly_json_is_read_and_refused_as_yaml(text):
    json_reader, parser = both(f"[{text}")
    assert json_reader == parser


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mode: hca", {"mode": "hca"}),
        ("a: [yes, no, on, ~, 'true', true]", {"a": ["yes", "no", "on", None, "true", True]}),
        (
            "a: [1:30, 0x10, 1_000, 2001-01-01, 017]",
            {"a": ["1:30", "0x10", "1_000", "2001-01-01", 17]},
        ),
        ("a: [.5, 1., 1e3, '1', -2]", {"a": [0.5, 1.0, 1000.0, "1", -2]}),
        ("<<: 1", {"<<": 1}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("---\nmode: hca\n...\n", {"mode": "hca"}),
        ("a:\n- b: 1\n", {"a": [{"b": 1}]}),
    ],
)
def test_yaml_means_what_it_means_since_1_2(text, value):
    assert read(text.encode(), "file").value == value


def test_places_are_counted_as_editors_count():
    document = read('{"ä": "ö", "b": [1, {"c": 2}]}'.encode(), "file")
    assert document.values[("ä",)] == TextPosition(1, 7)
    assert document.keys[("b",)] == TextPosition(1, 12)
    assert document.values[("b", 1, "c")] == TextPosition(1, 27)
    assert document.where(("b", 1, "c")) == "file:1:27: b[1].c"


def test_what_is_not_there_has_the_place_of_what_holds_it():
    document = read(b"a:\n  b: 1\n", "file")
    assert document.where(("a", "x")) == "file:2:3: a.x"
    assert document.where(("y",)) == "file:1:1: y"
    document = of_value({"a": {"b": 1}, "c": 2})
    assert document.place(("a", "x")).line < document.place(("c", "x")).line


def test_depth_is_bounded_not_forbidden():
    assert isinstance(read(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "file"), Document)
    with pytest.raises(Refused, match="deep"):
        read(b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2), "file")


@pytest.mark.parametrize(
    "text", ['{"mode": "hca"}', '{\n"mode" : "hca"\n}\n', "mode: hca", "{mode: hca,}"]
)
def test_the_scc_document_asks_for_one_pool(text):
    (spec,) = parse(text.encode(), "config.json").pools
    assert spec.mode is Mode.HCA
    assert spec.source.startswith("config.json:")


def test_the_source_of_a_wish_is_its_line():
    pools = parse(b'{\n"mode" : "hca"\n}\n', "c").pools
    assert [pool.source for pool in pools] == ["c:2:10: mode"]
