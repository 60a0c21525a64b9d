"""The lab's progress on terminals that are narrow, or know no escapes."""

import io
import re
import sys

import pytest

from kube_rdma_lab.printer import Printer
from kube_rdma_lab.progress import Event, Phase

STEPS = [f"a step with a long name {n}" for n in range(4)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """What stands on a terminal of 40 columns after all steps, and the lines before."""

    def show(term):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLUMNS", "40")
        with Printer() as report:
            for step in STEPS:
                report(Event(step, Phase.STARTED))
            for step in STEPS:
                report(Event(step, Phase.DONE, 1.5))
        return terminal.getvalue()

    return show


def test_the_live_line_is_no_longer_than_the_screen(shown):
    """Else only its last part would be wiped."""
    text = shown("xterm")
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text))
    live = [line for line in lines if line.startswith("  … ")]
    assert live
    assert all(len(line) <= 40 for line in live)
    assert live[0].endswith("0")
    assert live[3].endswith("…")


def test_a_terminal_without_escapes_gets_lines_alone(shown):
    assert shown("dumb").splitlines() == [f"  ✓ {step:<28} {'1.5 s':>9}" for step in STEPS]
