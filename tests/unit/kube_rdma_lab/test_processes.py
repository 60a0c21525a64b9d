"""Programs under the supervisor: started, waited for, ended, and honest when they fail."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab import switch
from kube_rdma_lab.patience import Patience
from kube_rdma_lab.processes import call, running


async def never():
    return False


async def test_a_program_that_dies_while_waited_for_shows_its_last_words(tmp_path):
    log = tmp_path / "log"
    async with running("victim", ("sh", "-c", "echo no memory; exit 7"), log) as program:
        with pytest.raises(Unavailable, match=r"(?s)victim ended with code 7.*no memory"):
            await program.until(never)


async def test_a_program_that_is_never_ready_is_told_with_its_log(tmp_path):
    async with running("slow", ("sleep", "60"), tmp_path / "log") as program:
        with pytest.raises(Unavailable, match="slow is not ready and said nothing for 0 s"):
            await program.until(never, Patience(1.0, 0.01, measure=lambda: 1.0))
        assert program.running


async def test_the_scope_ends_the_program(tmp_path):
    async with running("child", ("sleep", "60"), tmp_path / "log") as program:
        assert program.running
    assert not program.running


async def test_a_call_returns_the_output_and_refuses_failure():
    assert await call(("cat",), stdin="words") == "words"
    with pytest.raises(Unavailable, match="`sh -c exit 3` failed"):
        await call(("sh", "-c", "exit 3"))


async def test_a_program_that_is_paused_is_no_loss(tmp_path):
    """Over the switch of a lab, as a backup does it; then it runs as another process."""
    async with running("etcd", ("sleep", "60"), tmp_path / "log") as program:
        lost = asyncio.create_task(program.ended())
        async with switch.listening(tmp_path, (program,)):
            first = program.pid
            await asyncio.to_thread(switch.turn, tmp_path, "end", "etcd")
            assert not program.running
            await asyncio.to_thread(switch.turn, tmp_path, "start", "etcd")
            assert program.running
            assert program.pid != first
            with pytest.raises(Refused, match="no program 'etcdd'"):
                await asyncio.to_thread(switch.turn, tmp_path, "end", "etcdd")
        assert not lost.done()
        os.kill(program.pid, signal.SIGKILL)
        assert "etcd ended with code -9" in str(await lost)
    with pytest.raises(Unavailable, match="does not answer"):
        switch.turn(tmp_path / "other", "end", "etcd")


STUBBORN = ("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")


async def test_a_program_that_is_killed_is_not_asked_and_is_no_loss(tmp_path):
    """It would not listen; what comes then is another process."""
    async with running("etcd", STUBBORN, tmp_path / "log", farewell=signal.SIGKILL) as program:
        lost = asyncio.create_task(program.ended())
        async with switch.listening(tmp_path, (program,)):
            await program.until(_deaf(tmp_path / "log"))
            await asyncio.to_thread(switch.turn, tmp_path, "kill", "etcd")
            assert not program.running
            await asyncio.to_thread(switch.turn, tmp_path, "start", "etcd")
            assert program.running
        assert not lost.done()
        lost.cancel()


def _deaf(log):
    async def says_so():
        return "deaf" in log.read_text()

    return says_so


WEIGHED = """
import os
from pathlib import Path
from kube_rdma_lab.processes import weigh_session
os.setsid()
os.nice(7 - os.nice(0))
weigh_session()
shown = Path("/proc/self/autogroup")
print(shown.read_text() if shown.exists() else "/autogroup nice 7")
"""


def test_a_session_weighs_as_its_process():
    """The kernel shows /autogroup-NUMBER nice NICENESS (sched(7)), if it groups at all."""
    words = (sys.executable, "-c", WEIGHED)
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ended.stdout.split()[1:] == ["nice", "7"]


async def test_what_a_program_begins_with_is_not_made_again_when_it_is_resumed(tmp_path):
    """A machine that is switched on again has its disk; one that is started anew has a new one."""
    made = []

    async def prepare():
        made.append(len(made))

    log = tmp_path / "log"
    async with running("node-1", ("sleep", "60"), log, prepare) as program:
        await program.pause()
        await program.resume()
        assert program.running
        assert made == [0]
        await program.restart("its console stayed silent")
        assert made == [0, 1]
