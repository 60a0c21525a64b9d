"""Seed S1's pods with one, two and four cards, on nodes that have four: a lab of its own."""

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc
from kube_rdma_lab.printer import Printer

from .test_vke_network import *  # noqa: F403  the same tests, and their fixtures
from .test_vke_network import EXAMPLE, NODES, switch

pytestmark = pytest.mark.slow
NAME = "test-four"


@pytest.fixture(scope="module")
def lab(machine):
    """Two nodes with four RDMA cards each, and the kubelet's best-effort alignment."""
    labs.down(NAME)
    with Printer() as report:
        running = labs.up(NAME, "four-cards", None, report)
    yield running
    labs.down(NAME)


@pytest.fixture(scope="module")
def proof():
    """No demo on this lab."""


@pytest.fixture(scope="module")
def page(lab):
    """What the example's page makes, whose figures are those of two cards per node."""
    scc.install_kinds(lab)
    for name in ("daemonset", "controller"):
        cluster.kubectl(lab, "apply", "-f", f"{EXAMPLE}/{name}.yaml")
    cluster.rollout(lab, "rdma-device-plugin", "kube-rdma-vke")
    switch(lab, "shared", *NODES)

    def workload():
        cluster.kubectl(lab, "apply", "-f", f"{EXAMPLE}/deployment.yaml")
        cluster.wait(lab, "deployment/rdma", "--for=condition=Available")

    return workload
