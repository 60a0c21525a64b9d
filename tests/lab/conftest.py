"""One lab for all tests of a run, booted by the path that `make demo` takes."""

import os
from pathlib import Path

import pytest

from kube_rdma.model.errors import Refused
from kube_rdma_lab import lab as labs
from kube_rdma_lab import preflight
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.topology import find

NAME = "test"


def pytest_collection_modifyitems(items):
    """Mark everything in this folder, so that `make check` leaves it out."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def machine():
    """Skip where no lab can run; in CI that is a failure."""
    try:
        preflight.check(find("two-nodes"))
    except Refused as reason:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def lab(machine):
    """Two nodes, Ready. KUBE_RDMA_TEST_LAB=NAME takes a running lab instead and leaves it up."""
    if chosen := os.environ.get("KUBE_RDMA_TEST_LAB"):
        yield labs.find(chosen)
        return
    labs.down(NAME)
    with Printer() as report:
        running = labs.up(NAME, "two-nodes", None, report)
    yield running
    labs.down(NAME)


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
    scc.kubectl(lab, "apply", "-f", example)
    rollout = ("rollout", "status", "daemonset/rdma-device-plugin", "-n", "kube-rdma")
    scc.kubectl(lab, *rollout, "--timeout=120s", seconds=150)
    yield lab
    scc.kubectl(lab, "delete", "-f", example, "--ignore-not-found", "--wait", seconds=120)
