"""Two labs for all tests of a run: one of machines, booted as `make demo` does, and a native one.

A test asks for `native` unless it needs verbs, virtual functions or the guest's own kernel.
"""

import contextlib
import os
from enum import IntEnum
from pathlib import Path

import pytest

from kube_rdma.model.errors import Refused
from kube_rdma_lab import cluster, preflight
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.topology import find
from tests.documents.shell import Shell

NAME = "test"
NATIVE_NAME = "test-native"
MACHINES = {"lab", "machine"}  # the fixtures of tests that boot some


class Place(IntEnum):
    """What tests run on, in the order of a run."""

    WITHOUT_LAB = 0
    NATIVE = 1
    BARE = 2
    MACHINES = 3


def pytest_collection_modifyitems(items):
    """Mark everything in this folder, so that `make check` leaves it out."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.lab)
    items.sort(key=order)


def order(item):
    """Where a test has its place in a run, the smallest first.

    Native nodes come before machines, which want all processors. The bare VM (tests/vm) runs beside
    native nodes; its results are asked for behind them. Pages are followed on fresh nodes: on
    machines README comes behind the others, for it installs what the files behind it need.
    """
    if item.get_closest_marker("lab") is None:
        return Place.WITHOUT_LAB, 0
    if Path(__file__).parent not in item.path.parents:
        return Place.BARE, 0
    names = set(item.fixturenames)
    pages = item.path.name == "test_documents.py"
    if "native" in names or not names & MACHINES:
        return Place.NATIVE, not pages
    return Place.MACHINES, 2 if "proof" in names else pages


def able(topology):
    """Skip where no lab of a topology can run; in CI that is a failure."""
    try:
        preflight.check(find(topology))
    except Refused as reason:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def machine():
    """For tests that boot machines of their own."""
    able("two-nodes")


@contextlib.contextmanager
def up(name, topology, command, variable):
    """Have a lab up for a while, booted and ended by the commands of docs/lab.md.

    The environment may name a running one instead: it asks nothing more of the machine, and stays.
    """
    if chosen := os.environ.get(variable):
        yield labs.find(chosen)
        return
    able(topology)
    with Shell({"KUBE_RDMA_LAB": name}) as shell:
        labs.down(name)
        print(shell.check(command))
        yield labs.find(name)
        print(shell.check("kube-rdma lab down"))


@pytest.fixture(scope="session")
def before_machines():
    """What ends when machines boot, for `order` has put the tests that need it before theirs."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture(scope="session")
def lab(before_machines):
    """Two machines; KUBE_RDMA_TEST_LAB=NAME takes a running lab instead."""
    before_machines.close()
    with up(NAME, "two-nodes", "kube-rdma lab up", "KUBE_RDMA_TEST_LAB") as running:
        yield running


@pytest.fixture(scope="session")
def native(before_machines):
    """Two native nodes with eight recorded cards each; KUBE_RDMA_TEST_NATIVE=NAME as above."""
    command = "kube-rdma lab up --topology native"
    running = up(NATIVE_NAME, "native", command, "KUBE_RDMA_TEST_NATIVE")
    return before_machines.enter_context(running)


@pytest.fixture(scope="session")
def recorded(native):
    """The native lab with seed S2's device plugin, unchanged, on its recorded cards."""
    scc.install(native, "daemonset-preset.yaml")
    return native


@pytest.fixture(scope="session")
def proof(lab):
    """What the demo measured on the lab; kube-rdma and seed S2's pods stay there."""
    with Printer() as report:
        return demonstrate(lab, report, pairs=1)


@pytest.fixture(scope="module")
def vke(lab, proof):
    """Seed S1's DaemonSet beside S2's, which keeps serving rdma/hca; no node is labelled yet.

    For one file: a node has one agent of role `node`, and other examples bring their own.
    """
    example = str(scc.examples() / "s1-vke" / "daemonset.yaml")
    scc.install_kinds(lab)
    cluster.kubectl(lab, "apply", "-f", example)
    cluster.rollout(lab, "rdma-device-plugin", "kube-rdma-vke")
    yield lab
    cluster.kubectl(lab, "delete", "-f", example, "--ignore-not-found", "--wait")
