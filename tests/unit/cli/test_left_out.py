"""Programs start without the capabilities that stand above them, so that one can be left out."""

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from bench.imports import programs

WITHOUT = """
import sys

absent = sys.argv.pop(1).split(",")


class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"kube_rdma.{package}.") for package in absent):
            raise ModuleNotFoundError(f"{name} is left out")


sys.meta_path.insert(0, Absent())
from kube_rdma.cli.main import main

main()
"""
OF_AGENT = "migrate,explain,doctor,verify,resources,admission,operator,fabric"
OF_CONTROLLER = "migrate,explain,doctor,resources"
OF_DEVICES = (
    "controller,verify,agent,explain,doctor,resources,admission,claims,migrate,reports,operator,"
    "install,attach,metrics,ipam"
)
REFUSED = "rdmaHcaMax: 0 is too small"  # comes after everything was opened


async def start(absent, *words):
    """Start a command without some packages."""
    argv = [sys.executable, "-c", WITHOUT, absent, *words]
    return await asyncio.create_subprocess_exec(*argv, stdout=PIPE, stderr=PIPE)


@pytest.mark.parametrize("name", ["agent", "agent_networks"])
async def test_the_agent_starts(name, tmp_path):
    process = await start(OF_AGENT, *programs(tmp_path)[name][1:], "--no-lldp")
    _, log = await process.communicate()
    assert process.returncode == 3
    assert REFUSED in log.decode()


async def test_the_controller_starts(tmp_path):
    programs(tmp_path)  # writes the kubeconfig of an API server that does not answer
    process = await start(OF_CONTROLLER, "controller", "--kubeconfig", tmp_path / "kubeconfig")
    assert process.stderr
    line = await process.stderr.readline()
    process.terminate()
    await process.communicate()
    assert b"lease not written" in line
    assert process.returncode == 0


async def test_devices_are_shown():
    process = await start(OF_DEVICES, "devices", "--sysfs", "dgx-like")
    page, _ = await process.communicate()
    assert process.returncode == 0
    assert b"8 of 8 devices usable" in page


async def test_without_what_it_needs_it_does_not():
    process = await start("hardware", "devices", "--sysfs", "dgx-like")
    _, log = await process.communicate()
    assert b"kube_rdma.hardware is left out" in log
