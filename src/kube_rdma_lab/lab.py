"""Starts, finds, enters and ends labs, as users and tests ask for it.

Runs in the caller's process. `up` builds missing parts, then starts the supervisor detached and
follows it until the nodes are Ready. Everything else finds the running lab by its state.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab import build, gates, pace, preflight, progress, relay, state, topology
from kube_rdma_lab.native import cgroups
from kube_rdma_lab.native import node as native
from kube_rdma_lab.processes import tail
from kube_rdma_lab.progress import Phase
from kube_rdma_lab.topology import NodeKind, NodeSpec

DEFAULT_NAME = "lab"
SSH_OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=accept-new",
    "LogLevel=ERROR",
    "ControlMaster=auto",
    "ControlPersist=600",
    # A node that was rebooted leaves a connection that nobody ends; it resets it at the next probe.
    # A node that is only slow answers late, so the limit is an hour: callers have their own.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=720",
)


@dataclass(frozen=True, slots=True)
class Lab:
    """A running lab, with what programs on the host need to use it."""

    home: Path
    state: state.State

    @property
    def topology(self) -> topology.Topology:
        """Return the topology of the lab: its nodes and their cards."""
        return topology.find(self.state.topology)

    @property
    def api(self) -> str:
        """Return the API server's URL for programs on the host."""
        return f"https://{relay.HOST}:{self.state.port}"

    def consoles(self) -> Iterator[Path]:
        """Yield the paths of the nodes' console logs."""
        yield from (self.home / "logs").glob("*.console.log")

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the admin's kubeconfig for programs on the host."""
        return self.home / "pki" / "host.kubeconfig"

    def enter(self) -> list[str]:
        """Return the command prefix that runs a command inside the lab's namespaces.

        The PID namespace is one of them, so that whatever stays behind (an SSH master) ends with
        the lab.
        """
        return ["nsenter", f"--target={self.state.pid}", "--net", "--mount", "--pid", "--"]

    def kubectl(self, *words: str) -> list[str]:
        """Return the command line of kubectl as the cluster's admin, on the host.

        So paths, pipes and the folder are the caller's. Its cache is the lab's: another lab may
        have had the same port, and other kinds.
        """
        own = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.home}/kubectl")
        return [f"{self.state.binaries}/kubectl", *own, *words]

    def node(self, name: str) -> NodeSpec:
        """Return a node by its name; raise Refused when there is none."""
        nodes = {node.name: node for node in self.topology.nodes}
        if name not in nodes:
            raise Refused(
                f"the lab {self.state.name!r} has no node {name!r}",
                remedy=f"Choose one of {', '.join(nodes)}" if nodes else "Its topology has none",
            )
        return nodes[name]

    def on_node(self, node: str, *words: str) -> list[str]:
        """Return the command line that runs words (or, without any, a shell) on a node."""
        spec = self.node(node)
        if spec.kind is NodeKind.NATIVE:
            return [*self.enter(), *native.enter(self.home, spec), *(words or ("bash", "-l"))]
        return self._ssh(spec.ip, *words)

    def _ssh(self, address: str, *words: str) -> list[str]:
        options = (
            *SSH_OPTIONS,
            f"ControlPath={self.home}/ssh-%h",
            f"UserKnownHostsFile={self.home}/known_hosts",
        )
        argv = [*self.enter(), "ssh", "-i", f"{self.home}/ssh.key"]
        for option in options:
            argv += ["-o", option]
        return [
            *argv,
            f"root@{address}",
            *([shlex.join(words)] if words else ["-t", "bash -l"]),
        ]


def find(name: str) -> Lab:
    """Return the running lab of a name; raise Refused if none runs, Unavailable before it is up."""
    home = state.home(name)
    current = state.read(home)
    if not state.is_held(home) or current is None:
        raise Refused(f"no lab {name!r} is running", remedy=f"Start it: {up_command(name)}")
    if current.phase != "up":
        raise Unavailable(f"the lab {name!r} is still {current.phase}; wait until it is up")
    return Lab(home, current)


def up_command(name: str) -> str:
    """Return the command that starts a lab of this name, for messages."""
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    return f"`kube-rdma lab up{option}`"


def up(
    name: str,
    topology_name: str,
    binaries: Path | None,
    report: progress.Report,
    *,
    images: Sequence[Path] = (),
) -> Lab:
    """Build what is missing, start a lab, and return it once its nodes are Ready.

    `binaries` is a folder of ready-made ones, None to build them; `images` are image files that its
    nodes have besides the lab's own. Raise Refused when one of that name is running already, or for
    what the user must change. Raise Unavailable or Broken when the build or the boot fails.
    """
    wanted = topology.find(topology_name)
    preflight.check(wanted)
    home = state.home(name)
    with state.lock(home) as descriptor:
        _clear(home)
        for folder in ("logs", "nodes"):
            (home / folder).mkdir(parents=True, mode=0o700)
        state.write(home, state.State(name, wanted.reference, os.getpid(), "building", time.time()))
        slowness = pace.measure()
        report(progress.Event(pace.describe(slowness), Phase.DONE))
        parts = build.build(
            build.Demand(wanted.kinds, wanted.release, wanted.wants_drivers),
            _build_report(report),
            bin_dir=binaries,
            archives=images,
        )
        gates.check(wanted, parts.bin)
        with relay.listen() as host:
            facts = {"binaries": str(parts.bin), "port": host.getsockname()[1], "pace": slowness}
            state.update(home, **facts)
            words = (name, wanted.reference, parts.to_json(), str(host.fileno()))
            _start(home, words, (descriptor, host.fileno()), report)
    return find(name)


def _build_report(report: progress.Report) -> Callable[[build.BuildEvent], None]:
    """Return a listener to build events that reports each artifact as a step."""
    phases = {"building": Phase.STARTED, "built": Phase.DONE, "cached": Phase.CACHED}

    def listen(event: build.BuildEvent) -> None:
        report(progress.Event(event.name, phases[event.state], event.seconds, event.note))

    return listen


def _start(
    home: Path, words: Sequence[str], inherited: Sequence[int], report: progress.Report
) -> None:
    """Start the supervisor in namespaces of its own and follow it until the lab is ready.

    The supervisor inherits the lock and the host's socket. Two pipes bind it to the caller. Until
    the lab is ready, the end of its stdin (the caller was interrupted or killed) ends the boot. The
    end of its stdout means that it is gone.
    """
    detached = ("setsid", "--fork")
    isolated = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--")
    program = (sys.executable, "-P", "-m", "kube_rdma_lab.supervisor")
    log = home / "logs" / "supervisor.log"
    with (
        log.open("ab") as sink,
        subprocess.Popen(
            (*detached, *isolated, *program, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            pass_fds=inherited,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            progress.follow(process.stdout, report)
        except BaseException as error:
            process.stdin.close()
            process.stdout.read()
            if isinstance(error, Unavailable) and log.stat().st_size:
                raise Unavailable(f"{error}\n{tail(log)}") from error
            raise


def down(name: str) -> bool:
    """Take a lab down, running or left over; return False when there was nothing to do."""
    home = state.home(name)
    if state.is_held(home):
        state.end(home)
    return _clear(home)


def _clear(home: Path) -> bool:
    """Remove a lab's control groups and its folder; return False if there was no folder."""
    cgroups.remove_all(home)
    return state.clear(home)
