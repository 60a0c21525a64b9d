"""Which tests of the lab share a process."""

from __future__ import annotations

import re

import pytest

from tests.groups import LABS, group

from .tree import ROOT

MACHINES = "tests/lab/machines/test_ack.py::test_x"
NATIVE = [f"tests/lab/native/{name}.py::test_x" for name in ("test_vke", "test_ipam")]


@pytest.mark.parametrize(("processes", "labs"), [(len(LABS), 1), (len(LABS) + 1, 2)])
def test_native_files_share_a_lab_unless_a_second_process_is_left_for_them(
    processes: int, labs: int
) -> None:
    """Machines are always one group."""
    assert len({group(test, processes) for test in NATIVE}) == labs
    assert group(MACHINES, processes) == "machines"


def test_the_short_run_has_a_process_for_each_kind_of_lab() -> None:
    """So each boots once; the number stands in the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^SHORT := .* -n (\d+)$", text) == [f"{len(LABS)}"]
