"""Files of manifests: each document for itself, and what kubectl takes with a remark."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.lib.text import yaml_manifests
from kube_rdma.lib.text.document import ManifestDocument
from kube_rdma.lib.text.reader import read, read_all

GOOD = st.sampled_from(["a: 1\n", "- 1\n", "b: {c: [d]}\n", "x: |\n  text\n  ---\n", '{"a": 1}\n'])
BAD = st.sampled_from(["a: [\n", "a: b: c\n", "x:\n\t- 1\n", "- !Ref a\n", "a: *b\n", "a: \x01\n"])


def only(text):
    (document,) = read_all(text.encode(), "f")
    return document


@given(st.lists(st.tuples(st.booleans(), GOOD, BAD), min_size=1, max_size=6))
def test_one_unreadable_document_hides_no_other(listed):
    """Good ones have the values and lines that they have alone, each bad one its own sentence."""
    texts = [good if is_good else bad for is_good, good, bad in listed]
    parts = read_all(("---\n" + "---\n".join(texts)).encode(), "f")
    assert len(parts) == len(listed)
    line = 2
    for part, text, (is_good, _, _) in zip(parts, texts, listed, strict=True):
        if is_good:
            assert isinstance(part, ManifestDocument)
            assert part.value == yaml.safe_load(text)
            assert part.place(()).line == line
        else:
            assert isinstance(part, Refused)
            assert line <= int(part.where.split(":")[1]) <= line + text.count("\n")
            assert part.remedy
        line += text.count("\n") + 1


def test_of_a_key_given_twice_the_last_value_counts_and_both_lines_are_told():
    document = only("a:\n  b: {c: 1}\n  b: {d: 2}\n")
    assert document.value == {"a": {"b": {"d": 2}}}
    assert document.where(("a", "b", "d")) == "f:3:10: a.b.d"
    assert document.where(("a", "b", "c")) == "f:3:6: a.b.c", "nothing stays of the first"
    (remark,) = document.remarks
    assert remark.where == "f:3:3: a.b"
    assert remark.problem == "the field is given twice, and the value in line 2 is lost"


def test_very_many_keys_given_twice_are_told_up_to_a_number():
    document = only("".join(f"a{n}: 1\na{n}: 2\n" for n in range(500)))
    assert len(document.remarks) == 20
    assert set(document.value.values()) == {2}


def test_aliases_and_merge_keys_mean_what_they_mean_to_kubectl():
    text = "base: &b {x: 1, y: [2]}\nmore: &m {x: 5, z: 6}\none: *b\ntwo: {<<: [*b, *m], x: 3}\n"
    document = only(text)
    assert document.value == yaml.safe_load(text)
    assert document.where(("one", "y", 0)) == "f:3:6: one.y[0]"
    (remark,) = document.remarks
    assert remark.where == "f:3:6: one"
    assert remark.problem == '3 aliases are read as what the anchor marks, here "*b"'
    with pytest.raises(Refused, match="aliases"):
        read(text.encode(), "f")


def test_a_short_text_that_means_a_long_one_is_refused():
    bomb = "a0: &a0 [1, 1]\n" + "".join(
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)
    )
    deep = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [[*a{n - 1}]]\n" for n in range(1, 60))
    for text, words in ((bomb, "stand for more than 100000"), (deep, "more than 64 levels deep")):
        fault = only(text)
        assert isinstance(fault, Refused)
        assert words in fault.problem


@pytest.mark.parametrize(("values", "is_read"), [(2, True), (3, False)])
def test_aliases_stand_for_so_many_values_and_no_more(monkeypatch, values, is_read):
    """A list is one value more than it has."""
    monkeypatch.setattr(yaml_manifests, "MOST_REPEATED", 3)
    assert isinstance(only(f"a: &a {[1] * values}\nb: *a\n"), ManifestDocument) == is_read


@pytest.mark.parametrize("text", ["a: *b\nb: &b 1\n", "a: &a [*a]\n"])
def test_an_alias_comes_behind_its_anchor(text):
    fault = only(text)
    assert isinstance(fault, Refused)
    assert fault.problem.startswith("no anchor before the alias is called")


def test_tags_of_yaml_are_read_and_others_refused():
    assert only("a: !!str 1\nb: !!int 2\nc: !!map {d: 1}\n").value == {
        "a": "1",
        "b": 2,
        "c": {"d": 1},
    }
    assert "tags" in only("a: !Ref b\n").problem


def test_directives_dots_comments_and_blanks_make_no_document():
    text = "%YAML 1.1\n---\na: 1\n...\n---\n# nothing\n\n---\n--- # c\n---\nb: 2\n---"
    first, second = read_all(text.encode(), "f")
    assert (first.value, second.value) == ({"a": 1}, {"b": 2})
    assert second.where(("b",)) == "f:11:4: b"


def test_a_wrong_indentation_is_called_so():
    fault = only("a:\n  b: 1\n   c: 2\n")
    assert fault.where == "f:3:5"
    assert fault.remedy.startswith("Indent this line as its neighbours")


@given(st.recursive(st.integers() | st.booleans() | st.none(), lambda s: st.lists(s, max_size=3)))
def test_json_is_one_document(value):
    document = only(json.dumps({"a": value}))
    assert (document.value, document.remarks) == ({"a": value}, ())
