"""Hands and eyes on the machine's kernel: commands, conditions to wait for, where things are."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from kube_rdma.adapters.kernel.netlink.codec import Netlink, decode_attributes
from kube_rdma.hardware.survey import take_survey
from kube_rdma_testing.kernel.network import refusal

CARDS = ("52:54:00:00:00:01", "52:54:00:00:00:02")  # on NUMA nodes 0 and 1
PHYSICAL_FUNCTION = "52:54:00:00:00:03"
NET = Path("/sys/class/net")
AGENT = (sys.executable, "-m", "kube_rdma.cli.main", "agent")
NEWLINK, EXCL, IFNAME = 16, 0x200, 3  # RTM_NEWLINK, NLM_F_EXCL, IFLA_IFNAME
# Seconds for what certainly happens. On the reference Python comes to this line 8 s after
# the kernel began; a machine that took longer to get here takes longer for everything.
STARTED = float(Path("/proc/uptime").read_text().split()[0])
PATIENCE = 60.0 * max(1.0, STARTED / 8.0)


def run(*words):
    """Run a command to its end; what it printed, or its own words of complaint as an error."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr or done.stdout}"
    return done.stdout


def inside(namespace):
    """The words before a command that make it run in a network namespace."""
    return ("ip", "netns", "exec", namespace)


def until(condition):
    """Wait for a condition of the kernel and return what made it true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
    return found


def interface(mac):
    """The name of the card with this MAC; the order in which cards are found is not fixed."""
    # A module of bonds puts a file beside the links, bonding_masters.
    addresses = NET.glob("*/address")
    (name,) = (path.parent.name for path in addresses if path.read_text().strip() == mac)
    return name


def links():
    """The RDMA devices that sysfs shows now."""
    return {path.name for path in Path("/sys/class/infiniband").iterdir()}


def device(survey, name):
    """One device of a survey, None when it is not there."""
    return next((device for device in survey.devices if device.name == name), None)


def port_of(name):
    """The first port of a device in a survey taken now."""
    return device(take_survey(), name).ports[0]


def before_6_15(patch):
    """Answer as such a kernel does (rtnl_newlink): the sender's namespace is looked through."""
    ask = Netlink.ask

    def asked(netlink, kind, body=b"", **how):
        if kind == NEWLINK and how.get("more", 0) & EXCL:
            names = [one.value for one in decode_attributes(body[16:]) if one.type == IFNAME]
            if any((NET / name.rstrip(b"\0").decode()).exists() for name in names):
                raise refusal(errno.EEXIST)
        return ask(netlink, kind, body, **how)

    patch.setattr(Netlink, "ask", asked)


@asynccontextmanager
async def agent(node):
    """The agent until the scope closes; its log is in node/log, its configuration and its
    kubelet beside it.
    """
    options = ("--config", node / "config.json", "--kubelet-root", node / "kubelet")
    with (node / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*AGENT, *map(str, options), stderr=log)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            print((node / "log").read_text())  # shown where the test fails
