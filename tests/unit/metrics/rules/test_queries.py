"""Alerts and dashboards ask for nothing that agent and controller do not export."""

import re
from pathlib import Path

import pytest

from kube_rdma.install.installation import dashboards
from kube_rdma.metrics.rules import families
from kube_rdma_tools.metrics import rule_groups

RUNBOOK = Path(__file__).parents[4] / "docs/runbook.md"
RULES = {rule["alert"]: rule for group in rule_groups() for rule in group["rules"]}
BOARDS = dashboards()
LABELS = {family.name: set(family.labels) for family in families.FAMILIES}
for family in families.DURATION_FAMILIES:
    LABELS |= {
        f"{family.name}{end}": {*family.labels, "le"} for end in ("_bucket", "_sum", "_count")
    }
    del LABELS[family.name]
LABELS["up"] = set()  # Prometheus' own
OF_SCRAPES = {"instance", "node", "job", "namespace"}  # which Prometheus adds

# What PromQL has itself; anything else in an expression is a name or a label.
WORDS = {"and", "or", "unless", "on", "by", "bool", "group_right", "group_left"}
WORDS |= {"sum", "max", "rate", "increase", "histogram_quantile"}
WORDS |= {"last_over_time", "max_over_time", "min", "count", "label_join", "label_replace"}
MATCHING = r"\b(?:on|by|group_right|group_left) \(([^)]*)\)"
NAME = re.compile(r"(?<![\w$])[a-z_]\w*")


def asked(expression):
    """Metrics, and labels, that an expression names."""
    grouped = re.findall(MATCHING, expression)
    selected = re.findall(r"\{([^}]*)\}", expression)
    labels = {label for text in grouped for label in re.split(r",\s*", text) if label}
    labels |= {match for text in selected for match in re.findall(r"(\w+)\s*(?:=~|!=|=)", text)}
    plain = re.sub(rf'"[^"]*"|\[[^\]]*\]|\{{[^}}]*\}}|{MATCHING}', "", expression)
    return set(NAME.findall(plain)) - WORDS, labels


def wrong(expression):
    metrics, labels = asked(expression)
    known = OF_SCRAPES.union(*(LABELS.get(name, ()) for name in metrics))
    return (metrics - LABELS.keys()) | (labels - known)


def expressions():
    yield from ((name, rule["expr"]) for name, rule in RULES.items())
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            yield from ((f"{name}: {panel['title']}", t["expr"]) for t in panel["targets"])


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_an_expression_names_what_is_exported(name, expression):
    assert asked(expression)[0]
    assert not wrong(expression)


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        (
            "rate(node_infiniband_port_data_recieved_bytes_total[5m])",
            "node_infiniband_port_data_recieved_bytes_total",
        ),
        ('kube_rdma_card_healthy{colour="red"} == 0', "colour"),
        ("sum by (pod) (kube_rdma_card_healthy)", "pod"),
        ("kube_rdma_attach_duration_seconds > 1", "kube_rdma_attach_duration_seconds"),
    ],
)
def test_a_planted_mistake_is_named(expression, word):
    assert wrong(expression) == {word}


def test_legends_and_choices_are_labels():
    for board in BOARDS.values():
        for panel in board["panels"]:
            for target in panel["targets"]:
                metrics, _ = asked(target["expr"])
                known = OF_SCRAPES.union(*(LABELS[name] for name in metrics))
                assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known
        for choice in board["templating"]["list"][1:]:
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", choice["query"]).groups()
            assert label in LABELS[metric] | OF_SCRAPES


def test_variables_that_are_used_can_be_chosen():
    for board in BOARDS.values():
        names = {choice["name"] for choice in board["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z_]\w*)", str(board["panels"]))) - {"__rate_interval"}
        assert used <= names


@pytest.mark.parametrize("name", RULES)
def test_an_alert_says_what_it_is_and_what_to_do(name):
    rule = RULES[name]
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    sentences = {key: text for key, text in rule["annotations"].items() if key != "runbook_url"}
    assert sentences.keys() >= {"summary", "description"}
    for text in sentences.values():
        assert text.endswith(".")
        assert len(re.sub(r"\{\{.*?\}\}", "LABEL", text).split()) <= 25


@pytest.mark.parametrize("name", RULES)
def test_an_alert_names_its_node(name):
    """Whoever is called asks first: where? Those of the cluster have a namespace or a pool."""
    summary = RULES[name]["annotations"]["summary"]
    of_cluster = ("$labels.namespace $labels.job", "$labels.pool")
    assert any(word in summary for word in ("or $labels.node $labels.instance", *of_cluster))


def sections():
    """The runbook's sections by their headings."""
    parts = re.split(r"(?m)^### (KubeRdma\w+)$", RUNBOOK.read_text())
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", RULES)
def test_an_alert_leads_to_its_section_of_the_runbook(name):
    assert RULES[name]["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    section = sections()[name]
    assert [word for word in ("**Means**", "**Look**", "**Do**") if word not in section] == []


def test_the_runbook_has_no_section_of_an_alert_that_is_gone():
    assert sections().keys() == RULES.keys()


def test_a_threshold_that_nobody_measured_says_so():
    """Each number behind a comparison is a state, nothing at all, or called a guess."""
    for name, rule in RULES.items():
        compared = set(re.findall(r"[<>]=? (?:bool )?([0-9.]+)", rule["expr"])) - {"0"}
        assert bool(compared) is ("guess" in rule["annotations"].get("threshold", "")), name


def drawn_levels():
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", ())
            yield f"{name}: {panel['title']}", [step["value"] for step in steps], panel


def test_a_panel_says_which_of_its_levels_is_a_guess():
    """Everything above a first trace of something is a number that nobody measured."""
    least = 0.01
    for name, levels, panel in drawn_levels():
        guessed = [one for one in levels if one is not None and one > least]
        assert bool(guessed) is ("guess" in panel.get("description", "")), name


def test_a_grid_turns_labels_that_its_query_has():
    for _, _, panel in drawn_levels():
        for step in panel.get("transformations", ()):
            if step["id"] == "groupingToMatrix":
                options = step["options"]
                by = f"({options['rowField']}, {options['columnField']})"
                assert panel["targets"][0]["expr"].startswith(f"max by {by} ")
                assert panel["targets"][0]["format"] == "table"


def test_dashboards_have_a_uid_and_places_of_their_own():
    uids = [board["uid"] for board in BOARDS.values()]
    assert sorted(uids) == sorted(BOARDS)
    for board in BOARDS.values():
        places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
        assert len(set(places)) == len(places)
