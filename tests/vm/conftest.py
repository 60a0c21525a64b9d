"""Puts the tests of guest/ into this run, and says at its end how long the machines took."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from kube_rdma_lab.bare import progress
from kube_rdma_lab.bare.run import USER_MODE
from tests.groups import kind_of_machines

from .outside import Inside, Machine

GUEST = Path(__file__).parent / "guest"
MACHINES = pytest.StashKey[dict[str, Machine]]()  # by what their kernels are given
TOLD = pytest.StashKey[list[str]]()
VARIABLE = "KUBE_RDMA_BARE"
EITHER = "lab.kernel=any"  # the kernel of QEMU's machine or the other one
LINES = "bare machine"  # the same, in what a worker sends


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session, config, items):
    """Put an item of ours in the place of each test of guest/, before any is deselected.

    A kernel with words of its own comes after the others: two machines at once are slower.
    """
    machines = config.stash.setdefault(MACHINES, {})
    places = [place for place, item in enumerate(items) if GUEST in item.path.parents]
    inner = [(kernel_words(items[place]), items[place]) for place in places]
    inner.sort(key=lambda pair: pair[0])  # stable: the order of a machine's tests stays
    for place, (words, item) in zip(places, inner, strict=True):
        if words not in machines:
            machines[words] = Machine(session, partial(progress, kernel=words))
        ours = Inside.from_parent(item.parent, name=item.name, machine=machines[words])
        ours.own_markers += item.own_markers
        ours.add_marker(pytest.mark.lab)
        items[place] = ours


def kernel_words(item):
    """What the kernel of a test's machine is given besides; nothing as a rule.

    KUBE_RDMA_BARE=emulated has a test on QEMU that runs on a user-mode kernel otherwise. One that
    may run on either is there where one has been compiled: KUBE_RDMA_MACHINES=user-mode.
    """
    mark = item.get_closest_marker("kernel")
    words = mark.args[0] if mark else ""
    if words == EITHER:
        words = USER_MODE if kind_of_machines() == "user-mode" else ""
    emulated = os.environ.get(VARIABLE) == "emulated"
    return "" if emulated and words == USER_MODE else words


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A test took as long as it did in the machine; the first one would have its boot, too."""
    report = yield
    if isinstance(item, Inside) and call.when == "call" and item.seconds is not None:
        report.duration = item.seconds
    return report


def pytest_sessionfinish(session):
    """Nobody asks for a test any more; what there is to tell, a worker leaves for who shows it."""
    machines = session.config.stash.get(MACHINES, None)
    if machines is None:
        return
    session.config.stash[TOLD] = []
    for machine in machines.values():
        machine.close()
        session.config.stash[TOLD] += machine.told()
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
