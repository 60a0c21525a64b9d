"""A loop that hangs ends its process, with the place in the log; any other one lives."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.lib import watchdog
from kube_rdma.lib.watchdog import PATIENCE as LONGEST
from kube_rdma.lib.watchdog import TICK, Spent, silence

PATIENCE = 0.2
# Looks often and is patient for a moment, so that a test need not wait; `work` is the test's.
PROGRAM = """
import asyncio, os, socket, sys, threading, time
from kube_rdma.lib.watchdog import watched

async def main():
    with watched(tick=0.02, patience={patience}):
        await work()

{work}
asyncio.run(main())
"""
BLOCKED = {
    "lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "socket": "here, _there = socket.socketpair(); here.recv(1)",
    "spinning": "while True: pass",
    "log": "read, write = os.pipe(); os.dup2(write, 2)\n    while True: os.write(2, bytes(4096))",
}
# A step of the loop, some ms of work, with the leavings of a processor. Prints what it took.
STEP = """
import hashlib

async def work():
    all, block = os.sched_getaffinity(0), bytes(2**16)
    os.sched_setaffinity(0, {{{processor}}})
    os.nice(19)
    begun, before = time.monotonic(), time.thread_time()
    while time.monotonic() < begun + {seconds}: {does}
    print(time.thread_time() - before)
    os.sched_setaffinity(0, all)
    await asyncio.sleep(0)
"""
# Python's own code keeps its lock while it waits for a processor, so the watchdog waits too; C
# code that gives the lock back lets the watchdog look on while nothing moves.
DOES = {"python": "pass", "c": "hashlib.sha256(block)"}
IDLE = """
async def work():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print(line.decode(), end="", flush=True)
"""


@contextmanager
def running(work):
    """A process that does `work` below the watchdog."""
    command = [sys.executable, "-c", PROGRAM.format(work=work, patience=PATIENCE)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def answers(process):
    """Whether its loop makes a step now."""
    process.stdin.write(b"there?\n")
    process.stdin.flush()
    return process.stdout.readline() == b"there?\n"


def state(process):
    """How the kernel calls what the process does: T is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("how", BLOCKED)
def test_a_loop_that_hangs_ends_its_process(how):
    """Where it waits and where it spins, and even if nobody takes its log."""
    work = f"async def work():\n    await hangs()\n\nasync def hangs():\n    {BLOCKED[how]}\n"
    with running(work) as process:
        _, log = process.communicate()
    assert process.returncode == watchdog.EXIT_CODE
    if how != "log":
        assert log.startswith(b'level=critical event="event loop hung, program ended"')
        assert re.search(rb'File "<string>", line \d+ in hangs', log)


def test_a_loop_with_nothing_to_do_lives():
    """It answers the watchdog, and is well after many times its patience."""
    with running(IDLE) as process:
        assert answers(process)
        begun = time.monotonic()
        while time.monotonic() < begun + 4 * PATIENCE:
            assert answers(process)
        _, log = process.communicate()
    assert (process.returncode, log) == (0, b"")


def test_a_process_that_was_stopped_lives():
    """Stopped for longer than its patience, and again; it never could have answered."""
    with running(IDLE) as process:
        assert answers(process)
        for _ in range(2):
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            while state(process) != "T" or time.monotonic() < stopped + 2 * PATIENCE:
                os.sched_yield()
            process.send_signal(signal.SIGCONT)
            assert answers(process)
        process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("what", DOES)
def test_a_starved_process_lives(what):
    """A step that takes four times its patience, for others take the processor meanwhile."""
    processor = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    with ExitStack() as stack:
        for _ in range(4):
            other = stack.enter_context(subprocess.Popen([sys.executable, "-c", spin]))
            stack.callback(other.kill)
        step = STEP.format(processor=processor, seconds=4 * PATIENCE, does=DOES[what])
        with running(step) as process:
            had, log = process.communicate()
    assert (process.returncode, log) == (0, b"")
    assert float(had) < PATIENCE, "the other processes did not starve it"


async def test_it_ends_with_the_block():
    with watchdog.watched():
        assert "watchdog" in watchers()
    assert "watchdog" not in watchers()


def watchers():
    """The names of this process's threads."""
    return {thread.name for thread in threading.enumerate()}


# A hung program is told from a starved one by what its threads waited for processors.

SECONDS = st.floats(0, 10_000)
MORE = st.floats(1, 100)


def after(looks):
    """The silence after these looks."""
    silent = 0.0
    for spent in looks:
        silent = silence(silent, spent)
    return silent


@given(st.lists(st.tuples(SECONDS, MORE)))
def test_who_never_got_a_processor_was_never_silent(waits):
    assert after(Spent(passed, 0, passed * threads) for passed, threads in waits) == 0


@given(st.lists(st.tuples(SECONDS, st.floats(0, 1))))
def test_of_a_starved_program_only_what_it_ran_counts(looks):
    """A thread that is late in everything it does is as silent as the work that it did."""
    starved = [Spent(passed, passed * share, passed * (1 - share)) for passed, share in looks]
    assert abs(after(starved) - sum(spent.ran for spent in starved)) < 1e-3


@given(st.integers(0, 100), MORE)
def test_who_could_run_all_the_time_was_silent_all_the_time(looks, busy):
    """Blocked or spinning, also in several threads: a hang is noticed after PATIENCE."""
    assert after([Spent(TICK, 0, 0)] * looks) == looks * TICK
    assert after([Spent(TICK, TICK * busy, 0)] * looks) >= looks * TICK
    assert TICK < LONGEST


@given(SECONDS, SECONDS)
def test_a_stopped_program_loses_a_tick_at_most(before, passed):
    assert silence(before, Spent(passed, 0, 0)) <= before + TICK
