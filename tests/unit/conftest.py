"""For unit tests: none sees what another one of its process counted."""

import pytest

from kube_rdma.adapters import bulkhead


@pytest.fixture(autouse=True)
def no_failures_of_other_tests():
    """Clear the counters of failures, which are those of a process: metrics export them."""
    bulkhead.failures.clear()
    bulkhead.object_failures.clear()
