"""Machines that say nothing: started anew, told in one line, and not for ever."""

import time

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab.console import Console
from kube_rdma_lab.processes import running
from kube_rdma_lab.progress import Event, Phase
from kube_rdma_lab.watchdog import RESTARTS, awake

NO_PATIENCE = 0.0  # everything that has not booted yet is silent for longer
ENDLESS = 1e9
SILENT = "exec sleep 60"
BOOTS = "echo noise; echo lab: stage booted 4.20; exec sleep 60"


class Machine:
    """A stand-in: its starts run these scripts, one after the other."""

    def __init__(self, folder, *scripts):
        self.log = folder / "console"
        self.told = []
        self._scripts = iter(scripts)
        self._script = folder / "script"

    async def _prepare(self):
        """Choose what the next start runs."""
        self._script.write_text(next(self._scripts))

    async def boot(self, patience, clock=time.monotonic):
        """Wait until it has booted."""
        argv = ("sh", self._script)
        async with running("node-1", argv, self.log, self._prepare) as program:
            console = Console("node-1", self.log, clock)
            await awake(program, console, self.told.append, 1.0, patience)
            assert program.running


def again(patience):
    """What a person is told of a start anew."""
    why = "its console stayed silent, started anew"
    return Event("node-1 booted", Phase.AGAIN, patience, why)


async def test_a_silent_machine_is_started_anew_and_that_is_told(tmp_path):
    """A hundred seconds pass while it is silent, and none after that."""
    machine, begin = Machine(tmp_path, SILENT, BOOTS), iter([0.0])
    await machine.boot(60.0, lambda: next(begin, 100.0))
    assert machine.told == [again(60.0)]


async def test_the_last_start_may_take_its_time(tmp_path):
    machine = Machine(tmp_path, *[SILENT] * RESTARTS, BOOTS)
    await machine.boot(NO_PATIENCE)
    assert machine.told == [again(NO_PATIENCE)] * RESTARTS
    assert machine.log.read_text().count("node-1: started anew: its console stayed silent") == 2


async def test_a_machine_that_boots_is_started_once(tmp_path):
    machine = Machine(tmp_path, BOOTS)
    await machine.boot(ENDLESS)
    assert machine.told == []


async def test_a_machine_that_ends_is_told_at_once_with_its_last_words(tmp_path):
    machine = Machine(tmp_path, "echo kernel panic; exit 1")
    with pytest.raises(Unavailable, match=r"(?s)node-1 ended with code 1.*kernel panic"):
        await machine.boot(ENDLESS)
    assert machine.told == []


async def test_a_machine_that_ends_after_a_start_anew_is_told_too(tmp_path):
    machine = Machine(tmp_path, *[SILENT] * RESTARTS, "exit 7")
    with pytest.raises(Unavailable, match="node-1 ended with code 7"):
        await machine.boot(NO_PATIENCE)


async def test_a_boot_that_fails_is_no_silence(tmp_path):
    machine = Machine(tmp_path, "echo lab: failed the card ens2f0 is missing; exec sleep 60")
    with pytest.raises(Unavailable, match=r"did not boot: the card ens2f0"):
        await machine.boot(ENDLESS)


async def test_every_byte_of_the_console_ends_a_silence(tmp_path):
    log, now = tmp_path / "console", [100.0]
    log.write_text("")
    console = Console("node-1", log, lambda: now[0])
    now[0] = 160.0
    await console.reached("booted")
    assert console.silent_seconds() == 60.0
    log.write_text(".")
    await console.reached("booted")
    assert console.silent_seconds() == 0.0
    now[0] = 170.0
    await console.reached("booted")
    assert console.silent_seconds() == 10.0
