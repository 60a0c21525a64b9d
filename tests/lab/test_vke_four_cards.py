"""Seed S1's pods with one, two and four cards, on nodes that have four: a lab of its own."""

import pytest

from kube_rdma_lab import lab as labs
from kube_rdma_lab.printer import Printer

from .test_vke_network import *  # noqa: F403  the same tests, and their fixtures

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
