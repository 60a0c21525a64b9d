"""The one process that owns a running lab.

`kube-rdma lab up` starts it detached, in network, mount and PID namespaces of its own, and reads
its progress from a pipe. Everything of the lab is below it. When it ends, by request or by force,
the kernel takes processes, taps, bridges and mounts with it (docs/decisions/0004).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import sys
import time
from pathlib import Path

from kube_base.errors import KubeError, Unavailable
from kube_rdma_lab import (
    accelerator,
    cables,
    gates,
    lldp,
    network,
    node_files,
    pace,
    signs,
    state,
    switch,
    watchdog,
)
from kube_rdma_lab.api_client import ApiClient
from kube_rdma_lab.build.parts import Parts
from kube_rdma_lab.console import Console
from kube_rdma_lab.control_plane import control_plane
from kube_rdma_lab.kubeconfig import SERVER
from kube_rdma_lab.machine import Boot, machine
from kube_rdma_lab.native import cgroups
from kube_rdma_lab.native import node as native
from kube_rdma_lab.patience import Patience
from kube_rdma_lab.pki import write_ssh_key
from kube_rdma_lab.processes import Program, running, weigh_session
from kube_rdma_lab.progress import Event, Phase, PipeReport, Report, step
from kube_rdma_lab.topology import NodeKind, NodeSpec, Topology, find


class Supervisor:
    """A supervisor of the lab in the folder `home`: boots a topology, keeps it until cancelled.

    `host` is a listening socket of the host, where the API server is relayed (relay.py).
    """

    def __init__(
        self, home: Path, topology: Topology, parts: Parts, host: socket.socket, report: Report
    ) -> None:
        self._home = home
        self._topology = topology
        self._parts = parts
        self._host = host
        self._slowness = _slowness(home)
        self._report = report
        self.ready = False

    async def run(self) -> None:
        """Boot the lab, report that it is ready, then watch its programs until cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._parts.held())
            boot = None
            if self._parts.machine:
                chosen: tuple[str, ...] = ()
                if NodeKind.MACHINE in self._topology.kinds:
                    with step(self._report, "accelerator"):
                        chosen = await accelerator.choose(self._parts.machine, self._slowness)
                boot = Boot(self._parts.machine, chosen)
            with step(self._report, "network"):
                shown = native.write_cards(self._home, self._topology)
                await network.build(self._topology, shown)
                cables.write(self._home, cables.of(self._topology, shown))
                leaves = await self._start_leaves(stack)
            nodes = await self._start_natives(stack)
            with step(self._report, "control plane"):
                plane = await stack.enter_async_context(
                    control_plane(
                        self._topology, self._parts.bin, self._home, self._host, self._slowness
                    )
                )
            gated = gates.of("kubelet", self._topology, self._parts.bin)
            for node in self._topology.nodes:
                node_files.write_kubernetes(
                    self._files(node), node, plane.authority, self._parts.release, gated
                )
            if boot:
                nodes |= await self._start_machines(stack, boot)
            async with asyncio.TaskGroup() as group:
                for node, program in nodes.items():
                    group.create_task(self._follow(node, program))
            if boot:
                self._report(Event(pace.describe(self._slowness, "machines"), Phase.DONE))
            switched = [nodes[node] for node in self._topology.machines]
            programs = (*plane.programs, *leaves)
            await stack.enter_async_context(switch.listening(self._home, (*programs, *switched)))
            state.update(self._home, phase="up", pace=self._slowness)
            self.ready = True
            self._report(Event("lab", Phase.READY))
            await self._watch((*programs, *nodes.values()))

    def _files(self, node: NodeSpec) -> Path:
        return self._home / "nodes" / node.name / "files"

    async def _start_leaves(self, stack: contextlib.AsyncExitStack) -> tuple[Program, ...]:
        """Start the program that sends LLDP for the leaf switches, if the topology has any."""
        if not self._topology.leaves:
            return ()
        seconds = str(self._topology.lldp_seconds)
        argv = (sys.executable, "-P", "-m", lldp.__name__, self._home, seconds)
        log = self._home / "logs" / f"{lldp.PROGRAM}.log"
        return (await stack.enter_async_context(running(lldp.PROGRAM, argv, log)),)

    async def _start_natives(self, stack: contextlib.AsyncExitStack) -> dict[NodeSpec, Program]:
        """Start native nodes, whose kubelets wait for the control plane; return their programs."""
        nodes = self._topology.natives
        for node in nodes:
            node_files.write(self._files(node), node, self._topology)
        stack.callback(cgroups.remove_all, self._home)
        cgroups.make_all(self._home, [node.name for node in nodes])
        starting = {
            node: native.native_node(node, self._parts, self._home, self._files(node))
            for node in nodes
        }
        return {node: await stack.enter_async_context(each) for node, each in starting.items()}

    async def _start_machines(
        self, stack: contextlib.AsyncExitStack, boot: Boot
    ) -> dict[NodeSpec, Program]:
        """Write the files of all machines and boot them; return their programs."""
        key = write_ssh_key(self._home / "ssh.key")
        programs: dict[NodeSpec, Program] = {}
        for node in self._topology.machines:
            files = self._files(node)
            node_files.write(files, node, self._topology)
            node_files.write_ssh(files, key)
            started = machine(node, boot, self._home, files)
            programs[node] = await stack.enter_async_context(started)
        return programs

    async def _follow(self, node: NodeSpec, program: Program) -> None:
        """Wait until a node has booted and is Ready; start a silent machine anew (watchdog.py)."""
        console = Console(node.name, program.log)
        with step(self._report, f"{node.name} booted"):
            if node.kind is not NodeKind.NATIVE:
                begin = time.monotonic()
                await watchdog.awake(program, console, self._report, self._slowness)
                # Emulation may be slower than the pace says; all later waits know that.
                booted_in = pace.of_boot(time.monotonic() - begin)
                self._slowness = max(self._slowness, booted_in)
            else:
                booted = functools.partial(console.reached, watchdog.BOOTED)
                await program.until(booted, Patience(self._slowness))
                native.write_pid(self._home, node, program)
        for stage in ("containerd", "kubelet"):
            with step(self._report, f"{node.name} {stage}"):
                reached = functools.partial(console.reached, stage)
                await program.until(reached, Patience(self._slowness))
        with step(self._report, f"{node.name} Ready"):
            await self._until_ready(node, program)

    async def _until_ready(self, node: NodeSpec, program: Program) -> None:
        client, patience = ApiClient(self._home / "pki", SERVER), Patience(self._slowness)

        async def ready() -> bool:
            nodes = await asyncio.to_thread(client.items, signs.PATHS["nodes"])
            own = [each for each in nodes if each["metadata"]["name"] == node.name]
            if patience.lost(signs.facts({"nodes": own})):
                raise Unavailable(f"{node.name} is not Ready; see `kube-rdma lab logs`")
            return any(signs.is_ready(each) for each in own)

        # Its console may be silent now: what counts is what its kubelet says of it.
        await program.until(ready)

    async def _watch(self, programs: tuple[Program, ...]) -> None:
        """Record each program that ends unasked in the state; the lab goes on without it."""
        waiting = {asyncio.ensure_future(program.ended()) for program in programs}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                state.add_loss(self._home, str(task.result()))


