"""The way to the command that docs/lab.md shows: pip, a checkout, nothing of Debian.

The commands of the page run in a copy of what pip reads. pip itself runs as everywhere, but that it
finds the packages of others here in place of downloading them: no test has a network.
    python3 -m venv .venv
    .venv/bin/pip install .
    export PATH="$PWD/.venv/bin:$PATH"
    kube-rdma doctor --sysfs dgx-cable-out
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig

from kube_rdma_lab.paths import cache_root

from .pages import ROOT, blocks
from .shell import shows

PAGE = "docs/lab.md"
READ = ("src", "shim", "examples", "locks", "tests/data", "README.md", "LICENSE", "hatch_build.py")


def test_pip_makes_the_command_and_its_machines_of_a_checkout(tmp_path):
    for name in (*READ, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=skip, symlinks=True)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    block = next(one for one in blocks(PAGE, (ROOT / PAGE).read_text()) if "pip" in one.text)
    done = subprocess.run(
        ["bash", "-ec", block.text],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # which pip reads as: none
            "PIP_QUIET": "1",
            # The packages that pip would download, and not this checkout.
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "KUBE_RDMA_CACHE": str(cache_root()),  # the plugin is compiled once
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr  # of the doctor, which finds something
    assert shows(block.shown, done.stdout), done.stdout + done.stderr
