"""The rig of the fail-open score, small: kube-rdma's agent fails closed, the floor fails open.

By the commands of docs/faults.md, each with a lab of its own that it boots and ends.
"""

import re
import subprocess
import sys

import pytest

from bench.fail_open.table import ALL_STEPS
from tests.groups import own
from tests.house.tree import ROOT

# A lab of its own for each, and pods that wait until the kubelet tries again: minutes.
pytestmark = pytest.mark.slow


KILLED = ".venv/bin/python -m bench.fail_open --pods 12 --fault killed --step SetLink --step told"
HOOK = ".venv/bin/python -m bench.fail_open --driver hook --pods 9 --step hook"


def rows(text, code):
    """The rows of a run by a command of the page, each by its columns."""
    _, *words = text.split()
    command = [sys.executable, *words, "--lab", own("fail-open")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    head, *lines = done.stdout.splitlines()
    made = [line for line in lines if re.match(r"(shares|claims|hook) ", line)]
    cells = [dict(zip(head.split(), line.split(), strict=True)) for line in made]
    return [row for row in cells if row["step"] != ALL_STEPS]


def test_no_pod_of_kube_rdma_runs_without_its_nic_where_the_agent_is_killed():
    made = rows(KILLED, code=0)
    assert {row["way"] for row in made} == {"shares", "claims"}
    assert {(row["fault"], row["step"]) for row in made} == {
        ("none", "-"),
        ("killed", "SetLink"),
        ("killed", "told"),
    }
    for row in made:
        assert row["with"] != "0"
        assert (row["without"], row["silent"], row["unclear"]) == ("0", "0", "0")
    assert any(row["recovered"] != "0" for row in made)


def test_pods_of_a_driver_in_a_hook_run_without_their_nic_and_the_rig_sees_it():
    quiet, frozen, killed = rows(HOOK, code=1)
    assert (quiet["fault"], quiet["with"], quiet["without"]) == ("none", "3", "0")
    assert (frozen["fault"], killed["fault"]) == ("frozen", "killed")
    assert frozen["without"] != "0"
    assert killed["without"] != "0"
