"""A report survives its way through the API server, has an end, and says the worst first."""

import json
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_rdma.cli.definitions import DEFINITIONS
from kube_rdma.lib.schema import definition
from kube_rdma.model.card import CardId
from kube_rdma.model.device import PciAddress
from kube_rdma.model.kubernetes import LONGEST
from kube_rdma.model.measures import figure_text
from kube_rdma.model.reports import (
    NodeReport,
    NodeReportStatus,
    PendingMode,
    ReportedCard,
    ReportedPool,
    ReportedPort,
)
from kube_rdma.reports.node_report import report_status

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
PORT = ReportedPort("mlx5_0", 1, "ACTIVE", "InfiniBand", "400G", netdev="ib0")
CARD = ReportedCard(CardId("0000:81:00.0"), "mlx5_0", ("rdma/hca",), 0, (PORT,))
POOL = ReportedPool("rdma/hca", "hca", 1000, 1000, 1)
WELL = NodeReport("0.1.0", (CARD,), (), (POOL,))
ILL = replace(WELL, cards=(replace(CARD, reasons=("no port is ACTIVE",)),))

texts = st.text(st.characters(codec="utf-8"), max_size=2 * LONGEST)
words = st.text("abcdefgh/.:0123", min_size=1, max_size=300)
ports = st.builds(
    ReportedPort,
    words.map(lambda text: text[:253]),
    st.integers(0, 255),
    st.just("ACTIVE"),
    st.just("Ethernet"),
    st.none() | st.floats(0, 3200).map(lambda number: figure_text(number, latency=False)),
    st.none() | st.floats(0, 3200),
    st.none() | st.just("eth0"),
)
cards = st.builds(
    ReportedCard,
    words.map(lambda text: CardId(text[:63])) | st.just(CardId(PciAddress("0000:81:00.0"))),
    words | st.just(PciAddress("0000:81:00.0")),
    st.lists(st.just("rdma/hca"), max_size=20).map(tuple),
    st.none() | st.integers(0, 7),
    st.lists(ports, max_size=20).map(tuple),
    st.lists(texts, max_size=12).map(tuple),
    st.booleans(),
    degraded=texts,
)
reports = st.builds(
    NodeReport,
    st.just("0.1.0"),
    st.lists(cards, max_size=6).map(tuple),
    st.lists(cards, max_size=3).map(tuple),
    st.lists(st.just(POOL), max_size=70).map(tuple),
    st.lists(st.builds(PendingMode, st.just("rdma/hca"), st.just("hca"), texts)).map(tuple),
    st.lists(texts, max_size=20).map(tuple),
    st.lists(texts, max_size=20).map(tuple),
)


def fits(schema, value, path="status"):
    """What of a value a schema's limits forbid, as the API server would say it."""
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield f"{path}: {len(value)} characters"
    if schema["type"] == "array":
        if len(value) > schema.get("maxItems", 10**9):
            yield f"{path}: {len(value)} items"
        for number, item in enumerate(value):
            yield from fits(schema["items"], item, f"{path}[{number}]")
    if schema["type"] == "object":
        for name, part in value.items():
            yield from fits(schema["properties"][name], part, f"{path}.{name}")


@cache
def schema():
    """The schema of the status in the definition."""
    (kind,) = (each for each in DEFINITIONS if each.kind == "NodeReport")
    (version,) = definition(kind)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]["status"]


@given(reports)
def test_whatever_a_node_has_its_report_fits_the_schema(report):
    """And comes back as the same status: else every look would write it anew."""
    status = report_status(None, report, NOW)
    document = json.loads(msgspec.json.encode(status))
    assert list(fits(schema(), document)) == []
    read = decoded(json.dumps(document), NodeReportStatus)
    assert read == status
    assert report_status(read, report, LATER) == status


@given(reports)
def test_what_is_read_is_what_was_reported_as_far_as_it_fits(report):
    read = report_status(None, report, NOW)
    assert [card.id for card in read.cards] == [card.id for card in report.cards]
    assert len(read.ill) == len([c for c in report.cards if (c.resources or c.gone) and c.reasons])
    assert read.version == report.version


@pytest.mark.parametrize(
    ("report", "kind", "reason"),
    [
        (WELL, None, "AsConfigured"),
        (ILL, "CardsHealthy", "CardsUnhealthy"),
        (replace(WELL, refusals=("no",)), "ConfigurationAccepted", "Refused"),
        (replace(WELL, troubles=("twice",)), "ConfigurationAccepted", "Conflict"),
        (
            replace(WELL, pending=(PendingMode("rdma/hca", "shared", "wait"),)),
            "ConfigurationApplied",
            "ModeChangePending",
        ),
    ],
)
def test_ready_says_what_the_condition_says_that_does_not_hold(report, kind, reason):
    conditions = {each.type: each for each in report_status(None, report, NOW).conditions}
    assert len(conditions) == 4
    assert conditions["Ready"].reason == reason
    assert (conditions["Ready"].status == "True") is (kind is None)
    assert {t for t, c in conditions.items() if c.status != "True"} == (
        {"Ready", kind} - {None} if kind else set()
    )


def test_a_condition_has_the_time_of_its_last_transition():
    after = report_status(report_status(None, WELL, NOW), ILL, LATER)
    times = {each.type: each.last_transition_time for each in after.conditions}
    assert (times["CardsHealthy"], times["ConfigurationApplied"]) == (LATER, NOW)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_column_is_short_and_says_how_much_it_leaves_out(count):
    pools = tuple(replace(POOL, resource=f"rdma/hca_of_rail_{n}") for n in range(count))
    many = replace(ILL, pools=pools, refusals=tuple(f"refusal {n}" for n in range(min(count, 16))))
    summary = report_status(None, many, NOW).summary
    assert len(summary.pools) <= 80
    assert summary.pools.startswith("rdma/hca_of_rail_0 1000/1000")
    assert ("more" in summary.pools) is (count > 2)
    assert summary.problems == f"refusal 0 (+{min(count, 16)})"


def test_a_report_of_an_agent_of_the_release_before_is_read():
    """Its rates are numbers; the next look writes them in the new form."""
    status = report_status(None, WELL, NOW)
    document = json.loads(msgspec.json.encode(status))
    port = document["cards"][0]["ports"][0]
    assert port.pop("rate") == "400G"
    port["rateGbps"] = 400.0
    assert list(fits(schema(), document)) == []
    read = decoded(json.dumps(document), NodeReportStatus)
    (card,) = read.cards
    assert card.ports[0].gbps == PORT.gbps == 400
    assert report_status(read, read, LATER) == read
    assert read != status


def test_a_status_of_a_later_version_is_read():
    """What it adds is not a fault."""
    document = json.loads(msgspec.json.encode(report_status(None, WELL, NOW)))
    document["news"] = {"more": 1}
    assert isinstance(decoded(json.dumps(document), NodeReportStatus), NodeReportStatus)
