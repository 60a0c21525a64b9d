"""A nodeAffinity judged as the scheduler does (component-helpers, corev1/nodeaffinity)."""

import pytest

from kube_rdma.operator.rules.placement import REQUIRED, allows

LABELS = {"rack": "7", "zone": "a"}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator, *values):
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


TERMS = [
    (expression("zone", "In", "a", "b"), True),
    (expression("zone", "In", "b"), False),
    (expression("none", "In", "a"), False),
    (expression("zone", "NotIn", "b"), True),
    (expression("none", "NotIn", "b"), True),
    (expression("zone", "NotIn", "a"), False),
    (expression("zone", "Exists"), True),
    (expression("none", "Exists"), False),
    (expression("none", "DoesNotExist"), True),
    (expression("zone", "DoesNotExist"), False),
    (expression("rack", "Gt", "6"), True),
    (expression("rack", "Gt", "7"), False),
    (expression("rack", "Lt", "8"), True),
    (expression("zone", "Gt", "1"), False),
    (expression("none", "Lt", "1"), False),
    (expression("rack", "Lt", "9" * 5000), False),
    (field("In", "node-1"), True),
    (field("NotIn", "node-1"), False),
    ({}, False),
]


@pytest.mark.parametrize(("term", "holds"), TERMS)
def test_a_term_holds_as_for_the_scheduler(term, holds):
    assert allows({REQUIRED: {"nodeSelectorTerms": [term]}}, "node-1", LABELS) is holds


def test_all_expressions_of_a_term_and_any_term():
    both = {**expression("zone", "Exists"), **field("In", "node-2")}
    assert not allows({REQUIRED: {"nodeSelectorTerms": [both]}}, "node-1", LABELS)
    either = [both, expression("rack", "Exists")]
    assert allows({REQUIRED: {"nodeSelectorTerms": either}}, "node-1", LABELS)


@pytest.mark.parametrize("affinity", [None, {}])
def test_without_one_every_node_is_allowed(affinity):
    assert allows(affinity, "node-1", LABELS)
