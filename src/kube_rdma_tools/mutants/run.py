"""Puts drawn faults into copies of the source, one at a time, and runs the tests on them.

It stands between places.py, which says where faults may be, and __main__.py, which shows them. One
run of all tests on a noting copy (calls.py) says which test calls which function. Hosts (host.py)
then try faults inside of functions. A fault in code that runs at import needs a process of its own,
with the tests that call or import the file. The checkout stays as it is; the tests are its own, and
import a copy by PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma_tools.mutants.calls import noting
from kube_rdma_tools.mutants.faults import Mutation, faults
from kube_rdma_tools.mutants.host import CALLS, FAULTS, changed_functions

TESTS = ("tests/unit", "tests/model")
_PYTEST = ("-q", "-p", "no:cacheprovider", "--hypothesis-profile=quick")
_UNIT = ("-m", "not slow and not lab")
_HOST = ("-p", "kube_rdma_tools.mutants.host")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_PATIENCE = 1200.0  # seconds for the tests of one fault, which may make a program loop for ever


class DrawnFault(Frozen):
    """A fault that was drawn at random for a run; its file is relative to the checkout."""

    file: Path
    fault: Mutation


class MutationOutcome(Frozen):
    """The outcome of a fault: the test that failed or what ended the tests, "" if all passed."""

    drawn: DrawnFault
    noticed_by: str


class _Calls(Frozen):
    """The functions that each test calls, as ``FILE NAME``, recorded in one run of all tests."""

    of_test: dict[str, frozenset[str]]

    def tests(self, functions: Sequence[str]) -> list[str]:
        """Return the tests that call one of these functions, those that call the fewest first."""
        chosen = [name for name, called in self.of_test.items() if called & frozenset(functions)]
        return sorted(chosen, key=lambda name: (len(self.of_test[name]), name))

    def files(self, file: Path, checkout: Path) -> list[str]:
        """Return the test files that call a function of a file, or contain its module's name."""
        prefix, module = f"{file} ", ".".join(file.with_suffix("").parts[1:])
        functions = {name for called in self.of_test.values() for name in called}
        calling = self.tests([name for name in functions if name.startswith(prefix)])
        names = [name.partition("::")[0] for name in calling]
        others = (
            str(path.relative_to(checkout)) for path in checkout.glob("tests/unit/**/test_*.py")
        )
        names += [
            name
            for name in others
            if name not in names and module in (checkout / name).read_text(encoding="utf-8")
        ]
        return names


