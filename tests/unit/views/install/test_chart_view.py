"""What the templates of the chart look like where YAML and Go's templates could misread them."""

import pytest

from kube_rdma.model.install.blueprint import Blueprint, Hole, When, joined, unless
from kube_rdma.views.install.chart import template


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
    assert lines({"a": Hole("b"), "c": joined("x", Hole("d"))}) == [
        "a: {{ $values.b | toJson }}",
        'c: {{ list "x" ($values.d | toString) | join "" | toJson }}',
    ]


def test_notes_are_annotations():
    assert lines({"metadata": {"name": "a"}}, notes={"helm.sh/hook": "test"}) == [
        "metadata:",
        '  name: "a"',
        "  annotations:",
        '    "helm.sh/hook": "test"',
    ]


def test_a_template_of_another_program_is_printed_as_it_is():
    """Grafana has them, too: what Helm makes of this is the text itself."""
    assert lines({"a": "{{ b }}"}) == ['a: "{{ "{{" }} b }}"']


def test_a_text_inside_of_an_action_that_helm_would_read_is_refused():
    with pytest.raises(ValueError, match="template"):
        template([Blueprint({"a": joined("{{ b }}", Hole("c"))})])
