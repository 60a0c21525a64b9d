"""Installing locked wheels into a bare folder, with uv and the machine's own pip settings.

The image (product.py) and the root of kernel tests (testroot.py) get their dependencies by it. uv
reads no pip configuration, so an index or a certificate that is set for pip is passed on to uv, as
tools/bootstrap does.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.build.shell import Shell, ask
from kube_rdma_lab.paths import cache_root

# pip's setting -> the variable by which uv knows the same.
SETTINGS = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}


@dataclass(frozen=True, slots=True)
class Target:
    """The platform of wheels to install: a Python version, and uv's name of the platform."""

    python: str
    platform: str


def install_locked(lock: Path, folder: Path, target: Target, shell: Shell) -> None:
    """Install into a folder the wheels of a lock file, whose digests are checked.

    Their commands in bin/ are left out.
    """
    shell.run(
        [
            *(find_uv(), "pip", "install", "--quiet", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "--python-version", target.python),
            *("--python-platform", target.platform, "--python", sys.executable),
            *("--target", folder, "--requirement", lock),
        ],
        env={**uv_settings(), "UV_CACHE_DIR": str(cache_root() / "uv-cache")},
    )
    # Commands of the dependencies, and uv's own lock: nothing in the image runs them.
    shutil.rmtree(folder / "bin", ignore_errors=True)
    (folder / ".lock").unlink(missing_ok=True)


def find_uv() -> Path:
    """Return the path of uv: where tools/bootstrap puts it, else the one on PATH.

    Raise Refused without any.
    """
    own = cache_root() / "uv/bin/uv"
    if own.exists():
        return own
    if executable := shutil.which("uv"):
        return Path(executable)
    raise Refused("there is no uv, which installs the locked wheels", remedy="Run tools/bootstrap")


def uv_settings() -> dict[str, str]:
    """Return uv's settings as variables, taken from pip's where uv has none of its own."""
    pip = cache_root() / "uv/bin/pip"
    listed = ask([pip, "config", "list"]) if pip.exists() else ""
    return {"UV_LINK_MODE": "copy", "UV_NO_PROGRESS": "1", **translated(listed, os.environ)}


def translated(pip_config: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Translate the output of `pip config list` to uv's variables, without those already set."""
    variables: dict[str, str] = {}
    # Sorted, the environment (:env:) comes before files, so it wins as it does for pip.
    for line in sorted(pip_config.splitlines()):
        match = re.fullmatch(r"(?::env:|global|install)\.([\w-]+)='(.*)'", line)
        variable = SETTINGS.get(match[1]) if match else None
        if match and variable and variable not in environment:
            variables.setdefault(variable, match[2])
    return variables
