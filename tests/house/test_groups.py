"""Which tests of the lab share a process."""

from __future__ import annotations

import re

from tests.groups import LABS, group

from .tree import ROOT

ALONE = [
    "tests/lab/emulated/test_numa.py::test_x",
    "tests/lab/machines/test_ack.py::test_x",
    "tests/vm/guest/test_steps.py::test_x",
]
NATIVE = [f"tests/lab/native/{name}.py::test_x" for name in ("test_vke", "test_older")]


def test_each_native_file_is_a_group_and_all_machines_are_one() -> None:
    """So a process that is done with its own kind takes the next native file."""
    assert len({group(test) for test in NATIVE}) == len(NATIVE)
    assert [group(test) for test in ALONE] == ["emulated", "machines", "bare"]


def test_a_run_has_a_process_for_each_kind_of_lab() -> None:
    """More of them starve the machines; `make test` boots no emulated ones beside these."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    numbers = re.findall(r"(?m)^(LAB|CORE) := .* -n (\d+)\b", text)
    assert numbers == [("CORE", f"{len(LABS) - 1}"), ("LAB", f"{len(LABS)}")]
