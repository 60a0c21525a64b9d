"""The lab of two machines, booted as `make demo` does, for all tests that need them.

It ends with the last of these, not with the process that ran them, which goes on with files of
native nodes: two emulated nodes take two thirds of a processor for doing nothing.
"""

import pytest

from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.printer import Printer
from tests.groups import own
from tests.lab.conftest import up

NAME = "test"


@pytest.fixture(scope="package")
def lab():
    """Two machines; KUBE_RDMA_TEST_LAB=NAME takes a running lab instead."""
    with up(own(NAME), "two-nodes", "kube-rdma lab up", "KUBE_RDMA_TEST_LAB") as running:
        yield running


@pytest.fixture(scope="package")
def proof(lab):
    """What the demo measured on the lab; kube-rdma and seed S2's pods stay there."""
    with Printer() as report:
        return demonstrate(lab, report, pairs=1)
