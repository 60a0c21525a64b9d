"""Two checkouts measure themselves; their figures of one key become one ratio."""

import sys

import pytest

from bench import plugin_beside
from bench.context import Context
from bench.figures import Figure
from kube_base.errors import Unavailable

# A program that stands for a checkout's Python: it says which sources it runs by.
PROGRAM = """#!{python}
import json, os, sys
assert "KUBE_RDMA_BESIDE" not in os.environ
value = len(os.environ["PYTHONPATH"].split(os.pathsep)[0])
assert os.environ["PYTHONPATH"].startswith(os.getcwd())
print(json.dumps({{"benchmark": "allocate", "key": "p50_ms", "value": value}}))
print(json.dumps({{"benchmark": "attach", "key": "crowd", "reason": "no room", "failed": True}}))
sys.exit({code})
"""


def checkout(folder, code=0):
    """A checkout that measures the length of the name of its sources."""
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PROGRAM.format(python=sys.executable, code=code))
    python.chmod(0o755)
    return folder


def test_a_ratio_is_of_the_least_and_its_note_has_each_run():
    there = [{"p50_ms": 2.0}, {"p50_ms": 6.0}]
    here = [{"p50_ms": 5.0}, {"p50_ms": 3.0}]
    note = "2 and 6 there, 5 and 3 here"
    ratio = Figure("allocate_p50_ms_to_beside", 1.5, "×", "", note)
    assert list(plugin_beside.ratios("allocate", here, there)) == [ratio]


def test_a_figure_that_a_run_lacks_or_that_is_zero_has_no_ratio():
    there, here = {"idle_wakeups": 0.0}, {"idle_wakeups": 0.0, "new": 1.0}
    assert list(plugin_beside.ratios("allocate", [here, here], [there, there])) == []


def test_each_checkout_runs_by_its_own_sources(tmp_path, monkeypatch):
    other, mine = (checkout(tmp_path / name) for name in ("o", "mine"))
    monkeypatch.setenv(plugin_beside.VARIABLE, str(other))
    monkeypatch.setattr(plugin_beside, "HERE", mine)
    rows = list(plugin_beside.measure(Context(short=True)))
    longer = len(f"{mine}/src") / len(f"{other}/src")
    names = [f"{benchmark}_p50_ms_to_beside" for benchmark in plugin_beside.BENCHMARKS]
    assert [(row.key, row.value) for row in rows] == [(name, longer) for name in names]


def test_a_checkout_that_cannot_measure_is_named(tmp_path):
    broken = checkout(tmp_path / "broken", code=1)
    with pytest.raises(Unavailable, match=f"failed in {broken}"):
        plugin_beside.figures(broken, "allocate", short=True)


def test_nothing_is_measured_where_no_checkout_is_named(monkeypatch):
    monkeypatch.delenv(plugin_beside.VARIABLE, raising=False)
    (row,) = plugin_beside.measure(Context(short=True))
    assert not row.failed
