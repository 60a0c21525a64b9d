"""The processes of `scale` with agents (scale_agents.py), told the same word at the same time."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import scale_site
from bench.clients import talking, tell
from kube_base.errors import Unavailable
from kube_rdma_lab.lab import Lab

EACH, MOST = 250, 4  # agents of a process, processes

Answer = dict[str, Any]


class Fleet:
    """All agents; `sizes` has how many each process has."""

    def __init__(self, processes: list[subprocess.Popen[str]], sizes: list[int]) -> None:
        self._processes, self.sizes = processes, sizes

    @property
    def count(self) -> int:
        """All agents."""
        return sum(self.sizes)

    def tell(self, *words: object) -> list[Answer]:
        """Tell all processes, then wait for all answers."""
        for process in self._processes:
            tell(process, *words)
        return [_read(process) for process in self._processes]

    def tell_one(self, *words: object) -> Answer:
        """Tell the first process alone."""
        tell(self._processes[0], *words)
        return _read(self._processes[0])

    def traffic(self) -> Traffic:
        """What all agents asked and got since this was asked last."""
        return Traffic(self.tell("traffic"))

    def memory(self) -> float:
        """MiB of all processes."""
        return float(sum(answer["mib"] for answer in self.tell("memory")))


class Traffic:
    """Requests and bytes of all agents together."""

    def __init__(self, answers: list[Answer]) -> None:
        self.requests: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        for answer in answers:
            self.requests.update(answer["requests"])
            self.answers.update(answer["answers"])
            self.changes.update(answer["changes"])
            self.errors.update(answer["errors"])

    def count(self, *words: str) -> int:
        """Requests with all of these words in "verb resource status"."""
        return sum(
            number for key, number in self.requests.items() if all(w in key.split() for w in words)
        )

    def most(self, counter: Counter[str]) -> str:
        """The three largest of a counter, for a note."""
        return ", ".join(f"{number} {key}" for key, number in counter.most_common(3))


@contextmanager
def fleet(lab: Lab, names: list[str], namespace: str = scale_site.SPACE) -> Iterator[Fleet]:
    """Processes with the agents of these nodes, which have not started yet."""
    parts = min(MOST, -(-len(names) // EACH))
    shares = [names[n::parts] for n in range(parts)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_process(lab, share, namespace, number))
            for number, share in enumerate(shares)
        ]
        for process in processes:
            _read(process)
        yield Fleet(processes, [len(share) for share in shares])


@contextmanager
def _process(
    lab: Lab, names: list[str], namespace: str, number: int
) -> Iterator[subprocess.Popen[str]]:
    admin = Path(lab.home) / "pki/admin.kubeconfig"
    words = [
        *("-m", "bench.scale_agents", "--kubeconfig", str(admin), "--namespace", namespace),
        *("--account", scale_site.AGENT, "--folder", str(lab.home / "scale"), *names),
    ]
    with (
        (lab.home / f"agents-{number}.log").open("wb") as log,
        talking(scale_site.inside(lab, *words), log) as process,
    ):
        yield process


def _read(process: subprocess.Popen[str]) -> Answer:
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise Unavailable(f"a process of agents ended with {process.wait()}; see its log")
    answer = json.loads(line)
    assert isinstance(answer, dict)
    return answer
