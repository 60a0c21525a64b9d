"""Puts the tests of guest/ into this run, and says at its end how long the machine took."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .outside import Beside, Inside, Machine

GUEST = Path(__file__).parent / "guest"
MACHINE = pytest.StashKey[Machine]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session, config, items):
    """Put an item of ours in the place of each test of guest/, before any is deselected."""
    machine = config.stash.setdefault(MACHINE, Machine(session))
    config.pluginmanager.register(Beside(machine, len(os.sched_getaffinity(0))))
    for position, item in enumerate(items):
        if GUEST in item.path.parents:
            ours = Inside.from_parent(item.parent, name=item.name, machine=machine)
            ours.own_markers += item.own_markers
            ours.add_marker(pytest.mark.lab)
            items[position] = ours


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test took as long as it did in the machine; the first one would have its boot, too."""
    report = yield
    if isinstance(item, Inside) and call.when == "call" and item.seconds is not None:
        report.duration = item.seconds
    return report


def pytest_sessionfinish(session):
    """Nobody asks for a test any more."""
    if machine := session.config.stash.get(MACHINE, None):
        machine.close()


def pytest_terminal_summary(terminalreporter, config):
    """How long the machine took, and where its console and results are."""
    machine = config.stash.get(MACHINE, None)
    if machine and machine.seconds:
        figures = (
            f"first test after {machine.seconds[0]:.1f} s, all after {machine.seconds[-1]:.1f} s"
        )
        terminalreporter.write_line(f"bare machine: {figures}; {machine.home}")
        for text in machine.silent:
            terminalreporter.write_line(f"{text}\nAnother machine went on from there.", yellow=True)
