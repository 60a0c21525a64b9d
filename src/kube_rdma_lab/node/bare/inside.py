"""Plugin of the pytest that runs in the bare machine: says on the console when the tests begin."""

from __future__ import annotations

import time
from pathlib import Path

MODULES = Path("/run/modules")  # made by node/bare/init once all kernel modules are there


def pytest_collection_finish() -> None:
    """Everything is imported, the first test comes next."""
    while not MODULES.exists():  # should one be missing, init ends the machine
        time.sleep(0.02)
    uptime = Path("/proc/uptime").read_text().split()[0]
    with Path("/dev/console").open("w") as console:
        console.write(f"\nlab: stage tests {uptime}\n")
