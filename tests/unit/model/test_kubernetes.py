"""Names of resources, findings, and measures."""

from __future__ import annotations

import math
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model import measures
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.kubernetes import quantity
from kube_rdma.model.pools import is_extended_resource
from kube_rdma_testing.kubelet import kubelet

LETTERS = st.sampled_from([*"aZ09-._/", "kubernetes.io", "requests.", "é", "a" * 60, "\n"])
NAMES = st.lists(LETTERS, max_size=8).map("".join)


@given(NAMES | st.tuples(NAMES, NAMES).map("/".join))
def test_the_rule_for_names_is_the_kubelets(name):
    """The kubelet of tests has it written down by itself."""
    assert is_extended_resource(name) == kubelet.is_extended_resource(name)


@pytest.mark.parametrize(("length", "valid"), [(244, True), (245, False)])
def test_a_prefix_has_a_length(length, valid):
    """A quota puts nine characters before it, and the whole may have 253."""
    assert is_extended_resource(f"{'a.' * 122}aa"[-length:] + "/x") is valid


def test_a_finding_about_a_field_is_named_by_its_path():
    path = ("spec", "containers", 0, "resources")
    finding = Finding.of("mgpu", path, "both", "Remove one", Severity.WARNING)
    assert (finding.subject, finding.path) == ("spec.containers.0.resources", path)
    assert Finding.of("NoAgent", "", "none", "Install it") == Finding(
        "", "none", remedy="Install it", code="NoAgent"
    )


@pytest.mark.parametrize("severity", Severity)
def test_only_an_error_is_one(severity):
    assert Finding("", "x", severity=severity).is_error is (severity is Severity.ERROR)


@given(st.floats(1e-9, 1e12))
def test_a_bandwidth_is_read_as_it_was_written(gbps):
    text = measures.bandwidth_text(gbps)
    assert measures.gbps(text) == pytest.approx(gbps, rel=1e-3)
    assert float(quantity(text)) == pytest.approx(gbps * 1e9, rel=1e-3)
    assert measures.figure_of(text) == measures.gbps(text)


@given(st.floats(0.5, 1e12))
def test_a_latency_is_read_as_it_was_written(microseconds):
    text = measures.latency_text(microseconds)
    assert measures.microseconds(text) == pytest.approx(microseconds, rel=1e-3)
    assert measures.figure_of(text) == measures.microseconds(text)


@given(st.floats(min_value=0) | st.just(math.nan), st.booleans())
def test_whatever_a_pod_prints_has_a_short_text_or_none(number, latency):
    text = measures.figure_text(number, latency=latency)
    assert (text is None) is not math.isfinite(number)
    if text is not None:
        assert len(text) <= 32
        assert measures.figure_of(text) >= 0


@pytest.mark.parametrize(
    ("gbps", "text"),
    [
        (100.0, "100G"),
        (94.2154, "94.215G"),
        (2.5, "2.5G"),
        (3200.0, "3200G"),
        (0.85, "850M"),
        (0.0000123, "12.3k"),
        (0.0, "0"),
    ],
)
def test_a_bandwidth_looks_as_people_say_it(gbps, text):
    assert measures.bandwidth_text(gbps) == text


@pytest.mark.parametrize(
    ("text", "gbps"),
    [("180G", 180), ("2.5G", 2.5), ("850M", 0.85), ("1T", 1000), ("1Gi", 1.073741824), ("1e9", 1)],
)
def test_a_bandwidth_is_any_quantity(text, gbps):
    assert measures.gbps(text) == pytest.approx(gbps)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [("5us", 5), ("2.13us", 2.13), ("2.13µs", 2.13), ("850ns", 0.85), ("1.5ms", 1500), ("1s", 1e6)],
)
def test_a_latency_is_a_number_and_its_unit(text, microseconds):
    assert measures.microseconds(text) == pytest.approx(microseconds)


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (measures.gbps, ["", "fast", "-1G", "1 G", "180Gbps", "5us", "1e999", "9" * 40]),
        (measures.microseconds, ["", "5", "5 us", "-5us", "5G", "1h", "1ms5us", "NaNus"]),
    ],
)
def test_another_text_is_refused(read, texts):
    for text in texts:
        with pytest.raises(ValueError, match="neither a bandwidth nor a latency"):
            read(text)


@given(st.from_type(str) | st.from_regex(r"[0-9.]{1,30}[a-zµKMGTPE0-9]{0,3}\n?"))
def test_what_a_status_may_have_can_be_read(text):
    """Else a rule would meet the text that the API server let pass."""
    with suppress(msgspec.ValidationError):
        assert measures.figure_of(msgspec.convert(text, measures.Measure)) >= 0
    with suppress(msgspec.ValidationError):
        assert measures.gbps(msgspec.convert(text, measures.Bandwidth)) >= 0
