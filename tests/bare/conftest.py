"""Puts the tests of vm/ into this run, and says at its end what the machine took."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_rdma_lab.bare import Run

from .outside import Inside, Machine

VM = Path(__file__).parent / "vm"
MACHINE = pytest.StashKey[Machine]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session, config, items):
    """Put an item of ours in the place of each test of vm/, before any is deselected."""
    machine = config.stash.setdefault(MACHINE, Machine(session))
    for position, item in enumerate(items):
        if VM in item.path.parents:
            ours = Inside.from_parent(item.parent, name=item.name, machine=machine)
            ours.own_markers += item.own_markers
            ours.add_marker(pytest.mark.lab)
            items[position] = ours


def pytest_terminal_summary(terminalreporter, config):
    """The figures, and where console and JUnit file are."""
    machine = config.stash.get(MACHINE, None)
    if machine and isinstance(machine.answer, Run):
        run = machine.answer
        figures = f"first test after {run.up_seconds:.1f} s, all after {run.seconds:.1f} s"
        terminalreporter.write_line(f"bare machine: {figures}; {run.home}")
