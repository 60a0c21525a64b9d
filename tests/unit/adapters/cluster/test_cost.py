"""A program without access to the API server does not pay for its libraries."""

import subprocess
import sys

import pytest

CONNECT = "kube_client.connect"


@pytest.mark.parametrize("module", ["kube_rdma.agent.loop", "kube_rdma.adapters.cluster.events"])
def test_the_client_is_imported_only_to_connect(module):
    """Neither role plugin nor what it says Events with imports HTTP and credentials."""
    code = f"import sys, {module}; print(*sorted({{'h11', {CONNECT!r}}} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_connecting_imports_it():
    """The other half, lest the names above be wrong."""
    code = f"import sys, {CONNECT}; print('h11' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["True"]
