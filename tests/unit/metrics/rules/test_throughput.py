"""Rates between two scrapes: never negative, never of a counter that began anew, nobody's twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.throughput import busiest, rates, totals
from kube_rdma.model.metrics import AgentScrape, ScrapedSample, TrafficKey, TrafficTotals

PORT = {"device": "mlx5_0", "port": "1"}
POD = {"namespace": "ns", "pod": "train-0", "container": "worker"}
ON_NODE, OF_POD = TrafficKey("mlx5_0", "1"), TrafficKey("mlx5_0", "1", "ns", "train-0", "worker")
COUNT = st.none() | st.integers(0, 2**64 - 1).map(float)
TOTALS = st.builds(
    TrafficTotals,
    received=COUNT,
    sent=COUNT,
    errors=st.dictionaries(st.sampled_from(["symbol_error", "link_downed"]), st.floats(0, 1e9)),
    link=st.none() | st.just(1.25e10),
)
SCRAPES = st.builds(
    AgentScrape,
    st.just("node-1"),
    when=st.floats(0, 1e6),
    totals=st.dictionaries(st.sampled_from([ON_NODE, OF_POD]), TOTALS),
)


def sample(family, value, **labels):
    return ScrapedSample(family.name, labels, value)


@given(st.none() | SCRAPES, SCRAPES)
def test_no_rate_is_negative_or_of_a_counter_that_began_anew(before, now):
    rows = list(rates(before, now))
    assert {row.key for row in rows} == set(now.totals)
    for row in rows:
        first = before.totals.get(row.key) if before else None
        for rate, old, new in (
            (row.received, first and first.received, row.now.received),
            (row.sent, first and first.sent, row.now.sent),
        ):
            if rate is None:
                continue
            assert rate >= 0
            assert old is not None
            assert old <= new
            assert rate == pytest.approx((new - old) / (now.when - before.when))
        assert all(pace > 0 for pace in row.errors.values())


@given(SCRAPES)
def test_without_a_scrape_before_nothing_moves(now):
    for before in (None, replace(now, totals={}), now):
        for row in rates(before, now):
            assert (row.received, row.sent, row.errors) == (None, None, {})


def test_names_of_node_exporter_vke_and_drivers_are_the_same_traffic():
    """In bytes; files of mlx5 count words, of which the agent has made bytes."""
    for table, labels, key in (
        (families.OF_NODE, PORT, ON_NODE),
        (families.OF_VKE, PORT, ON_NODE),
        (families.OF_POD, PORT | POD, OF_POD),
    ):
        read = totals(
            [
                sample(table["port_rcv_data"], 8, **labels),
                sample(table["port_xmit_data"], 4, **labels),
            ]
        )
        assert read == {key: TrafficTotals(8, 4)}
    for family, labels, key in (
        (families.HW_COUNTER, PORT, ON_NODE),
        (families.POD_HW_COUNTER, PORT | POD, OF_POD),
    ):
        for received, sent in (("rcvd_bytes", "sent_bytes"), ("rx_bytes", "tx_bytes")):
            counters = ((received, 8), (sent, 4), ("sent_pkts", 1))
            read = totals(sample(family, value, counter=one, **labels) for one, value in counters)
            assert read == {key: TrafficTotals(8, 4)}


def test_states_links_and_errors():
    read = totals(
        [
            sample(families.STATE, 4, **PORT),
            sample(families.RATE, 1.25e10, **PORT),
            sample(families.OF_NODE["out_of_sequence"], 3, **PORT),
            sample(families.OF_NODE["port_xmit_wait"], 9, **PORT),
            sample(families.OF_NODE["np_cnp_sent"], 9, **PORT),
            sample(families.HW_COUNTER, 2, counter="retry_exceeded_err", **PORT),
            sample(families.CPU, 2),
        ]
    )
    errors = {"out_of_sequence": 3, "retry_exceeded_err": 2}
    assert read == {ON_NODE: TrafficTotals(errors=errors, link=1.25e10, state=4)}


@pytest.mark.parametrize("file", [*families.OF_NODE])
def test_every_counter_is_an_error_or_is_none(file):
    """By its name; those that tell of congestion, of waiting or of requests are none."""
    (found,) = totals([sample(families.OF_NODE[file], 1, **PORT)]).values()
    words = ("err", "drop", "discard", "timeout", "out_of", "downed", "icrc")
    assert bool(found.errors) == any(word in file for word in words), file


def test_a_shared_device_has_a_row_and_no_figures():
    labels = {**POD, "resource": "rdma/hca", "card": "c", "device": "mlx5_0"}
    shared = sample(families.POD_DEVICE, 1, access="shared", **labels)
    (only,) = totals([shared, sample(families.POD_DEVICE, 1, access="own", **labels)]).items()
    assert only == (replace(OF_POD, port=""), TrafficTotals(shared=True))


def test_the_busiest_come_first_then_errors_then_names():
    def row(device, received=None, **errors):
        (one,) = rates(None, AgentScrape("n", 0.0, {TrafficKey(device, "1"): TrafficTotals()}))
        return replace(one, received=received, errors=errors)

    rows = [row("d"), row("c"), row("b", symbol_error=1.0), row("a", received=5.0)]
    assert [one.key.device for one in busiest(rows)] == ["a", "b", "c", "d"]
