"""The user-mode kernel: Linux as a program of this machine, made from Debian's own source.

The bare machine runs most of its tests on it (bare/). Programs in it run on the processor itself,
and only their system calls and faults cost more. It has the version of the machines' kernel with
another configuration, user_mode/kernel.config, and with the cards of user_mode/soft_card.c.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from kube_base.errors import Broken, Refused
from kube_rdma_lab.build import debian, kernel
from kube_rdma_lab.build.shell import Shell, need
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import PACKAGE

FILES = PACKAGE / "user_mode"
CONFIG, CARD = FILES / "kernel.config", FILES / "soft_card.c"
PROGRAM = "linux"
PROGRAMS = ("tar", "xz", "make", "gcc", "flex", "bison", "bc")
# Headers of hardware, and tests, which no configuration of this kind of kernel reads.
LEFT_OUT = ("drivers/gpu/drm/amd/include", "tools/testing")
ARCHITECTURE = "ARCH=um"
BOGOMIPS = 'seq_printf(m, "bogomips'
# What stands in a file of the source, and what is written in its place.
CHANGES = {
    # The kubelet and perftest read the processor's speed from the kernel, and a user-mode kernel
    # has none. perftest takes what it measures itself where the two differ.
    "arch/um/kernel/um_arch.c": (
        BOGOMIPS,
        f'seq_puts(m, "cpu MHz\\t\\t: 1000.000\\n");\n\t{BOGOMIPS}',
    ),
    # A thread holds its process's mutex while it runs (mmu.c, enter_turnstile), and a mutex that
    # spins makes every other thread burn a processor until then. Only this word lets mutexes spin.
    "arch/x86/um/Kconfig": ("select ARCH_SUPPORTS_ATOMIC_RMW\n", "\n"),
}
RECIPE = "3"


def build(store: Store, resolved: kernel.Resolved, archive: debian.Archive) -> Path:
    """Build and return the user-mode kernel, a program that boots when it is started.

    Raises Refused if one of PROGRAMS is not installed. Raises Broken when the source lacks an
    option or a line of CHANGES. Raises Unavailable when a build step fails or the archive no longer
    has the version.
    """

    def make(folder: Path, shell: Shell) -> None:
        for program in PROGRAMS:
            need(program)
        source = _source(folder / "source", resolved, archive, shell)
        compiled = _compile(source, folder / "build", shell)
        shutil.copy2(compiled, folder / PROGRAM)
        shutil.rmtree(folder / "source")
        shutil.rmtree(folder / "build")

    note = f"{resolved.version}, compiled here"
    return store.get("user-mode-kernel", inputs_of(resolved), make, note) / PROGRAM


def inputs_of(resolved: kernel.Resolved) -> dict[str, str]:
    """Return the inputs that decide the user-mode kernel, except the compiler."""
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (CONFIG, CARD)}
    return {**files, "package": package(resolved), "version": resolved.version, "recipe": RECIPE}


def package(resolved: kernel.Resolved) -> str:
    """Return the name of the Debian package with a kernel's source, such as linux-source-7.3."""
    first, second, *_ = kernel.numbers(resolved.release)
    return f"linux-source-{first}.{second}"


def options(text: str) -> Mapping[str, str]:
    """Parse a kernel configuration; raise Refused for a block without a reason.

    A block, which an empty line ends, begins with a comment that is its reason.
    """
    values: dict[str, str] = {}
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        chosen = [line for line in lines if not line.startswith("#")]
        if chosen and not lines[0].startswith("# "):
            raise Refused(
                f"`{chosen[0]}` begins a block without a reason",
                remedy="Write a comment above the first option of the block",
                where=CONFIG.name,
            )
        pairs = (line.partition("=") for line in chosen)
        values.update((name, value) for name, _, value in pairs)
    return values


def lost(wanted: Mapping[str, str], configuration: str) -> list[str]:
    """Return the wanted options that a configuration written by the kernel's own tool lacks."""
    written = set(configuration.splitlines())
    return [name for name, value in wanted.items() if f"{name}={value}" not in written]


def _source(folder: Path, resolved: kernel.Resolved, archive: debian.Archive, shell: Shell) -> Path:
    """Unpack the kernel's source into `folder`, with CHANGES and the driver of simulated cards."""
    folder.mkdir()
    name = package(resolved)
    archive.refresh(shell)  # the kernel may have been fetched long ago
    wanted = debian.Package(name, resolved.version, "", ())  # apt compares the file's digest
    debian.unpack_packages(archive.download([wanted], folder, shell), folder, shell)
    left_out = [f"--exclude={name}/{path}" for path in LEFT_OUT]
    packed = folder / "usr/src" / f"{name}.tar.xz"
    shell.run(["tar", "-xf", packed, "-C", folder, *left_out])
    drivers = folder / name / "drivers/net"
    shutil.copyfile(CARD, drivers / CARD.name)
    with (drivers / "Makefile").open("a") as makefile:
        makefile.write(f"obj-y += {CARD.stem}.o\n")
    change(folder / name)
    return folder / name


def change(source: Path) -> None:
    """Replace lines of a kernel's source as CHANGES says; raise Broken if one is missing."""
    for path, (before, after) in CHANGES.items():
        text = (source / path).read_text()
        if before not in text:
            raise Broken(f"{path} of {source.name} has no `{before.strip()}`; see CHANGES")
        (source / path).write_text(text.replace(before, after, 1))


def _compile(source: Path, folder: Path, shell: Shell) -> Path:
    """Configure and compile the kernel in `folder`; raise Broken for options it lacks."""
    folder.mkdir()
    wanted = options(CONFIG.read_text())
    chosen = folder / "wanted.config"
    chosen.write_text("".join(f"{name}={value}\n" for name, value in wanted.items()))
    words: list[str | Path] = ["make", "-s", "-C", source, f"O={folder}", ARCHITECTURE]
    shell.run([*words, f"KCONFIG_ALLCONFIG={chosen}", "allnoconfig"])
    if missing := lost(wanted, (folder / ".config").read_text()):
        raise Broken(f"the kernel's source does not have {', '.join(missing)}; see {CONFIG.name}")
    shell.run([*words, f"-j{len(os.sched_getaffinity(0))}", PROGRAM])
    return folder / PROGRAM