async def supervise(supervisor: Supervisor, follower: int) -> None:
    """Run the supervisor until SIGTERM or SIGINT cancels it.

    A further signal cuts the wait for one program's end short. Until the lab is ready, the end of
    file on `follower`, the pipe from `up`, cancels it too.
    """
    task = asyncio.ensure_future(supervisor.run())
    loop = asyncio.get_running_loop()

    def abandoned() -> None:
        loop.remove_reader(follower)
        if not supervisor.ready:
            task.cancel()

    loop.add_reader(follower, abandoned)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _slowness(home: Path) -> float:
    """Return the pace that `lab up` has stored in the lab's state; 1.0 without a state."""
    current = state.read(home)
    return current.pace if current else 1.0


def first_error(error: BaseException) -> BaseException:
    """Return the first exception in nested exception groups, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main(name: str, topology: str, parts: str, host: str) -> None:
    """Run a lab's supervisor; `parts` is the JSON of Parts, `host` a listening socket's descriptor.

    Progress goes to stdout; the end of stdin means that nobody follows. At first /proc is the
    host's, so its `self` gives our pid on the host. Then it is replaced by one for our own PID
    namespace.
    """
    home = state.home(name)
    state.update(home, phase="booting", pid=int(Path("/proc/self").readlink().name))
    weigh_session()
    os.system("mount -t proc proc /proc")  # noqa: S605 - one fixed word, before any thread
    report = PipeReport(sys.stdout)
    listening = socket.socket(fileno=int(host))
    supervisor = Supervisor(home, find(topology), Parts.from_json(parts), listening, report)
    try:
        asyncio.run(supervise(supervisor, sys.stdin.fileno()))
    except (KubeError, OSError, BaseExceptionGroup) as error:
        leaf = first_error(error)
        report(Event(type(leaf).__name__, Phase.FAILED, note=str(leaf)))
        if not isinstance(leaf, (KubeError, OSError)):
            raise
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
