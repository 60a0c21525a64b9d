"""What every command does before its own work: it is not slowed down by looks for garbage."""

import subprocess
import sys

from bench.imports import programs
from kube_rdma.cli import main

COUNT = """
import atexit, gc, sys
from kube_rdma.cli import main
main.GARBAGE_AFTER = int(sys.argv.pop(1))
atexit.register(lambda: print("looks", sum(part["collections"] for part in gc.get_stats())))
main.main()
"""
PYTHONS_OWN = 700


def looks(folder, threshold):
    """How often Python looks for garbage until the agent has read its configuration."""
    folder.mkdir()
    argv = programs(folder)["agent_networks"][1:]
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(threshold), *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "rdmaHcaMax" in done.stderr
    return int(done.stdout.rpartition("looks")[2])


def test_a_start_is_not_spent_on_looks_for_garbage(tmp_path):
    """Beside the same start as Python would do it by itself, which is the planted fault."""
    assert 4 * looks(tmp_path / "ours", main.GARBAGE_AFTER) < looks(tmp_path / "own", PYTHONS_OWN)
