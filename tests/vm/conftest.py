"""Puts the tests of guest/ into this run, and says at its end how long the machine took."""

from __future__ import annotations

from pathlib import Path

import pytest

from .outside import Inside, Machine

GUEST = Path(__file__).parent / "guest"
MACHINE = pytest.StashKey[Machine]()
TOLD = pytest.StashKey[list[str]]()
LINES = "bare machine"  # the same, in what a worker sends


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session, config, items):
    """Put an item of ours in the place of each test of guest/, before any is deselected."""
    machine = config.stash.setdefault(MACHINE, Machine(session))
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
    """Nobody asks for a test any more; what there is to tell, a worker leaves for who shows it."""
    machine = session.config.stash.get(MACHINE, None)
    if machine is None:
        return
    machine.close()
    session.config.stash[TOLD] = list(machine.told())
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[LINES] = session.config.stash[TOLD]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A worker has ended."""
    node.config.stash.setdefault(TOLD, []).extend(getattr(node, "workeroutput", {}).get(LINES, ()))


def pytest_terminal_summary(terminalreporter, config):
    """How long the machine took, where its console and results are, and whether one stood still."""
    for line in config.stash.get(TOLD, ()):
        terminalreporter.write_line(line)
