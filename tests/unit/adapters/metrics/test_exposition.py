"""The text of series, read back by another reader of the same format."""

import pickle

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kube_rdma.adapters.metrics.exposition import KeptExposition, exposition
from kube_rdma.model.metrics import Durations, MetricFamily, MetricKind, MetricSeries

GAUGE = MetricFamily("a_gauge", MetricKind.GAUGE, ("device", "port"), "A gauge.", "a test")
COUNTER = MetricFamily("things_total", MetricKind.COUNTER, ("pod",), "A counter.", "a test")
UNTYPED = MetricFamily("driver", MetricKind.UNTYPED, ("counter",), "Who knows.", "a test")
HISTOGRAM = MetricFamily("took_seconds", MetricKind.HISTOGRAM, ("outcome",), "How long.", "a test")


def parsed(values):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(values).decode())
        for sample in family.samples
    }


def test_types_and_names_are_written_as_they_are():
    text = exposition(
        [
            MetricSeries(COUNTER, ("p",), 2),
            MetricSeries(GAUGE, ("d", "1"), 1.5),
            MetricSeries(UNTYPED, ("c",), 3),
        ]
    ).decode()
    assert '# TYPE things_total counter\nthings_total{pod="p"} 2.0\n' in text
    assert "# HELP a_gauge A gauge.\n# TYPE a_gauge gauge\n" in text
    assert "# TYPE driver untyped\n" in text


@given(st.lists(st.tuples(st.text(), st.text()), unique=True), st.integers(0, (1 << 64) - 1))
def test_labels_come_back_whatever_they_hold(pairs, value):
    """A pod cannot write a line of its own through a name."""
    series = [MetricSeries(GAUGE, pair, value) for pair in pairs]
    expected = {("a_gauge", (("device", d), ("port", p))): float(value) for d, p in pairs}
    assert parsed(series) == expected


def test_a_histogram_adds_up_its_buckets():
    durations = Durations(HISTOGRAM, ("ok",), (0.1, 1.0), (1, 2, 3), 9.5)
    outcome = ("outcome", "ok")
    assert parsed([durations]) == {
        ("took_seconds_bucket", (("le", "0.1"), outcome)): 1,
        ("took_seconds_bucket", (("le", "1.0"), outcome)): 3,
        ("took_seconds_bucket", (("le", "+Inf"), outcome)): 6,
        ("took_seconds_sum", (outcome,)): 9.5,
        ("took_seconds_count", (outcome,)): 6,
    }


def test_series_of_a_family_stand_together_wherever_they_come():
    text = exposition(
        [
            MetricSeries(UNTYPED, ("a",), 1),
            MetricSeries(COUNTER, ("p",), 1),
            MetricSeries(UNTYPED, ("b",), 1),
        ]
    )
    assert text.decode().count("# TYPE driver") == 1


def test_nothing_is_an_empty_text():
    assert exposition([]) == b""


DURATIONS = Durations(HISTOGRAM, ("ok",), (0.1, 1.0), (1, 2, 3), 9.5)
NAMES = st.sampled_from(["p", "q", 'a"b', "back\\slash", "new\nline", "ü", ""])
VALUES = st.one_of(st.integers(0, (1 << 64) - 1), st.just(0), st.floats(allow_nan=True))
SERIES = st.one_of(
    st.builds(MetricSeries, st.just(COUNTER), st.tuples(NAMES), VALUES),
    st.builds(MetricSeries, st.just(GAUGE), st.tuples(NAMES, NAMES), VALUES),
    st.just(DURATIONS),
)


@given(st.lists(st.lists(SERIES, max_size=8), max_size=5))
def test_kept_lines_are_those_of_the_library(answers):
    """Whatever comes, changes, goes and comes again from one answer to the next."""
    kept = KeptExposition()
    for values in answers:
        assert kept.text(values) == exposition(values)


def test_a_series_that_ended_is_forgotten():
    kept, sizes = KeptExposition(), []
    for number in range(100, 200):
        pod, card = (f"pod-{number}",), MetricSeries(UNTYPED, ("c",), number)
        kept.text([MetricSeries(COUNTER, pod, 1), MetricSeries(COUNTER, ("p",), 1), card])
        sizes.append(len(pickle.dumps(kept)))
    assert len(set(sizes)) == 1
