"""The lab of two QEMU machines, for what a user-mode kernel does not have: NUMA nodes, igb.

With these tests the demo runs on the machines of `make demo` in CI, too. machines/conftest.py has
the lab of all other tests that need a kernel of their own.
"""

import pytest

from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.printer import Printer
from tests.groups import own
from tests.lab.conftest import up

NAME, VARIABLE = "test-emulated", "KUBE_RDMA_TEST_EMULATED"


@pytest.fixture(scope="package")
def lab():
    """Two machines; KUBE_RDMA_TEST_EMULATED=NAME takes a running lab instead."""
    with up(own(NAME), "two-nodes", "kube-rdma lab up", VARIABLE) as running:
        yield running


@pytest.fixture(scope="package")
def proof(lab):
    """What the demo measured on the lab; kube-rdma and seed S2's pods stay there."""
    with Printer() as report:
        return demonstrate(lab, report, pairs=1)
