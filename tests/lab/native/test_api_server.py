"""The contract of the API server, on the lab's real one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube_rdma_lab import cluster

ROOT = Path(__file__).resolve().parents[3]
NAMES = (*("test_contract.py", "test_contract_core.py", "test_election.py"), "test_admission.py")
TESTS = tuple(f"tests/contract/cluster/{name}" for name in NAMES)


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes: only the API server is asked."""
    return native


def test_the_contract_holds_on_a_real_api_server(lab):
    """The same tests as on the fake, in the lab's network, leave no pod to the next test."""
    enter = ["nsenter", f"--target={lab.state.pid}", "--net", "--"]
    keys = {
        "KUBE_RDMA_TEST_KUBECONFIG": f"{lab.home}/pki/admin.kubeconfig",
        "KUBE_RDMA_TEST_POWERLESS": f"{lab.home}/pki/scheduler.kubeconfig",
    }
    command = [*enter, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **keys}, capture_output=True, text=True, check=False
    )
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)
    assert "contract-" not in cluster.kubectl(lab, "get", "pods", "-o", "name")
