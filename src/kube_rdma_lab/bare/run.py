"""One run of kernel tests: sources and tests go in behind the initramfs, results come one by one.

tests/vm/outside.py calls it once for each machine of a run. The parts come from the store
(build/testroot.py); an edited test costs no build.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma_lab import accelerator, pace, paths
from kube_rdma_lab.bare import user_mode
from kube_rdma_lab.bare.machine import command_line
from kube_rdma_lab.bare.results import InnerResult, ReportLine, ReportReader
from kube_rdma_lab.build import cpio, testroot
from kube_rdma_lab.build.initrd import NODE
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.console import Console
from kube_rdma_lab.patience import Patience
from kube_rdma_lab.processes import POLL_SECONDS, running, tail
from kube_rdma_lab.watchdog import awake

NAME = "the bare machine"
INSIDE = NODE / "bare"
NODE_FILES = "config/node-files"  # what users install on a node; the tests find it there too
# This word of the kernel's command line chooses the root's SELinux policy, a testroot.Policy.
POLICY = "lab.policy="
# This word makes the machine a user-mode kernel (bare/user_mode.py) instead of QEMU's.
USER_MODE = "lab.kernel=user-mode"
# How long the machine may show no sign of life, in seconds of the reference and in boots: Python,
# which writes one every five seconds, needs two boots to start.
QUIET = (60.0, 10.0)
# These words are in the line above the stacks of a test that takes too long (node/bare/inside.py).
STANDS = "runs longer than"


@dataclass(frozen=True, slots=True)
class Progress:
    """The beginning of a test (no result) or its end, `seconds` after its machine's start.

    `silent` is set in a second machine's first event alone: it says why the first machine hung.
    """

    seconds: float
    test: str
    result: InnerResult | None
    silent: str = ""


# Runs tests and leaves files in a folder.
RunsTests = Callable[[Sequence[str], Path], AsyncGenerator[Progress, None]]


class Silent(Unavailable):
    """The error of a machine that hangs: in silence, in a test, or in a task of its kernel."""


def run(checkout: Path, tests: Sequence[str], home: Path) -> Mapping[str, InnerResult]:
    """Run tests in a bare machine and return their results by node id; raise as `progress` does."""

    async def results() -> Mapping[str, InnerResult]:
        async with aclosing(progress(checkout, tests, home)) as events:
            return {event.test: event.result async for event in events if event.result}

    return asyncio.run(results())


async def progress(
    checkout: Path, tests: Sequence[str], home: Path, kernel: str = ""
) -> AsyncGenerator[Progress, None]:
    """Run the tests of these node ids in a new machine and yield each beginning and end.

    `checkout` is the root of the sources, `home` a folder for console.log and tests.jsonl. `kernel`
    adds words to the kernel's command line, such as "security=selinux"; a user-mode kernel takes
    POLICY alone. The machine goes on between two events. A caller that is cancelled, or closes the
    iterator, ends the machine and the build before it. Raises Refused where no machine can be
    built. Raises Unavailable when it does not boot, ends before pytest does, or hangs after its
    last test or for a second time.
    """
    async with aclosing(with_another(partial(_machine, checkout, kernel), tests, home)) as events:
        async for event in events:
            yield event


async def with_another(
    machine: RunsTests, tests: Sequence[str], home: Path
) -> AsyncGenerator[Progress, None]:
    """Run tests on `machine`; if it hangs, run the remaining ones on a second machine.

    The second begins with the test that had begun, and leaves its files in the folder `again`.
    """
    left, silent = list(tests), ""
    try:
        async with aclosing(machine(tests, home)) as events:
            async for event in events:
                yield event
                if event.result:
                    left.remove(event.test)
    except Silent as error:
        if not left:
            raise
        silent = str(error)
    if silent:
        async with aclosing(machine(left, home / "again")) as events:
            async for event in events:
                yield replace(event, silent=silent)
                silent = ""


async def _machine(
    checkout: Path, kernel: str, tests: Sequence[str], home: Path
) -> AsyncGenerator[Progress, None]:
    """Build and boot one machine, run tests in it, and yield each beginning and end."""
    initrd, results, console = _emptied(home)
    with open_store() as store:  # closed, it ends what the other thread builds
        words = kernel.split()
        names = (word.removeprefix(POLICY) for word in words if word.startswith(POLICY))
        policy = testroot.Policy(next(names, ""))
        parts = await asyncio.to_thread(testroot.build, store, checkout, policy)
        initrd.write_bytes(
            parts.initrd.read_bytes() + cpio.archive(files(checkout, tests, parts.sources))
        )
        if USER_MODE in words:
            program = await asyncio.to_thread(testroot.user_mode_kernel, store)
            argv = user_mode.command_line(program, parts.disk, initrd, results)
        else:
            argv = command_line(parts, accelerated(), initrd, results, kernel)
        try:
            async with aclosing(follow(argv, console, results)) as events:
                async for event in events:
                    yield event
        finally:
            initrd.unlink()


def _emptied(home: Path) -> tuple[Path, Path, Path]:
    """Make `home` with empty results and console; return the paths of initramfs and these two."""
    home.mkdir(parents=True, exist_ok=True)
    initrd, results, console = home / "initrd", home / "tests.jsonl", home / "console.log"
    for path in (results, console):
        path.write_bytes(b"")
    return initrd, results, console


def accelerated() -> tuple[str, ...]:
    """Return QEMU's options for KVM if a lab found it working here, else for emulation."""
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) and paths.cache_root().exists()
    return accelerator.KVM if usable and accelerator.recall() else accelerator.EMULATION


