"""A lab's lock and state: what a crash leaves is seen as what it is, and cleared away."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from kube_base.errors import Refused
from kube_rdma_lab import lab, state


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBE_RDMA_CACHE", str(tmp_path))


def some_state(name, pid=0):
    return state.State(name, "two-nodes", pid, "booting", 0.0)


HOLDER = """
import os, signal
from kube_rdma_lab import state

home = state.home("held")
with state.lock(home):
    home.mkdir()
    state.write(home, state.State("held", "two-nodes", os.getpid(), "booting", 0.0))
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def holder():
    """A process that holds the lab `held`; ended at the end of the test if it still runs."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout.readline() == "held\n"
        yield it
        it.kill()


def test_a_second_up_is_refused_and_told_what_to_do(holder):
    words = r"already booting.*lab status --name held.*lab down"
    with pytest.raises(Refused, match=words), state.lock(state.home("held")):
        pytest.fail("two processes hold one lock")


def test_a_killed_holder_frees_the_lock_and_leaves_a_stale_state(holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    home = state.home("held")
    assert not state.is_held(home)
    assert state.read(home) == some_state("held", holder.pid)
    assert lab.down("held") is True
    assert not home.exists()


def test_down_ends_the_holder_and_clears_its_folder(holder):
    assert lab.down("held") is True
    assert holder.wait(5) == -signal.SIGTERM
    assert not state.home("held").exists()


def test_down_without_a_lab_says_so():
    assert lab.down("never") is False


def test_two_that_clear_at_once_do_not_mind_each_other(tmp_path):
    """As `lab down` beside a test that ends its lab."""
    folder = tmp_path / "x"
    for number in range(300):
        (folder / f"{number}").mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(state.clear, folder) for _ in range(4)]
        assert any(one.result() for one in done)
    assert not folder.exists()


def test_half_a_state_file_reads_as_none(tmp_path):
    (tmp_path / "state.json").write_text('{"name": "x"')
    assert state.read(tmp_path) is None


def test_losses_are_kept_in_order(tmp_path):
    state.write(tmp_path, some_state("x"))
    state.add_loss(tmp_path, "etcd ended")
    state.add_loss(tmp_path, "node-1 ended")
    assert state.read(tmp_path).losses == ("etcd ended", "node-1 ended")


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "-a", "a-", "a" * 33])
def test_names_that_could_not_be_a_folder_are_refused(name):
    with pytest.raises(Refused, match="not a name for a lab"):
        state.home(name)


def test_commands_on_a_lab_that_is_not_up_say_how_to_start_it():
    with pytest.raises(Refused, match="Start it: `kube-rdma lab up --name gone`"):
        lab.find("gone")
