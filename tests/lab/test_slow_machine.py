"""On half of the machine's CPU everything takes longer, and passes."""

import subprocess
import sys
from pathlib import Path

import pytest

from kube_rdma_lab import lab as labs

ROOT = Path(__file__).resolve().parents[2]
NAME = "held"


@pytest.mark.slow
def test_the_demo_passes_on_half_of_the_machine(machine):
    """From boot to table, in a control group with half of the processors' time."""
    demo = (sys.executable, "-m", "kube_rdma.programs.cli.main", "lab", "demo", "--name", NAME)
    labs.down(NAME)
    try:
        done = subprocess.run(
            [ROOT / "tools/held", "50", *demo], capture_output=True, text=True, check=False
        )
    finally:
        labs.down(NAME)
    assert done.returncode == 0, done.stderr
    assert "slow machine" in done.stderr.splitlines()[0]
    assert "two pods talk RDMA" in done.stdout
