"""For all unit tests: what a log line says, and counters that no other test has touched."""

import pytest

from kube_base.notices import Notices
from kube_rdma.adapters import bulkhead
from kube_rdma_testing.recording import recorded


@pytest.fixture(autouse=True)
def no_failures_of_other_tests():
    """Clear what a process counts, which metrics export, and what it says once."""
    bulkhead.failures.clear()
    bulkhead.object_failures.clear()
    bulkhead._causes = Notices()


@pytest.fixture
def recording():
    """Record what is logged."""
    with recorded() as lines:
        yield lines
