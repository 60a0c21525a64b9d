"""The one process that owns a running lab.

`kube-rdma lab up` starts it detached, in network, mount and PID namespaces of its own, and reads
its progress from a pipe. Everything of the lab is below it: when it goes, by request or by force,
the kernel takes processes, taps, bridges and mounts with it (docs/decisions/0004).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from kube_rdma.model.errors import KubeRdmaError
from kube_rdma_lab import accelerator, network, node_files, state, watchdog
from kube_rdma_lab.build.parts import Parts
from kube_rdma_lab.console import Console
from kube_rdma_lab.control_plane import ControlPlane, control_plane
from kube_rdma_lab.machine import Boot, machine
from kube_rdma_lab.pki import write_ssh_key
from kube_rdma_lab.processes import Program, call
from kube_rdma_lab.progress import Event, Phase, PipeReport, Report, step
from kube_rdma_lab.topology import NodeSpec, Topology, find

NODE_SECONDS = 400.0


class Supervisor:
    """Boots one topology in the folder `home` and keeps it until cancelled."""

    def __init__(self, home: Path, topology: Topology, parts: Parts, report: Report) -> None:
        self._home = home
        self._topology = topology
        self._parts = parts
        self._report = report
        self.ready = False

    async def run(self) -> None:
        """Boot, say that the lab is ready, then watch its programs."""
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._parts.held())
            with step(self._report, "accelerator"):
                boot = Boot(self._parts, await accelerator.choose(self._parts))
            with step(self._report, "network"):
                await network.build(self._topology)
            with step(self._report, "control plane"):
                plane = await stack.enter_async_context(control_plane(self._parts.bin, self._home))
            machines = await self._start_nodes(stack, plane, boot)
            async with asyncio.TaskGroup() as group:
                for node, program in machines.items():
                    group.create_task(self._follow(node, program))
            state.update(self._home, phase="up")
            self.ready = True
            self._report(Event("lab", Phase.READY))
            await self._watch((*plane.programs, *machines.values()))

    async def _start_nodes(
        self, stack: contextlib.AsyncExitStack, plane: ControlPlane, boot: Boot
    ) -> dict[NodeSpec, Program]:
        key = write_ssh_key(self._home / "ssh.key")
        machines: dict[NodeSpec, Program] = {}
        for node in self._topology.nodes:
            files = self._home / "nodes" / node.name / "files"
            node_files.write(files, node, self._topology, plane.authority, key)
            machines[node] = await stack.enter_async_context(machine(node, boot, self._home, files))
        return machines

    async def _follow(self, node: NodeSpec, program: Program) -> None:
        """Wait until a node has booted, its kubelet serves and the cluster calls it Ready."""
        console = Console(node.name, program.log)
        with step(self._report, f"{node.name} booted"):
            await watchdog.awake(program, console, NODE_SECONDS, self._report)
        for stage in ("containerd", "kubelet"):
            with step(self._report, f"{node.name} {stage}"):
                await program.until(lambda stage=stage: console.reached(stage), NODE_SECONDS)  # type: ignore[misc]
        with step(self._report, f"{node.name} Ready"):
            await self._until_ready(node)

    async def _until_ready(self, node: NodeSpec) -> None:
        kubectl = (self._parts.bin / "kubectl", f"--kubeconfig={self._home}/pki/admin.kubeconfig")
        for condition in ("create", "condition=Ready"):
            words = ("wait", f"node/{node.name}", f"--for={condition}")
            await call((*kubectl, *words, f"--timeout={NODE_SECONDS:.0f}s"), seconds=NODE_SECONDS)

    async def _watch(self, programs: tuple[Program, ...]) -> None:
        """Record each program that ends by itself; a lab that lost one goes on, and says so."""
        waiting = {asyncio.ensure_future(program.ended()) for program in programs}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                state.add_loss(self._home, str(task.result()))


async def supervise(supervisor: Supervisor, follower: int) -> None:
    """Run the supervisor until SIGTERM or SIGINT cancels it; repeated signals change nothing.

    While the lab boots, so does the end of file on `follower`, the pipe from `up`: nobody waits
    for this lab any more.
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


def first_error(error: BaseException) -> BaseException:
    """Return the error itself, or the first leaf of a task group's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def main(name: str, topology: str, parts: str) -> None:
    """Own a lab; `parts` is the JSON of Parts.

    Progress goes to stdout; the end of stdin tells that nobody follows.

    /proc is still the host's at this point, so its `self` names us as the host knows us; then it
    is replaced by one for our own PID namespace.
    """
    home = state.home(name)
    state.update(home, phase="booting", pid=int(Path("/proc/self").readlink().name))
    os.system("mount -t proc proc /proc")  # noqa: S605 - one fixed word, before any thread
    report = PipeReport(sys.stdout)
    supervisor = Supervisor(home, find(topology), Parts.from_json(parts), report)
    try:
        asyncio.run(supervise(supervisor, sys.stdin.fileno()))
    except (KubeRdmaError, OSError, BaseExceptionGroup) as error:
        leaf = first_error(error)
        report(Event(type(leaf).__name__, Phase.FAILED, note=str(leaf)))
        if not isinstance(leaf, (KubeRdmaError, OSError)):
            raise
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
