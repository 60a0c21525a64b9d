"""Seed S3's policy over ten native nodes at once: the operator's whole test, in its own lab."""

import pytest

from tests.groups import own
from tests.lab.conftest import up

from .test_operator import *  # noqa: F403  the same tests, and their fixtures

pytestmark = pytest.mark.slow
NAME = "test-ten"


@pytest.fixture(scope="module")
def native():
    """Ten nodes; KUBE_RDMA_TEST_TEN=NAME takes a running lab."""
    command = "kube-rdma lab up --topology native:10"
    with up(own(NAME), "native:10", command, "KUBE_RDMA_TEST_TEN") as running:
        assert len(running.topology.nodes) == 10
        yield running
