"""Which waits of a test without a lab are a failure."""

import subprocess
import sys
import time

import pytest

from tests.asleep import awake, judge, work_of_children


def test_a_long_sleep_fails():
    with pytest.raises(pytest.fail.Exception, match="slept for 300 s"):
        judge(asleep=300.0, children=0.0)


def test_who_waits_for_a_child_or_for_a_moment_passes():
    judge(asleep=300.0, children=12.0)
    judge(asleep=59.0, children=0.0)


def test_work_is_no_sleep():
    """So a slow or a busy machine fails nobody."""
    began, before = time.monotonic(), awake()
    while awake() - before < 0.2:
        pass
    assert time.monotonic() - began - (awake() - before) < 0.2


def test_a_child_that_ended_has_worked():
    before = work_of_children()
    subprocess.run((sys.executable, "-c", "sum(range(1_000_000))"), check=True)
    assert work_of_children() > before
