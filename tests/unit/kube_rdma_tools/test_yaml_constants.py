"""Constants look as people write them, and no parser reads anything else."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kube_rdma_tools.yaml_constants import WIDTH, assigned, in_line, scalar


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("v1", "v1"),
        ("--role=plugin", "--role=plugin"),
        ("helm.sh/hook", "helm.sh/hook"),
        ("system:openshift:scc:privileged", "system:openshift:scc:privileged"),
        ("Left out", "Left out"),
        ("off", '"off"'),
        ("Y", '"Y"'),
        ("10%", '"10%"'),
        ("1e3", '"1e3"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        ("a  b", '"a  b"'),
        ("", '""'),
        ("*", '"*"'),
        (True, "true"),
        (9443, "9443"),
        ({}, "{}"),
    ],
)
def test_a_text_is_quoted_where_it_has_to_be(value, text):
    assert scalar(value) == text


def test_a_short_list_of_words_is_a_line():
    assert in_line(["", "get", "off"], WIDTH) == '["", get, "off"]'
    assert not in_line(["get", "list"], 5)
    assert not in_line(["a:b"], WIDTH)
    assert not in_line([{}], WIDTH)


CHARACTERS = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS) | st.text("ab: #-\n'", min_size=90, max_size=300)


@given(TEXTS, st.sampled_from([0, 4]))
@example("a\x85\nb\n", 0)
@example("a\n\x1b\n", 4)
def test_a_text_is_read_as_it_was(text, indent):
    written = [f"{' ' * indent}- a", *assigned(f"{' ' * indent}-", text, indent)]
    assert yaml.safe_load("".join(f"{line}\n" for line in written)) == ["a", text]


def test_a_long_text_is_folded_and_one_of_lines_stays():
    words = " ".join(["word"] * 40)
    head, *lines = assigned("a:", words, 0)
    assert head == "a: >-"
    assert max(map(len, lines)) <= WIDTH
    assert list(assigned("a:", "{\n\n}\n", 0)) == ["a: |", "  {", "", "  }"]
