"""Which tests of the lab run in one process: a run has several such processes side by side.

All that needs the machines is one group, and so is all that needs emulated ones or runs in the bare
VM. A file that uses native nodes is a group: whichever process is done with its own takes the next
one, on a native lab of that process. For pytest-xdist's `--dist loadscope`; without it all runs in
one row, in the same order.

Machines take longest, so they come first at the processors too: a process of another group
gives way to them (nice), and so does the lab that it starts.
"""

import contextlib
import os
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

import pytest

from kube_rdma_lab.processes import weigh_session

RUN = "KUBE_RDMA_TEST_RUN"  # the name of a run beside another
MACHINES = "KUBE_RDMA_MACHINES"  # what machines of a run are: emulated, user-mode


class Place(IntEnum):
    """What a test runs on, in the order of a run: that which takes longest begins first."""

    WITHOUT_LAB = 0
    EMULATED = 1
    MACHINES = 2
    BARE = 3
    NATIVE = 4


LABS = (Place.EMULATED, Place.MACHINES, Place.BARE, Place.NATIVE)
FOLDERS = {
    "lab/emulated": Place.EMULATED,
    "lab/machines": Place.MACHINES,
    "vm/guest": Place.BARE,
    "vm/test_killed.py": Place.BARE,
    "lab/native": Place.NATIVE,
}


def place(path):
    """Where the tests of a file run, by its path or the node id of one of them."""
    pairs = ("/".join(pair) for pair in pairwise(Path(str(path).partition("::")[0]).parts))
    return next((FOLDERS[pair] for pair in pairs if pair in FOLDERS), Place.WITHOUT_LAB)


GIVES_WAY = 5  # niceness; a third of what a process without it gets


def give_way():
    """Make this process of a run, which others run beside, and what it starts, come second."""
    if "PYTEST_XDIST_WORKER" in os.environ and os.nice(0) < GIVES_WAY:
        os.nice(GIVES_WAY - os.nice(0))
        with contextlib.suppress(OSError):
            os.setsid()
        weigh_session()


def pytest_runtest_setup(item):
    """Before the lab of a process boots."""
    if place(item.path) in (Place.BARE, Place.NATIVE):
        give_way()


def group(nodeid):
    """The tests that run in one process and one row: those of a file, or of one kind of machine."""
    where = place(nodeid)
    shared = where in (Place.EMULATED, Place.MACHINES, Place.BARE)
    return where.name.lower() if shared else nodeid.partition("::")[0]


def kind_of_machines():
    """What machines of this run are."""
    return os.environ.get(MACHINES, "emulated")


def own(name):
    """A lab's name that is this process's own, and this run's where a test has started it."""
    words = (name, os.environ.get(RUN), os.environ.get("PYTEST_XDIST_WORKER"))
    return "-".join(filter(None, words))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Groups in the order of the tests; xdist by itself begins with the largest of them."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)
