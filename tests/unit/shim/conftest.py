"""A folder that stands for the host, and the two shims: the compiled one and the fake."""

import asyncio
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kube_rdma_testing.cni.shim import FakeShim, ShimOutcome

BUILD = Path(__file__).parents[3] / "shim" / "build.py"


class CompiledShim:
    """The real program, built to find the host's folders under `root`."""

    def __init__(self, binary, root, seconds, add_seconds):
        self._binary = binary
        self._environment = {
            "KUBE_RDMA_ROOT": str(root),
            "KUBE_RDMA_TIMEOUT_MS": str(int(seconds * 1000)),
            "KUBE_RDMA_ADD_TIMEOUT_MS": str(int(add_seconds * 1000)),
        }

    async def run(self, environment, config, *argv):
        process = await asyncio.create_subprocess_exec(
            self._binary,
            *argv,
            env={**self._environment, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate(config)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return ShimOutcome(process.returncode, out, err)


@pytest.fixture(scope="session")
def binary(tmp_path_factory):
    """The shim of this machine, compiled for tests."""
    output = tmp_path_factory.mktemp("shim") / "kube-rdma"
    command = [sys.executable, BUILD, platform.machine(), output, "--test"]
    subprocess.run(command, check=True)
    return output


@pytest.fixture
def root():
    """Stands for the host's /; short, for a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="shim-") as folder:
        for name in ("run/kube-rdma/missed", "var/lib/kube-rdma/asking"):
            Path(folder, name).mkdir(parents=True)
        yield Path(folder)


@pytest.fixture(params=["fake", "compiled"])
def make_shim(request, root):
    """Make a shim that waits so many seconds for an answer, and for that to an ADD."""
    if request.param == "fake":
        return lambda seconds=60.0, adds=60.0: FakeShim(root, seconds, adds)
    binary = request.getfixturevalue("binary")
    return lambda seconds=60.0, adds=60.0: CompiledShim(binary, root, seconds, adds)


@pytest.fixture
def shim(make_shim):
    return make_shim()