def draw(checkout: Path, files: Sequence[Path], seed: int, count: int) -> list[DrawnFault]:
    """Draw up to `count` faults of these files at random; seed and source determine them.

    Each fault of all files is equally likely.
    """
    possible = [
        DrawnFault(file, fault)
        for file in files
        for fault in faults((checkout / file).read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(possible, min(count, len(possible)))  # noqa: S311 - a draw


def outcomes(
    checkout: Path, folder: Path, drawn: Sequence[DrawnFault], workers: int
) -> Iterator[MutationOutcome]:
    """Try each drawn fault and yield outcomes in any order; `folder` is for copies of the source.

    Raise Unavailable if the tests do not run on a copy.
    """
    calls = _calls(checkout, folder / "noting", workers)
    inside: list[dict[str, object]] = []
    at_import: list[DrawnFault] = []
    for number, mutated in enumerate(drawn):
        try:
            tests = calls.tests(_functions(checkout, mutated))
        except ValueError:
            tests = []
        if not tests:  # also a function that only an import calls
            at_import.append(mutated)
            continue
        fault = {"file": str(mutated.file), "source": mutated.fault.source}
        inside.append({"number": number, "tests": tests, **fault})
    for number, noticed_by in _hosts(checkout, folder, inside, workers):
        yield MutationOutcome(drawn[number], noticed_by)
    for mutated in at_import:
        files = calls.files(mutated.file, checkout)
        yield MutationOutcome(mutated, _alone(checkout, folder / "alone", mutated, files))


def _copy(checkout: Path, folder: Path) -> Path:
    """Copy src into `folder`, with links to all files beside it; return the copied src."""
    shutil.copytree(checkout / "src", folder / "src")
    for beside in checkout.iterdir():
        if beside.name != "src":
            (folder / beside.name).symlink_to(beside)
    return folder / "src"


def _functions(checkout: Path, drawn: DrawnFault) -> list[str]:
    """Return the functions that contain a fault; raise ValueError if none or a lambda does."""
    source = (checkout / drawn.file).read_text(encoding="utf-8")
    changed = changed_functions(source, drawn.fault.source, str(drawn.file))
    if any("<lambda>" in code.co_qualname for code in changed):
        raise ValueError("calls of a lambda are not noted")
    return [f"{drawn.file} {code.co_qualname}" for code in changed]


def _calls(checkout: Path, folder: Path, workers: int) -> _Calls:
    """Return which functions each test calls, from one run of all tests on a noting copy."""
    source = _copy(checkout, folder)
    for path in (source / "kube_rdma").rglob("*.py"):
        name = str(path.relative_to(folder))
        path.write_text(noting(path.read_text(encoding="utf-8"), name), encoding="utf-8")
    (folder / "calls").mkdir()
    parallel = ("-n", str(workers), "--dist", "loadfile")
    words = (*_HOST, *parallel, *TESTS)
    with _pytest(checkout, source, words, {CALLS: str(folder / "calls")}) as process:
        process.communicate()  # a test that reads the source may fail, and is noted all the same
    lines = [
        json.loads(line)
        for path in (folder / "calls").iterdir()
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    if not lines:
        raise Unavailable("the tests did not run on a copy of the source")
    return _Calls({test: frozenset(called) for test, called in lines})


def _hosts(
    checkout: Path, folder: Path, tried: Sequence[dict[str, object]], workers: int
) -> Iterator[tuple[int, str]]:
    """Try faults in several host processes; yield each fault's number and the test noticing it."""
    running = []
    for worker in range(workers):
        home = folder / f"host{worker}"
        source = _copy(checkout, home)
        mine = [{**one, "path": str(home / str(one["file"]))} for one in tried[worker::workers]]
        (home / "faults").write_text("".join(f"{json.dumps(one)}\n" for one in mine))
        variables = {FAULTS: str(home / "faults")}
        running.append((home, _pytest(checkout, source, (*_HOST, *TESTS), variables)))
    for home, process in running:
        printed, _ = process.communicate()
        path = home / "faults.outcomes"
        if process.returncode or not path.exists():
            raise Unavailable(f"the tests could not be collected: {printed[-2000:]}")
        yield from (json.loads(line) for line in path.read_text().splitlines())


def _alone(checkout: Path, folder: Path, drawn: DrawnFault, files: Sequence[str]) -> str:
    """Return the first test that fails with a fault in a process of its own; "" if none does.

    Return a sentence in its place if pytest does not end, or fails without naming a test.
    """
    if not folder.exists():
        _copy(checkout, folder)
    mutated = folder / drawn.file
    mutated.write_text(drawn.fault.source, encoding="utf-8")
    try:
        with _pytest(checkout, folder / "src", ("-x", *files), {}) as process:
            try:
                printed, _ = process.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return f"no end within {_PATIENCE:.0f} s"
    finally:
        shutil.copy2(checkout / drawn.file, mutated)
    if not process.returncode:
        return ""
    failed = _FAILED.search(printed)
    return failed[1] if failed else f"pytest ended with {process.returncode}"


def _pytest(
    checkout: Path, source: Path, words: Sequence[str], variables: dict[str, str]
) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(source), str(checkout)))
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *_PYTEST, *_UNIT, *words],
        cwd=checkout,
        env=os.environ | variables | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
