"""Bad days: whatever ends a lab, nothing of it stays, and the next one starts.

The control-plane topology boots in seconds and has every kind of resource but those of nodes:
native nodes have them, and control groups, which no namespace takes along.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kube_rdma_lab import lab as labs
from kube_rdma_lab import state

NAME = "crash"
COMMAND = (sys.executable, "-m", "kube_rdma.cli.main", "lab")


def processes():
    """Return the processes whose command line names the crash lab's folder, or its `up`."""
    marks = (str(state.home(NAME)), f"supervisor\0{NAME}\0")
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text(errors="replace")
        except OSError:
            continue
        if any(mark in line for mark in marks):
            found[int(path.parent.name)] = line.replace("\0", " ")[:80]
    return found


def wait_until(condition, seconds=20):
    """Wait for a condition of the outside world."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, processes()
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def clean():
    """Start and end without a crash lab; compare what the machine itself shows."""
    labs.down(NAME)
    before = outside()
    yield
    labs.down(NAME)
    assert not processes()
    assert outside() == before


def outside():
    """Return the mounts, links and control groups that the machine's own namespaces show."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    mounts = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()}
    groups = set(Path("/sys/fs/cgroup").rglob(f"kube-rdma-lab-{NAME}"))
    return mounts, {line.split()[0] for line in links.stdout.splitlines()}, groups


def members(group):
    """Return the processes of a control group and of all below it."""
    files = (group / "cgroup.procs", *group.rglob("cgroup.procs"))
    return [line for path in files for line in path.read_text().split()]


def start_up():
    """Start `lab up` in the background, its progress readable.

    Whoever runs the tests in the background may ignore SIGINT, which children inherit.
    """
    return subprocess.Popen(
        [
            "env",
            "--default-signal=INT",
            *COMMAND,
            "up",
            "--name",
            NAME,
            "--topology",
            "control-plane",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def until_step(process, step):
    """Read progress until a step is mentioned."""
    for line in process.stderr:
        if step in line:
            return
    pytest.fail(f"`up` ended before {step!r}")


TOPOLOGIES = pytest.mark.parametrize("topology", ["control-plane", "native"])


@TOPOLOGIES
def test_down_leaves_nothing(topology):
    before = outside()
    labs.up(NAME, topology, None, lambda event: None)
    assert len(processes()) >= 4
    assert labs.down(NAME)
    assert not processes()
    assert not state.home(NAME).exists()
    assert outside() == before


@TOPOLOGIES
def test_a_killed_supervisor_takes_everything_along_and_status_says_so(topology):
    """All but the control groups of native nodes; the next `up` clears those away."""
    labs.up(NAME, topology, None, lambda event: None)
    os.kill(state.read(state.home(NAME)).pid, signal.SIGKILL)
    wait_until(lambda: not processes())
    status = subprocess.run(
        [*COMMAND, "status", "--name", NAME], capture_output=True, text=True, check=False
    )
    assert status.returncode == 1
    assert "crashed while up" in status.stdout
    assert not [path for group in outside()[2] for path in members(group)]
    labs.up(NAME, topology, None, lambda event: None)
    assert state.is_held(state.home(NAME))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_up_leaves_nothing_running(number):
    with start_up() as process:
        until_step(process, "network")
        process.send_signal(number)
        process.communicate(timeout=60)
    wait_until(lambda: not processes())
    # A process has no command line any more before its files are closed (do_exit, kernel/exit.c).
    wait_until(lambda: not state.is_held(state.home(NAME)))
