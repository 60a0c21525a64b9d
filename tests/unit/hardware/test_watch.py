"""`kube-rdma devices --watch`: when it looks, what it tells, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.events import LOST, News, RtnlEvent, Uevent
from kube_rdma.hardware.watch import watch
from kube_rdma.model.device import Device
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma_testing.kernel.listeners import FakeRtnlEvents, FakeUevents

DEVICE = Device("rxe0", "rxe0@eth0", None, "CA", None, None, None, None, (), ())
EMPTY = Survey((), None, NamespaceMode.SHARED)
ONE = replace(EMPTY, devices=(DEVICE,))


class Node:
    def __init__(self, *pictures):
        self._pictures = list(pictures)
        self.looks = 0

    def look(self):
        self.looks += 1
        return self._pictures.pop(0) if len(self._pictures) > 1 else self._pictures[0]


async def watched(node, listeners, told, settle=0.05):
    heard = asyncio.Queue()
    task = asyncio.create_task(watch(node.look, listeners, heard.put_nowait, settle))
    found = [await heard.get() for _ in range(told)]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return [(c.subject, c.event) for changes in found for c in changes]


@pytest.mark.parametrize("event", [Uevent("add", "infiniband", "/devices/rxe0"), Uevent(LOST)])
async def test_a_uevent_makes_it_look(event):
    uevents = FakeUevents()
    uevents.push(event)
    assert await watched(Node(EMPTY, ONE), (uevents,), 1) == [("rxe0", "appeared")]


async def test_an_event_of_an_interface_makes_it_look():
    events = FakeRtnlEvents()
    events.push(RtnlEvent(News.LINK, 2))
    told = await watched(Node(ONE, EMPTY), (FakeUevents(), events), 1)
    assert told == [("rxe0", "vanished")]


async def test_it_looks_once_more_after_the_last_event():
    """The kernel rewrites a GID table some time after it announced the address."""
    events = FakeRtnlEvents()
    events.push(RtnlEvent(News.ADDRESS, 2))
    node = Node(EMPTY, EMPTY, ONE)
    assert await watched(node, (events,), 1) == [("rxe0", "appeared")]
    assert node.looks == 3


async def test_a_burst_is_one_look_and_silence_none():
    uevents = FakeUevents()
    for _ in range(100):
        uevents.push(Uevent("add", "net", "/devices/eth0"))
    node = Node(EMPTY, ONE)
    await watched(node, (uevents,), 1, settle=10)
    assert node.looks == 2


class Deaf:
    async def __aenter__(self):
        raise PermissionError(1, "Operation not permitted")

    async def __aexit__(self, *error):
        return None


async def test_a_kernel_that_does_not_let_us_listen_is_unavailable():
    with pytest.raises(
        Unavailable, match="announces nothing to kube-rdma: Operation not permitted"
    ):
        await watch(Node(EMPTY).look, (Deaf(),), print)


class Breaking(FakeUevents):
    async def __anext__(self):
        raise OSError(5, "Input/output error")


async def test_announcements_that_break_off_end_it():
    with pytest.raises(Unavailable, match="broke off"):
        await watch(Node(EMPTY).look, (Breaking(),), print)


async def test_what_the_survey_refuses_ends_it():
    def look():
        raise Unavailable("no /sys")

    with pytest.raises(Unavailable, match="no /sys"):
        await watch(look, (FakeUevents(),), print)


def test_ctrl_c_ends_the_command_with_0():
    # Whoever runs the tests in the background may ignore SIGINT, which children inherit.
    python = ("env", "--default-signal=INT", sys.executable, "-m")
    command = (*python, "kube_rdma.cli.main", "devices", "--watch")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stderr
            first = running.stderr.readline()
            os.kill(running.pid, signal.SIGINT)
            out, error = running.communicate()
        finally:
            running.kill()
    assert first == "Watching this node's RDMA devices; Ctrl-C ends it.\n"
    assert (running.returncode, out, error) == (0, "", "")
