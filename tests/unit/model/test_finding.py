"""What a Finding is called by: an object, or the path of a field."""

from __future__ import annotations

import pytest

from kube_rdma.model.finding import Finding, Severity


def test_a_finding_about_a_field_is_named_by_its_path():
    """The path is kept too, for whoever knows where it stands in a file."""
    path = ("spec", "containers", 0, "resources")
    finding = Finding.of("mgpu", path, "both", "Remove one", Severity.WARNING)
    assert (finding.subject, finding.path) == ("spec.containers.0.resources", path)
    assert Finding.of("NoAgent", "", "none", "Install it") == Finding(
        "", "none", remedy="Install it", code="NoAgent"
    )


@pytest.mark.parametrize("severity", Severity)
def test_only_an_error_is_one(severity):
    """Advice and warnings refuse nothing and make no command fail."""
    assert Finding("", "x", severity=severity).is_error is (severity is Severity.ERROR)
