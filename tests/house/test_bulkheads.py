"""No part of a program stands outside of the walls: what is started as a task is `kept`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from .tree import PRODUCT, is_generated, texts

# Tasks of these are no parts: their failure reaches who started them, who is `kept`.
INSIDE = {
    "kube_client/calls.py": "the next line of one stream; who reads it waits for it",
    "kube_client/pod_commands.py": "one command; who runs it waits for it",
    "adapters/cni/socket.py": "one connection, `contained`",
    "adapters/grpc_calls.py": "one call; who makes it waits for it",
    "adapters/kubelet/device_plugin.py": "inside of the server of one resource",
    "adapters/kubelet/rpc.py": "inside of the start of one server",
    "verify/pairs.py": "one pair; who measures waits for it",
    "verify/bandwidth_checks.py": "one check, in a wall of its own",
    "doctor/evidence.py": "a command, which waits for it",
    "ipam/node_addresses.py": "one request; who asks waits for it",
    "controller/leadership.py": "the work of the lead, which is waited for",
    "lib/logs.py": "the whole program",
    "attach/attach.py": "one act of an attachment, which waits for it",
    "agent/changes.py": "one change of functions, `contained`",
    "hardware/watch.py": "a command, which waits for them",
}


def outside(tree: ast.AST) -> Iterator[int]:
    """Lines that start a task which is not `kept`."""
    names = {
        node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and _is_kept(node.value)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in {"create_task", "ensure_future"}:
            continue
        (work, *_) = node.args
        if not _is_kept(work) and not (isinstance(work, ast.Name) and work.id in names):
            yield node.lineno


def _is_kept(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "kept"


@cache
def bare() -> dict[str, list[int]]:
    """Such lines of the product, by file."""
    found = {
        name.removeprefix("src/").removeprefix("kube_rdma/"): list(outside(ast.parse(text)))
        for name, text in texts(*PRODUCT)
        if name.endswith(".py")
        and not is_generated(name)
        and any(word in text for word in ("create_task", "ensure_future"))
    }
    return {name: lines for name, lines in found.items() if lines}


def test_every_part_is_kept() -> None:
    """A file with tasks that are no parts says in INSIDE who hears of their failure."""
    assert not {name: lines for name, lines in bare().items() if name not in INSIDE}


def test_each_exception_is_one() -> None:
    """A file without such tasks leaves the list."""
    assert bare().keys() == INSIDE.keys()


def test_planted_faults_are_found() -> None:
    """A bare task is named; one that is kept, by its place or by its name, is not."""
    assert list(outside(ast.parse("tasks.create_task(part.run())"))) == [1]
    assert list(outside(ast.parse("asyncio.ensure_future(work)"))) == [1]
    kept = "run = kept('a', part.run)\ntasks.create_task(run)\ntasks.create_task(kept('b', f))"
    assert not list(outside(ast.parse(kept)))
