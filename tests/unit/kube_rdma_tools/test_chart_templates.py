"""Blueprints as templates of Helm, and the constants in them."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kube_rdma.model.install import Blueprint, Hole, Spread, When, joined, unless
from kube_rdma_tools.chart_templates import template
from kube_rdma_tools.yaml_constants import WIDTH, assigned, in_line, scalar


def lines(body, **options):
    """The lines of an object without the head of its file."""
    text = template([Blueprint(body, **options)])
    return text.partition("---\n")[2].splitlines()


def test_a_field_that_may_be_left_out_does_not_share_the_line_of_the_dash():
    assert lines({"list": [{"a": When("b.c", 1), "d": 2}]}) == [
        "list:",
        "-",
        "{{- if $values.b.c }}",
        "  a: 1",
        "{{- end }}",
        "  d: 2",
    ]


@pytest.mark.parametrize(
    ("node", "head"),
    [
        (When("b == x", 1), '{{- if eq $values.b "x" }}'),
        (unless("b == x", 1), '{{- if not (eq $values.b "x") }}'),
        (When("c or b == x", 1), '{{- if or $values.c (eq $values.b "x") }}'),
        (unless("c or d", 1), "{{- if not (or $values.c $values.d) }}"),
    ],
)
def test_a_condition_is_one_of_go_s_templates(node, head):
    assert lines({"a": node}) == [head, "a: 1", "{{- end }}"]


def test_values_are_written_as_json():
    """A text of several by one action, which prints a sign of its own as it is."""
    assert lines({"a": joined("5% ", Hole("b"))}) == ['a: {{ printf "5%% %v" $values.b | toJson }}']
    assert lines({"a": Hole("b"), "c": joined("x", Hole("d"))}) == [
        "a: {{ $values.b | toJson }}",
        'c: {{ printf "x%v" $values.d | toJson }}',
    ]


def test_all_entries_of_a_list_or_an_object_stand_among_others():
    """Of an object those that it does not name itself."""
    assert lines({"list": [1, Spread("a.b")], "map": {"c": 1, "more": Spread("a")}}) == [
        "list:",
        "- 1",
        "{{- range $values.a.b }}",
        "- {{ . | toJson }}",
        "{{- end }}",
        "map:",
        "  c: 1",
        '{{- range $name, $value := omit $values.a "c" }}',
        "  {{ $name | toJson }}: {{ $value | toJson }}",
        "{{- end }}",
    ]


def test_neighbours_share_a_condition():
    assert lines({"list": [1, When("b", [2, When("c", [3], [4, Hole("d")])])]}) == [
        "list:",
        "- 1",
        "{{- if $values.b }}",
        "- 2",
        "{{- if $values.c }}",
        "- 3",
        "{{- else }}",
        "- 4",
        "- {{ $values.d | toJson }}",
        "{{- end }}",
        "{{- end }}",
    ]


def test_an_object_has_one_line_for_all_its_conditions():
    text = template([Blueprint({"a": 1}, conditions=("b", "c or d == x"))])
    assert '{{- if and $values.b (or $values.c (eq $values.d "x")) }}\n---\na: 1\n' in text


def test_notes_are_annotations():
    assert lines({"metadata": {"name": "a"}}, notes={"helm.sh/hook": "test"}) == [
        "metadata:",
        "  name: a",
        "  annotations:",
        "    helm.sh/hook: test",
    ]


def test_a_template_of_another_program_is_printed_as_it_is():
    """Grafana has them, too: what Helm makes of this is the text itself."""
    assert lines({"a": "{{ b }}"}) == ['a: "{{ "{{" }} b }}"']


def test_a_text_inside_of_an_action_that_helm_would_read_is_refused():
    with pytest.raises(ValueError, match="template"):
        template([Blueprint({"a": joined("{{ b }}", Hole("c"))})])


CHARACTERS = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])
CONSTANTS = st.text(CHARACTERS) | st.text("ab: #-\n{", max_size=12) | st.booleans() | st.integers()


@given(st.dictionaries(st.text("ab.:/-"), CONSTANTS | st.lists(CONSTANTS)))
def test_whatever_is_written_is_read_again(body):
    text = "".join(f"{line}\n" for line in lines(body)).replace('{{ "{{" }}', "{{")
    assert (yaml.safe_load(text) or {}) == body


# Constants look as people write them, and no parser reads anything else.


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
