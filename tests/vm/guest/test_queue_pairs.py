"""Whose queue pairs there are on Soft-RoCE, and what their processes have pinned, by the kernel."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest

from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.kernel.netlink.rdma_read import read_queue_pairs
from kube_rdma.doctor.pod import counted_pairs
from kube_rdma.model.device import QueuePair
from kube_rdma.model.doctor import ObservedQueuePairs

from .test_rdma_cgroup import TAKE
from .world import run

pytestmark = pytest.mark.kernel("lab.kernel=any")

DEVICE, UID, CONTAINER = "rxe-used", "7a1c-09", "ab" * 32
MADE = 8  # a protection domain, a completion queue, then regions and queue pairs in turn
COUNT = "from kube_rdma.adapters.kernel.netlink.rdma_read import read_queue_pairs as read"


@pytest.fixture
def group(cards, link, tmp_path):
    """The control group of a pod's container, on a node with Soft-RoCE."""
    link(DEVICE, cards[0])
    run("mount", "-t", "cgroup2", "none", str(tmp_path))
    top = tmp_path / "kubepods"
    made = top / f"pod{UID}" / CONTAINER
    made.mkdir(parents=True)
    yield made
    for folder in (made, made.parent, top):
        folder.rmdir()
    run("umount", str(tmp_path))


@contextmanager
def program(group):
    """A process of the container that has opened the device and made things; its pid."""
    words = [sys.executable, "-c", TAKE, str(group), DEVICE, "1", str(MADE)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().split() == ["1", str(MADE), "0"]
        yield process.pid
        process.stdin.close()
    assert process.returncode == 0


def test_what_a_program_of_a_container_uses_is_seen(group):
    """In a process namespace of its own, as that of an agent, it is out of sight."""
    assert read_queue_pairs() == ()
    with program(group) as pid:
        pairs = read_queue_pairs()
        assert set(pairs) == {QueuePair(DEVICE, "RC", pid)}
        counted = counted_pairs(pairs, lambda of: proc.container_of(of, UID))
        name = proc.program(pid)
        assert counted == (ObservedQueuePairs(CONTAINER, DEVICE, "RC", 3, 0, (name,)),)
        assert proc.pinned(pid) >= 4096
        apart = ("unshare", "--pid", "--fork", sys.executable, "-c", f"{COUNT}; print(len(read()))")
        assert run(*apart).strip() == "0"
    assert read_queue_pairs() == ()
