"""A plugin of pytest that collects the tests once, and tries each fault in a fork of that process.

Between calls.py and run.py, which starts it. The first run notes which functions of the product
each test calls. Later ones change one function at a time and run the tests that call it, first the
tests that call the fewest functions. A fork has all modules imported already, so a fault costs the
time of its tests alone.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import select
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from kube_rdma_tools.mutants.calls import NOTED

CALLS, FAULTS = "MUTANTS_CALLS", "MUTANTS_FAULTS"
"""Variables that name the folder for what tests call, and the file with the faults to try."""

_PATIENCE = 90.0
"""Seconds within which a test ends; one that takes longer hangs, and so has noticed the fault."""

_IN_PLACE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_OPTIMIZED = 0x1  # CO_OPTIMIZED of a code object (Include/cpython/code.h): no class, no module

setattr(builtins, NOTED, set())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the product's functions that a test and its fixtures call, if `CALLS` is set."""
    calls: set[str] = getattr(builtins, NOTED)
    calls.clear()
    try:
        return (yield)
    finally:
        if folder := os.environ.get(CALLS):
            with (Path(folder) / str(os.getpid())).open("a", encoding="utf-8") as file:
                file.write(json.dumps([item.nodeid, sorted(calls)]) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Try every fault in the file that the variable `FAULTS` names; write each outcome at once.

    Return None without the variable, so that pytest runs the tests.
    """
    if (path := os.environ.get(FAULTS)) is None:
        return None
    if session.testsfailed:
        raise session.Interrupted("a file of tests cannot be collected")
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # noqa: SLF001 - one for all forks
    trial = _Trial(session)
    with Path(f"{path}.outcomes").open("w", encoding="utf-8") as outcomes:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            fault = json.loads(line)
            outcomes.write(json.dumps([fault["number"], trial.noticed_by(fault)]) + "\n")
            outcomes.flush()
    return True


class _Trial:
    """The collected tests and loaded functions of this process, on which faults are tried."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # tests/conftest.py froze what was imported
        self._live: dict[str, list[FunctionType]] = defaultdict(list)  # by file
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._live[one.__code__.co_filename].append(one)
        self._control: dict[str, bool] = {}  # the tests that pass in a fork without a fault
        gc.freeze()

    def noticed_by(self, fault: Mapping[str, Any]) -> str:
        """Return the first test that fails with a fault and passes without it, "" without one.

        Return a sentence in its place if a test does not end, or the process ends before. The file
        has the fault too, for modules that a test imports late and programs that it runs.
        """
        path = Path(fault["path"])
        original, stat = path.read_text(encoding="utf-8"), path.stat()
        changed = changed_functions(original, fault["source"], fault["path"])
        names = [name for name in fault["tests"] if name in self._items]
        while names:
            path.write_text(fault["source"], encoding="utf-8")
            try:
                failed = self._fork(names, self._live[fault["path"]], changed)
            finally:
                path.write_text(original, encoding="utf-8")
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if failed not in self._items or self._passes(failed):
                return failed
            names = names[names.index(failed) + 1 :]
        return ""

    def _passes(self, name: str) -> bool:
        if name not in self._control:
            self._control[name] = not self._fork([name], (), {})
        return self._control[name]

    def _fork(
        self,
        names: Sequence[str],
        functions: Sequence[FunctionType],
        changed: Mapping[CodeType, CodeType],
    ) -> str:
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.setsid()
            for live in functions:
                live.__code__ = changed.get(live.__code__, live.__code__)
            self._run([self._items[name] for name in names], writer)
        os.close(writer)
        text = b""
        while not text.endswith(b"\0"):
            ready, _, _ = select.select([reader], [], [], _PATIENCE)
            part = os.read(reader, 10_000) if ready else b"a test does not end\0"
            text += part or b"the process of the tests ended\0"
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return text.strip(b"\n\0").decode()

    def _run(self, items: Sequence[pytest.Item], writer: int) -> None:
        """Run tests until one fails, write its name or "" to the pipe, and end the process."""
        outcome = ""
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                outcome = item.nodeid
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._session.testsfailed:
                    break
                outcome = ""
                os.write(writer, b"\n")
        finally:
            os.write(writer, outcome.encode() + b"\0")
            os._exit(0)


def changed_functions(before: str, after: str, path: str) -> dict[CodeType, CodeType]:
    """Return old and new code of each outermost function that differs in two sources of a file.

    Raise ValueError if anything else differs, or a function's free variables.
    """
    old, new = (compile(text, path, "exec", dont_inherit=True) for text in (before, after))
    pairs = list(zip(_functions(old), _functions(new), strict=True))
    if _at_import(old) != _at_import(new) or any(a.co_freevars != b.co_freevars for a, b in pairs):
        raise ValueError("the fault is not inside of a function")
    return {one: other for one, other in pairs if _meaning(one) != _meaning(other)}


def _functions(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType) and _is_function(part):
            yield part
        elif isinstance(part, CodeType):
            yield from _functions(part)


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & _OPTIMIZED) and code.co_name not in _IN_PLACE


def _at_import(code: CodeType) -> tuple[object, ...]:
    """Return code and constants that run when a module is imported, without line numbers."""
    parts = [part for part in code.co_consts if not isinstance(part, CodeType)]
    inner = [
        _at_import(part)
        for part in code.co_consts
        if isinstance(part, CodeType) and not _is_function(part)
    ]
    return (code.co_code, code.co_names, code.co_varnames, repr(parts), *inner)


def _meaning(code: CodeType) -> tuple[object, ...]:
    """Return a function's code and constants, nested ones included, without line numbers."""
    parts = [
        _meaning(part) if isinstance(part, CodeType) else repr(part) for part in code.co_consts
    ]
    return (code.co_code, code.co_names, code.co_varnames, code.co_freevars, *parts)