async def follow(
    argv: Sequence[str], console: Path, results: Path, quiet: tuple[float, float] = QUIET
) -> AsyncGenerator[Progress, None]:
    """Run the machine, yield each test's beginning and end, and return when pytest has ended.

    Raise Unavailable, naming its last test, if the machine ends before; raise Silent if it hangs.
    `quiet` is how long it may be silent: seconds at the reference's pace (pace.py), or a multiple
    of its boot time if that is longer. The machine itself reports a test that takes too long.
    """
    begin = time.monotonic()
    reader = ReportReader(results)
    async with running(NAME, argv, console) as program:
        slowness = pace.measure()
        reading = Console(NAME, console)
        await awake(program, reading, lambda _: None, slowness)
        boot = (time.monotonic() - begin) / max(1.0, slowness)
        patience = Patience(slowness, max(quiet[0], quiet[1] * boot))
        last: ReportLine | None = None
        alive = True
        while alive:
            alive = program.running  # asked first: what it has said until then is read below
            for last in reader.new():
                if last.long:
                    raise Silent(_death("does not end a test", last, console))
                if last.test:
                    yield Progress(time.monotonic() - begin, last.test, last.result)
            reading.read()
            if reading.hung:  # what it goes on saying of that is no sign of life
                raise Silent(_death(f"has a task that hangs, {reading.hung},", last, console))
            if patience.lost([(reader.size, program.log.stat().st_size)]):
                raise Silent(_death(f"said nothing for {patience.seconds:.0f} s", last, console))
            await asyncio.sleep(POLL_SECONDS)
    if last is None or last.test:
        raise Unavailable(_death("ended", last, console))


def _death(how: str, last: ReportLine | None, console: Path) -> str:
    """Return the message on a machine that ended early: how, in which test, and its last output."""
    if last is None:
        when = "before the first test"
    else:
        when = f"{'after' if last.result else 'during'} {last.test}"
    before, mark, stands = console.read_text(errors="replace").rpartition(STANDS)
    shown = f"{before.splitlines()[-1]}{mark}{stands}" if mark else tail(console)
    return f"{NAME} {how} {when}; {console}:\n{shown}"


def files(checkout: Path, tests: Iterable[str], sources: Path) -> list[cpio.ArchiveEntry]:
    """Return a run's archive entries: tests, their ids, node files, programs and `sources`."""
    entries = [entry for entry in cpio.from_folder(sources) if not stat.S_ISDIR(entry.mode)]
    shipped = sorted(f"{path.relative_to(checkout)}" for path in (checkout / NODE_FILES).iterdir())
    for path in ("pyproject.toml", *shipped, *sorted({test.partition("::")[0] for test in tests})):
        entries += _with_neighbours(checkout, path)
    entries.append(cpio.file("lab/tests.txt", "".join(f"{test}\n" for test in tests).encode()))
    entries.append(cpio.file("lab/inside.py", (INSIDE / "inside.py").read_bytes()))
    # In the place of the node's first program, which this machine does not need.
    entries.append(cpio.file("node/usr/sbin/lab-init", (INSIDE / "init").read_bytes(), 0o755))
    return list({entry.path: entry for entry in entries}.values())


def _with_neighbours(checkout: Path, name: str) -> list[cpio.ArchiveEntry]:
    """Return the archive entry of a file; of a Python file, those of all modules beside it."""
    path = checkout / name
    beside = sorted(path.parent.glob("*.py")) if path.suffix == ".py" else [path]
    return [cpio.file(f"lab/{each.relative_to(checkout)}", each.read_bytes()) for each in beside]
