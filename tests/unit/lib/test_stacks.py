"""What SIGUSR1 shows of a process; test_process has an agent's."""

import asyncio
import subprocess
import sys

from kube_rdma.lib import stacks

EARLY = """
import os, signal
from kube_rdma.lib import stacks
stacks.register()
os.kill(os.getpid(), signal.SIGUSR1)
print("it lives")
"""


def test_a_process_that_has_just_begun_shows_its_threads_and_goes_on():
    run = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=True)
    assert run.stdout == "it lives\n"
    assert "Current thread 0x" in run.stderr
    assert 'File "<string>", line 5 in <module>' in run.stderr


async def inner(gate):
    await gate.wait()


async def outer(gate):
    await inner(gate)


async def test_tasks_that_wait_at_one_place_are_one():
    """With what each awaits, of which Task.get_stack has the first frame alone."""
    gate, loop = asyncio.Event(), asyncio.get_running_loop()
    tasks = [asyncio.create_task(outer(gate)) for _ in range(1000)]
    await asyncio.sleep(0)
    most, *_ = stacks.of_tasks(loop).split("\n\n")
    title, *frames = most.split("\n")
    assert title == "Tasks: 1000"
    names = [frame.rpartition(" in ")[2] for frame in frames]
    assert names == ["outer", "inner", "Event.wait"]
    gate.set()
    await asyncio.gather(*tasks)


async def test_a_text_that_is_too_long_is_cut(capsys, monkeypatch):
    monkeypatch.setattr(stacks, "_MOST", 30)
    stacks._write(asyncio.get_running_loop())
    assert capsys.readouterr().err.startswith("Tasks: 1\n")
    stacks._write(asyncio.get_running_loop())
    assert len(capsys.readouterr().err) == 30 + len("\n…\n\n")
