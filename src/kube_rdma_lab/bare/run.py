"""One run of kernel tests: sources and tests go in behind the initramfs, JUnit comes out on a disk.

Called by the outer pytest run, once. The parts come from the store (build/testroot.py) and are
the same until kernel, Debian or locks change; an edited test costs no build.
"""

from __future__ import annotations

import asyncio
import os
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from kube_rdma.model.errors import Unavailable
from kube_rdma_lab import accelerator, paths
from kube_rdma_lab.bare import junit
from kube_rdma_lab.bare.machine import command_line
from kube_rdma_lab.build import cpio, product, testroot
from kube_rdma_lab.build.initrd import NODE
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.build.store import Report, silent
from kube_rdma_lab.console import Console
from kube_rdma_lab.processes import running, tail
from kube_rdma_lab.watchdog import awake

NAME = "the bare machine"
INSIDE = NODE / "bare"
UP_SECONDS = 120.0
RUN_SECONDS = 600.0
JUNIT = "junit.xml"
LEFT_BEHIND = (JUNIT, "kernel.log")
RESULTS_SIZE = 64 << 20  # a sparse file: room for a JUnit file and logs


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run: seconds until the first test began, until off, results by node id."""

    up_seconds: float
    seconds: float
    results: Mapping[str, junit.Result]
    home: Path  # console.log, junit.xml, kernel.log


def run(checkout: Path, tests: Sequence[str], home: Path, report: Report = silent) -> Run:
    """Run the tests of these node ids in a new machine and return what came of them.

    `checkout` is the root of the sources, `home` a folder for what the run leaves. Raises Refused
    where no machine can be built, Unavailable when it does not boot, does not end or tells nothing.
    """
    home.mkdir(parents=True, exist_ok=True)
    results, console = home / "results.tar", home / "console.log"
    console.write_bytes(b"")
    with results.open("wb") as disk:
        disk.truncate(RESULTS_SIZE)
    with open_store(report) as store:
        parts = testroot.build(store, checkout)
        initrd = home / "initrd"
        own = cpio.archive(files(checkout, tests))
        initrd.write_bytes(parts.initrd.read_bytes() + own)
        argv = command_line(parts, accelerated(), initrd, results)
        up_seconds, seconds = asyncio.run(_follow(argv, console))
    initrd.unlink()
    return Run(up_seconds, seconds, unpack(results, home, console), home)


def accelerated() -> tuple[str, ...]:
    """Return QEMU's options: KVM where a lab has found that it works, emulation elsewhere."""
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) and paths.cache_root().exists()
    return accelerator.KVM if usable and accelerator.recall() else accelerator.EMULATION


async def _follow(argv: Sequence[str], console: Path) -> tuple[float, float]:
    """Run the machine to its end; return when the first test began, and when it was off."""
    begin = time.monotonic()
    stages = Console(NAME, console)
    async with running(NAME, argv, console) as program:
        await awake(program, stages, UP_SECONDS, lambda _: None)  # the console's log tells it
        await program.until(lambda: stages.reached("tests"), UP_SECONDS)
        up_seconds = time.monotonic() - begin
        try:
            await asyncio.wait_for(program.ended(), RUN_SECONDS)
        except TimeoutError:
            raise Unavailable(
                f"{NAME} still ran after {RUN_SECONDS:.0f} s; {console}:\n{tail(console)}"
            ) from None
    return up_seconds, time.monotonic() - begin


def files(checkout: Path, tests: Iterable[str]) -> list[cpio.Entry]:
    """Return what travels with a run: sources, tests, their names, and what starts them."""
    entries = [cpio.file(f"lab/src/{name}", data) for name, data in product.source_files().items()]
    # The agent tells its version, as it does in the image.
    about = f"Metadata-Version: 2.1\nName: kube-rdma\nVersion: {version('kube-rdma')}\n"
    dist_info = f"lab/src/kube_rdma-{version('kube-rdma')}.dist-info"
    entries.append(cpio.file(f"{dist_info}/METADATA", about.encode()))
    for path in ("pyproject.toml", *sorted({test.partition("::")[0] for test in tests})):
        entries += _with_neighbours(checkout, path)
    entries.append(cpio.file("lab/tests.txt", "".join(f"{test}\n" for test in tests).encode()))
    entries.append(cpio.file("lab/inside.py", (INSIDE / "inside.py").read_bytes()))
    # In the place of the node's first program, which this machine does not need.
    entries.append(cpio.file("node/usr/sbin/lab-init", (INSIDE / "init").read_bytes(), 0o755))
    return list({entry.path: entry for entry in entries}.values())


def _with_neighbours(checkout: Path, name: str) -> list[cpio.Entry]:
    """Return a file, and of a test the other modules of its folder: fixtures and helpers."""
    path = checkout / name
    beside = sorted(path.parent.glob("*.py")) if path.suffix == ".py" else [path]
    return [cpio.file(f"lab/{each.relative_to(checkout)}", each.read_bytes()) for each in beside]


def unpack(results: Path, home: Path, console: Path) -> dict[str, junit.Result]:
    """Take the files off the results disk and read the JUnit file; Unavailable without one."""
    try:
        # Not compressed, and said so: trying every method on an empty disk takes seconds.
        with tarfile.open(results, "r:") as archive:
            for name in LEFT_BEHIND:
                member = archive.extractfile(f"./{name}")
                assert member is not None
                (home / name).write_bytes(member.read())
    except (KeyError, OSError, tarfile.TarError) as error:
        raise Unavailable(
            f"{NAME} left no results, it crashed or hung; {console}:\n{tail(console)}"
        ) from error
    results.unlink()
    return junit.read((home / JUNIT).read_text())
