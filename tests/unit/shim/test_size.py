"""The program on the host is small on both machines: each start of a pod reads it."""

import subprocess
import sys

import pytest

from .conftest import BUILD


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_it_has_at_most_64_kib(machine, tmp_path):
    subprocess.run([sys.executable, BUILD, machine, tmp_path / "kube-rdma"], check=True)
    assert (tmp_path / "kube-rdma").stat().st_size <= 64 * 1024
