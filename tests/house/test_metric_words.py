"""Each metric says what it counts in which unit, and each alert what is where and what to do.

HELP is all that Prometheus shows of a metric, and the two sentences are all that an alert sends to
a person; a dashboard's panels have their titles.
"""

import re

import pytest

from kube_base.frozen import replace
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.alerts import rule_groups
from kube_rdma.metrics.rules.dashboards import dashboards
from kube_rdma.model.metrics import MetricKind

from .test_descriptions import fault_of_text

RULES = {rule["alert"]: rule for group in rule_groups() for rule in group["rules"]}
PANELS = [(name, p["title"]) for name, board in dashboards().items() for p in board["panels"]]
LABELS = {family.name: family.labels for family in families.FAMILIES}
FEWEST = 4  # words of a sentence; fewer are a keyword
UNITS = {"seconds": "second", "bytes": "byte"}  # how names end, and what the text has to say then
NAMED = re.compile(r"\$labels\.(\w+)")
SUMMED = re.compile(r"\bby \(([^)]*)\)")
ADDED = re.compile(r"\bgroup_left \(([^)]*)\)")
OF_SCRAPES = {"instance", "node"}
METRIC = re.compile(r"\b(?:kube_rdma|node_infiniband)_\w+")
PARTS_OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")


def fault_of_metric(family):
    """What is wrong with the text of a metric, or None."""
    text = family.meaning
    if fault := fault_of_text(text):
        return fault
    if len(text.split()) < FEWEST:
        return f"is no sentence: {text}"
    if family.kind is MetricKind.COUNTER and not re.match(r"Number of |.* in seconds\.", text):
        return f"does not say what is counted: {text}"
    for end, unit in UNITS.items():
        if f"_{end}" in family.name and unit not in text.lower():
            return f"does not say its unit, {end}: {text}"
    return None


def fault_of_alert(rule):
    """What is wrong with the sentences of an alert, or None."""
    for part in ("summary", "description"):
        text = rule["annotations"].get(part, "")
        if fault := fault_of_text(text) if text else "is missing":
            return f"{part} {fault}"
        named = set(NAMED.findall(text))
        if not named:
            return f"{part} names no label: {text}"
        if strange := named - labels_of(rule["expr"]):
            return f"{part} names a label that its series lack, {min(strange)}: {text}"
    return None


def labels_of(expression):
    """The labels of the series that an expression leads to."""
    added = ADDED.search(expression)
    if added is None and (summed := SUMMED.search(expression)):
        return set(re.split(r",\s*", summed[1])) - {"le"}
    metric = METRIC.search(expression)[0]
    for part in PARTS_OF_A_HISTOGRAM:
        metric = metric if metric in LABELS else metric.removesuffix(part)
    return {*LABELS[metric], *OF_SCRAPES, *((added[1],) if added else ())}


def fault_of_title(text):
    """What is wrong with the title of a panel, or None."""
    return fault_of_text(f"{text}.") if len(text.split()) > 1 else f"is a keyword: {text}"


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_each_metric_says_what_it_counts(family):
    assert fault_of_metric(family) is None


@pytest.mark.parametrize("name", RULES)
def test_each_alert_says_what_is_where_and_what_to_do(name):
    assert fault_of_alert(RULES[name]) is None


@pytest.mark.parametrize(("board", "title"), PANELS)
def test_each_panel_has_a_title_in_words(board, title):
    assert fault_of_title(title) is None


def test_each_file_that_is_explained_is_exported():
    assert families.OF_FILES.keys() == families.OF_NODE.keys()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Of the bytes that came in those of the port.", "begins as a riddle"),
        ("Number of bytes received", "is no sentence"),
        ("Their timeouts.", "is no sentence"),
        ("Bytes that the port received.", "does not say what is counted"),
        ("Number of words received by the port.", "does not say its unit, bytes"),
    ],
)
def test_a_fault_of_a_metric_is_found(text, what):
    planted = replace(families.OF_NODE["port_rcv_data"], meaning=text)
    assert fault_of_metric(planted).startswith(what)


@pytest.mark.parametrize(
    ("part", "text", "what"),
    [
        ("summary", "", "summary is missing"),
        ("summary", "A port carries no data.", "summary names no label"),
        ("description", "Look at {{$labels.device}}", "description is no sentence"),
        (
            "description",
            "Check the cable of pod {{$labels.pod}}.",
            "description names a label that",
        ),
    ],
)
def test_a_fault_of_an_alert_is_found(part, text, what):
    rule = RULES["KubeRdmaPortDown"]
    planted = {**rule, "annotations": {**rule["annotations"], part: text}}
    assert fault_of_alert(planted).startswith(what)


def test_labels_that_were_summed_away_are_not_named():
    joined = "kube_rdma_card_healthy * on (card) group_left (name) max by (card, name) (x)"
    assert labels_of(joined) >= {"card", "name", "node"}
    assert labels_of("sum by (instance, le) (rate(kube_rdma_x_bucket[5m]))") == {"instance"}


@pytest.mark.parametrize("title", ["Timeouts", "Of the port"])
def test_a_fault_of_a_title_is_found(title):
    assert fault_of_title(title)
