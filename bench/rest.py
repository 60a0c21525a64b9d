"""What the complete agent costs a node that has nothing to do, with no pod and with 500.

The agent is a process of a checkout, on a node of its own that cannot be told from a real one
(rest_node.py). That of KUBE_RDMA_BESIDE rests in the same minutes. CPU and context switches are
those of all threads, as the kernel counts them for each (/proc/PID/task/*/schedstat and status);
involuntary switches are left out, for they tell how much others wanted the processor. The agent's
longest pause is five minutes, so a window holds all that it does. Memory is VmRSS.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.checkout import HERE, Checkout, checkouts
from bench.context import Context
from bench.figures import Figure
from bench.rest_node import NODE_NAME
from kube_base.errors import Unavailable

IN_TURNS = True
PODS, SETTLE_SECONDS, WINDOW_SECONDS = 500, 75, 320
NETWORKS = ("--role=plugin", "--role=node", "--networks", "--claims", f"--node-name={NODE_NAME}")


@dataclass(frozen=True, slots=True)
class Spent:
    """What all threads of a process have had so far."""

    cpu_ms: float
    switches: int


class Resting:
    """A checkout's agent on a node of its own; with `roles` it is more than the device plugin."""

    def __init__(self, checkout: Checkout, roles: Sequence[str], stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        words = ("unshare", "--net", "--mount", sys.executable, "-m", "bench.rest_node")
        self._node = subprocess.Popen(
            (*words, str(folder), str(checkout.folder / "src/kube_rdma")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "node.log").open("wb"),
            text=True,
            cwd=HERE,
        )
        stack.callback(self._node.wait)
        stack.callback(self._node.kill)
        pid = self._answer()["pid"]
        agent = subprocess.Popen(
            (
                *("nsenter", f"--target={pid}", "--net", "--mount", "--wd=/"),
                *(checkout.program, "agent", *roles),
                *(f"--config={folder}/config.json", f"--kubelet-root={folder}/kubelet"),
                *(f"--kubeconfig={folder}/kubeconfig", f"--state-dir={folder}/state"),
                *(f"--cdi-dir={folder}/cdi", f"--runtime-socket={folder}/runtime.sock"),
                *(f"--socket={folder}/run/kube-rdma/agent.sock", f"--host={folder}/host"),
            ),
            stderr=(folder / "agent.log").open("wb"),
            env=checkout.environment(),
        )
        stack.callback(agent.wait)
        stack.callback(agent.terminate)
        self.pid, self.folder = agent.pid, folder
        self.ask(0)

    def ask(self, pods: int) -> None:
        """Have so many more pods on the node; with none, wait until it offers its cards."""
        assert self._node.stdin
        self._node.stdin.write(f"{pods}\n")
        self._node.stdin.flush()
        self._answer()

    def _answer(self) -> dict[str, int]:
        assert self._node.stdout
        line = self._node.stdout.readline()
        if not line:
            raise Unavailable("the node of the benchmark has ended")
        answer: dict[str, int] = json.loads(line)
        return answer

    def spent(self) -> Spent:
        """Until now; no thread of an agent ends."""
        cpu, switches = 0, 0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            status = (thread / "status").read_text()
            cpu += int((thread / "schedstat").read_text().split()[0])
            waits = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)
            assert waits
            switches += int(waits[1])
        return Spent(cpu / 1e6, switches)

    def resident_mib(self) -> float:
        """What it has in memory."""
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert match
        return int(match[1]) / 1024


def measure(context: Context) -> Iterator[Figure]:
    """Let the agents rest side by side: first without pods, then with them."""
    with ExitStack() as stack:
        plugins = {each: Resting(each, (), stack) for each in checkouts()}
        agents = {each: Resting(each, NETWORKS, stack) for each in checkouts()}
        yield from _rest(agents, 0, context)
        for each, agent in agents.items():
            plugin = plugins[each].resident_mib()
            yield each.named(Figure("resident_plugin_mib", plugin, "MiB", "≤ 40"))
            networks = agent.resident_mib()
            yield each.named(Figure("resident_networks_mib", networks, "MiB", "≤ 46"))
        pods = context.times(PODS)
        for agent in agents.values():
            agent.ask(pods)
        yield from _rest(agents, pods, context)
        for each, agent in agents.items():
            yield each.named(Figure(f"resident_{pods}_mib", agent.resident_mib(), "MiB"))


def _rest(agents: dict[Checkout, Resting], pods: int, context: Context) -> Iterator[Figure]:
    time.sleep(context.times(SETTLE_SECONDS))
    before = {each: agent.spent() for each, agent in agents.items()}
    begin = time.monotonic()
    time.sleep(context.times(WINDOW_SECONDS))
    seconds = time.monotonic() - begin
    for each, agent in agents.items():
        after, first = agent.spent(), before[each]
        cpu = (after.cpu_ms - first.cpu_ms) / seconds
        switches = (after.switches - first.switches) / seconds
        yield each.named(Figure(f"idle_ms_per_second_{pods}", cpu, "ms/s", "≤ 0.5"))
        yield each.named(Figure(f"idle_switches_per_second_{pods}", switches, "/s", "≤ 0.5"))
