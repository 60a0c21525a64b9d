"""The scheduler's own allocator as a process, for `tools/boards` and `make bench ARGS=claims`.

The program is tests/lab/native/allocator, around `structured` of the module
k8s.io/dynamic-resource-allocation. It reads lines of JSON with nodes, slices, classes and claims.
It answers each by a line with the devices that each node would give to the claim.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from kube_base.errors import Unavailable

Result: TypeAlias = dict[str, Any]
"""A DeviceRequestAllocationResult of resource.k8s.io/v1, as JSON."""


class Allocator:
    """A running Go program that calls the scheduler's allocator."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._shares = count()

    def results(self, world: str, node: str) -> list[Result]:
        """Return the devices that a node gives to a claim; `world` is a line of JSON on both.

        Raise Unavailable if the allocator gives up. The program leaves out each random `shareID`;
        here they are numbered.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(world)
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())[node]
        if answer.get("aborted"):
            raise Unavailable(f"the allocator gave up: {answer['error']}")
        return [self._shared(one) for one in answer.get("results", ())]

    def _shared(self, result: Result) -> Result:
        if not result.get("consumedCapacity"):
            return result
        return {**result, "shareID": f"00000000-0000-4000-8000-{next(self._shares):012}"}


@contextmanager
def running(program: Path) -> Iterator[Allocator]:
    """Start the allocator's program and yield it; kill it at the end of the context."""
    with subprocess.Popen(
        [program], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield Allocator(process)
        finally:
            process.kill()
