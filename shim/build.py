"""Compiles the shim: `python shim/build.py MACHINE OUTPUT [--test]`.

One call for everybody who needs it: the wheel (hatch_build.py), the lab's image, tests and the
benchmark. The compiler is the wheel `ziglang`, which knows every target and brings musl with it, so
the binary is static and the same on every machine. It caches; a second call takes no time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = ("main.c", "agent.c", "hook.c", "json.c", "settings.c")
TARGETS = {"x86_64": "x86_64-linux-musl", "aarch64": "aarch64-linux-musl"}  # by uname -m
# Tables to unwind the stack are for C++ and debuggers; those of musl were a sixth of the program.
FLAGS = ("-std=c11", "-Os", "-static", "-s", "-fno-unwind-tables", "-Wall", "-Wextra", "-Werror")


def cache() -> Path:
    """The folder that kube_rdma_lab/paths.py names, whose package a build cannot import."""
    if chosen := os.environ.get("KUBE_RDMA_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "kube-rdma"


def main() -> None:
    """Compile for one machine; a build with --test obeys KUBE_RDMA_ROOT and the two _TIMEOUT_MS."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("machine", choices=TARGETS)
    parser.add_argument("output", type=Path)
    parser.add_argument("--test", action="store_true")
    chosen = parser.parse_args()
    folder = str(cache() / "zig")
    defines = ("-DKUBE_RDMA_TEST",) if chosen.test else ()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[chosen.machine]),
            *FLAGS,
            *defines,
            *(str(HERE / name) for name in SOURCES),
            *("-o", str(chosen.output)),
        ],
        env={"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder, **os.environ},
        check=False,
    )
    sys.exit(done.returncode)


main()
