"""The lab of two machines for all tests that need verbs or a kernel of their own.

It ends with the last of these, not with the process that ran them, which goes on with files of
native nodes: two machines cost a processor something while nobody asks them.

`make test-lab` and CI have user-mode kernels, which are ten times as fast as QEMU's emulation;
`make test` does not compile a kernel, and `make test-all` boots what `make demo` boots. What a
user-mode kernel does not have is in emulated/.
"""

import pytest

from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.printer import Printer
from tests.groups import kind_of_machines, own
from tests.lab.conftest import up

NAME = "test"
LABS = {
    "emulated": ("two-nodes", "kube-rdma lab up"),
    "user-mode": ("user-mode", "kube-rdma lab up --topology user-mode"),
}


@pytest.fixture(scope="package")
def lab():
    """Two machines; KUBE_RDMA_TEST_LAB=NAME takes a running lab instead."""
    topology, command = LABS[kind_of_machines()]
    with up(own(NAME), topology, command, "KUBE_RDMA_TEST_LAB") as running:
        yield running


@pytest.fixture(scope="package")
def leaves():
    """Four nodes on two leaf switches; KUBE_RDMA_TEST_LEAVES=NAME takes a running lab instead."""
    command = "kube-rdma lab up --topology user-mode-leaves --lldp-seconds 1"
    with up(own("test-leaves"), "user-mode-leaves", command, "KUBE_RDMA_TEST_LEAVES") as running:
        yield running


@pytest.fixture(scope="package")
def proof(lab):
    """What the demo measured on the lab; kube-rdma and seed S2's pods stay there."""
    with Printer() as report:
        return demonstrate(lab, report, pairs=1)
