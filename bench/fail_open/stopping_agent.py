"""kube-rdma's agent, with a place to wait at each step of an attach: the program of the rig's pods.

It is the agent of the image that it runs in. Nothing is other than there but that it looks, behind
each step, whether the file `trap` names that step. Then it renames the file to `reached`, for the
first one to come, and waits until there is a file `go`. What happens meanwhile comes from outside,
unless `go` says `memory`: then it takes memory until the kernel ends it. It is a file of its own in
the image, so it imports nothing of the bench. Where no trap is laid, a step costs one failed open.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

FOLDER = Path("/run/fail-open")
LONGEST_SECONDS = 120.0  # then it goes on: whoever laid the trap is gone
MOST_MEMORY = 1 << 30  # a driver without a limit is to end no machine
PIECE = 8 << 20

Name = Callable[..., str]

HANDLERS = "kube_rdma.agent.handlers:Handlers"
CLAIMS = "kube_rdma.claims.prepared_claims:PreparedClaims"
ATTACH = "kube_rdma.attach"
# step, module and class, method, before it or behind it
POINTS = (
    ("allocate", HANDLERS, "_allocate", True),
    ("allocated", HANDLERS, "_allocate", False),
    ("prepare", CLAIMS, "prepare", True),
    ("prepared", CLAIMS, "prepare", False),
    ("asked", f"{ATTACH}.calls:SandboxNetworks", "request", True),
    ("begun", f"{ATTACH}.executor:PlanExecutor", "begin", False),
    ("addressed", f"{ATTACH}.attach:AttachPipeline", "_allocate", False),
    ("made", f"{ATTACH}.attach:AttachPipeline", "_make", False),
    ("told", f"{ATTACH}.calls:SandboxNetworks", "report", False),
    ("complete", f"{ATTACH}.executor:AttachmentJournal", "complete", False),
    ("start", HANDLERS, "_start", True),
    ("started", HANDLERS, "_start", False),
)
RECORDS = (f"{ATTACH}.executor:AttachmentJournal", "begin")
STEPS = ("kube_rdma.adapters.kernel.pod.steps:_LivePod", "run")


def stop(step: str) -> None:
    """Wait here if it is this step that somebody waits for."""
    trap, reached, go = (FOLDER / name for name in ("trap", "reached", "go"))
    try:
        if trap.read_text().strip() != step:
            return
        trap.rename(reached)
    except FileNotFoundError:
        return  # no trap, or another thread was first
    until = time.monotonic() + LONGEST_SECONDS
    while not go.exists():
        if time.monotonic() > until:
            return
        time.sleep(0.005)
    order = go.read_text().strip()
    reached.unlink()
    if order == "memory":
        _take_memory()


def _take_memory() -> None:
    """Until the kernel ends this process."""
    pieces: list[bytes] = []
    while len(pieces) * PIECE < MOST_MEMORY:
        pieces.append(b"\1" * PIECE)
    sys.exit("this agent has no limit of memory")


def lay(owner: type, method: str, name: Name, *, before: bool) -> None:
    """Have a method stop before it, or behind it when it has not failed."""
    original = getattr(owner, method)

    @wraps(original)
    def plain(*args: Any, **named: Any) -> Any:
        if before:
            stop(name(*args))
        result = original(*args, **named)
        if not before:
            stop(name(*args))
        return result

    @wraps(original)
    async def awaited(*args: Any, **named: Any) -> Any:
        if before:
            stop(name(*args))
        result = await original(*args, **named)
        if not before:
            stop(name(*args))
        return result

    setattr(owner, method, awaited if inspect.iscoroutinefunction(original) else plain)


def owner(place: str) -> type:
    """The class that `module:Class` names."""
    module, _, name = place.partition(":")
    named: type = getattr(importlib.import_module(module), name)
    return named


def _constant(step: str) -> Name:
    return lambda *_: step


def _of_record(_: object, __: object, attachment: Any) -> str:
    """The plan is on the disk, and nothing of it has been done."""
    return "planned" if attachment.plans else ""


def _of_step(_: object, step: object) -> str:
    """A Step in the kernel."""
    return type(step).__name__


def main() -> None:
    """The command of the image, with all points laid."""
    from kube_rdma.cli.main import main as command  # the image's, not the tests'

    for step, place, method, before in POINTS:
        lay(owner(place), method, _constant(step), before=before)
    lay(owner(RECORDS[0]), RECORDS[1], _of_record, before=False)
    lay(owner(STEPS[0]), STEPS[1], _of_step, before=False)
    command()


if __name__ == "__main__":
    main()
