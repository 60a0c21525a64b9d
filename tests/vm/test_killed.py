"""Whatever ends the outer run, no machine is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .outside import CHECKOUT

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the machine's disk is made by root"),
]
RUN = """
import sys
from pathlib import Path
from kube_rdma_lab.bare import run
run(Path(sys.argv[1]), ["tests/vm/guest/test_survey.py"], Path(sys.argv[2]))
"""


def machines(home):
    """The processes of QEMU whose results go to this folder."""
    mark = f"file:{home}/tests.jsonl"
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        if mark in text:
            found.append(int(path.parent.name))
    return found


def test_a_killed_run_leaves_no_machine(tmp_path):
    command = [sys.executable, "-c", RUN, str(CHECKOUT), str(tmp_path)]
    with subprocess.Popen(command) as process:
        while not machines(tmp_path):  # its parts may have to be built before
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    # The kernel has killed it by now; a dead process is there until it has freed its memory.
    deadline = time.monotonic() + 60
    while machines(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
