"""Puts the compiled shim into the wheel, one for each machine; run by hatchling.

An editable install gets none: who works on a checkout builds it when it is needed (shim/build.py).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINES = ("x86_64", "aarch64")  # by uname -m
PLACE = "kube_rdma/adapters/cni/conf/shim"  # where adapters/cni/conf/places.py looks


class ShimHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling for each wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling what to take."""
        if version == "editable":
            return
        root = Path(self.root)
        for machine in MACHINES:
            output = root / "build" / "shim" / machine / "kube-rdma"
            output.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, root / "shim/build.py", machine, output], check=True)
            build_data["force_include"][str(output)] = f"{PLACE}/{machine}/kube-rdma"
