"""tools/held: a command in a control group of its own, and nothing of that afterwards."""

import subprocess
from pathlib import Path

import pytest

HELD = Path(__file__).resolve().parents[3] / "tools/held"


def held(*words):
    return subprocess.run([HELD, *words], capture_output=True, text=True, check=False)


def groups():
    """The groups that are there."""
    return {*Path("/sys/fs/cgroup").glob("**/kube-rdma-held-*")}


def test_a_command_runs_in_a_group_that_goes_with_it():
    before = groups()
    done = held("50", "cat", "/proc/self/cgroup")
    if done.returncode == 3:  # no root, or no control groups
        assert "cannot be written" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert "kube-rdma-held-" in done.stdout
    assert groups() <= before


def test_the_exit_code_is_the_command_s():
    assert held("50", "sh", "-c", "exit 7").returncode in {3, 7}


@pytest.mark.parametrize("words", [(), ("50",), ("half", "true"), ("0", "true")])
def test_another_call_is_answered_with_one_line(words):
    done = held(*words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
