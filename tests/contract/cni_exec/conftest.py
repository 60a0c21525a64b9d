"""A folder of CNI plugins that write down what they are told: programs, and fakes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import pytest

from kube_rdma.adapters.cni.plugins import HostPlugins, Plugins, ProcessOutcome
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.attach.steps import CallPlugin, PluginConf
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma_testing.cni.plugins import FakeHost

# It reads its environment as it was given: Python adds to its own.
PROGRAM = """\
#!{python} -IS
import json, os, sys, time
name, answer, record = {name!r}, {answer!r}, {record!r}
text = sys.stdin.read()
with open("/proc/self/environ") as file:
    variables = dict(one.split("=", 1) for one in file.read().split("\\0") if one)
with open(record, "a") as file:
    file.write(json.dumps([name, variables, json.loads(text)]) + "\\n")
sys.stdout.write(answer["out"])
sys.stderr.write(answer["errors"])
sys.stdout.flush()
sys.stderr.flush()
if answer["leaves"] and os.fork() == 0:
    with open(record + ".child", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
if answer["hangs"]:
    time.sleep(600)
if answer["code"] < 0:
    os.kill(os.getpid(), -answer["code"])
sys.exit(answer["code"])
"""


@dataclass(frozen=True)
class Answer:
    """How a plugin answers: `leaves` a child that holds its output open, `hangs` for ever."""

    out: str = '{"cniVersion": "1.0.0"}'
    code: int = 0
    errors: str = ""
    leaves: bool = False
    hangs: bool = False


class RealWorld:
    """Programs in a folder of this machine, the namespace is that of this process."""

    seen = Path(f"/proc/{os.getpid()}/ns/net")

    def __init__(self, folder, root=Path("/")):
        self.folder, self.record = folder / "bin", folder / "calls"
        self.folder.mkdir()
        self.host = self.at(root, 60.0)
        self.plugins = Plugins(self.host)

    def at(self, root, patience):
        """The folder below a root, for a time."""
        return HostPlugins(root, PurePosixPath(self.folder), partial(below, root), patience)

    def put(self, name, answer=None):
        facts = vars(answer or Answer())
        program = PROGRAM.format(
            python=sys.executable, name=name, answer=facts, record=str(self.record)
        )
        path = self.folder / name
        path.write_text(program)
        path.chmod(0o755)

    def remove(self, name):
        (self.folder / name).unlink()

    def impatient(self):
        """Plugins that wait only as long as a plugin needs to begin."""
        return Plugins(self.at(Path("/"), 2.0))

    def child(self):
        """The process that a plugin left, if it came to that."""
        path = Path(f"{self.record}.child")
        return int(path.read_text() or 0) if path.exists() else 0

    def calls(self):
        text = self.record.read_text() if self.record.exists() else ""
        return [tuple(json.loads(line)) for line in text.splitlines()]


class FakeWorld:
    """The same with functions."""

    seen = Path("/run/netns/cni-1")

    def __init__(self, root=Path("/"), *, permitted=True):
        self._calls = []
        inodes = {str(self.seen): 7, str(self.seen.parent): 2}
        self.host = FakeHost({}, inodes.get, str(root), permitted=permitted)
        self.plugins, self.folder = Plugins(self.host), Path(self.host.folder)

    def put(self, name, answer=None):
        answer = answer or Answer()

        def plugin(variables, text):
            self._calls.append((name, dict(variables), json.loads(text)))
            if answer.hangs:
                return None
            return ProcessOutcome(answer.code, answer.out.encode(), answer.errors.encode())

        self.host.plugins[name] = plugin

    def remove(self, name):
        del self.host.plugins[name]

    def impatient(self):
        return self.plugins

    def calls(self):
        return self._calls


def below(root, path):
    """A path of the host as it is reached from here."""
    return root / path.relative_to("/")


def may_chroot():
    """Whether this process has CAP_SYS_CHROOT, the 18th capability."""
    status = Path("/proc/self/status").read_text()
    return bool(int(re.search(r"CapEff:\s*([0-9a-f]+)", status)[1], 16) >> 18 & 1)


needs_root = pytest.mark.skipif(not may_chroot(), reason="only root may change its root")


@pytest.fixture(params=["fake", "real", pytest.param("below a root", marks=needs_root)])
def world(request, tmp_path):
    """A host with an empty folder; the last one is this machine's root by another name."""
    if request.param == "fake":
        yield FakeWorld()
        return
    root = Path("/proc/self/root") if request.param == "below a root" else Path("/")
    found = RealWorld(tmp_path, root)
    yield found
    if child := found.child():
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.fixture
def sandbox(world):
    """A pod's, with the namespace that the world's plugins see."""
    return sandbox_in(world)


def sandbox_in(world, **facts):
    inode = world.host.inode(str(world.seen))
    facts = {"netns_path": str(world.seen), "netns_inode": inode, **facts}
    return Sandbox(ContainerId("c1"), PodName("default", "train-0"), "uid-1", **facts)


def call(*types, version="1.0.0", check=True):
    """An interface that these plugins make."""
    plugins = tuple(PluginConf(one, json.dumps({"type": one}).encode()) for one in types)
    return CallPlugin(InterfaceName("net1"), plugins, version, check)
