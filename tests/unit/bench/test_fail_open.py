"""The rig of the fail-open score, as far as it needs no lab."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fail_open import faults, installation, stopping_agent
from bench.fail_open.faults import ACTS, Target, script
from bench.fail_open.steps import (
    BREAKING,
    CLAIMS,
    HOOK,
    SHARES,
    Fault,
    Plan,
    plans,
)
from bench.fail_open.table import Table
from bench.fail_open.waves import Wave
from kube_rdma.model.attach import steps as kernel_steps
from kube_rdma_tools.fail_open.judge import Judgement, PodVerdict
from tests.house.tree import ROOT

WAYS = st.sampled_from((CLAIMS, SHARES, HOOK))


@given(WAYS, st.integers(1, 3000))
def test_a_run_has_each_fault_at_each_step_once_and_all_its_pods(way, pods):
    made = plans(way, BREAKING, pods)
    cells = [(plan.fault, plan.step) for plan in made]
    assert cells[0] == (Fault.NONE, "-")
    assert sorted(cells[1:]) == sorted((fault, step) for fault in BREAKING for step in way.steps)
    sizes = [plan.pods for plan in made]
    assert sum(sizes) == max(pods, len(made))
    assert max(sizes) - min(sizes) <= 1


@given(WAYS)
def test_a_run_that_is_ended_early_has_been_at_every_step(way):
    first = plans(way, BREAKING, 100)[1 : len(way.steps) + 1]
    assert [plan.step for plan in first] == list(way.steps)
    assert {plan.fault for plan in first} == set(BREAKING[: len(way.steps)])


def test_every_step_is_a_place_where_the_agent_waits():
    """Each place is a method of the product, under the name that it has now."""
    for _, place, method, _ in stopping_agent.POINTS:
        assert callable(getattr(stopping_agent.owner(place), method))
    for place, method in (stopping_agent.RECORDS, stopping_agent.STEPS):
        assert callable(getattr(stopping_agent.owner(place), method))
    constant = {step for step, *_ in stopping_agent.POINTS}
    of_kernel = {"MakeLink", "SetLink", "AddAddress"}
    assert all(hasattr(kernel_steps, name) for name in of_kernel)
    assert constant | {"planned"} | of_kernel == {*SHARES.steps, *CLAIMS.steps}


class Stopped:
    """A process that stops at steps, in a folder of its own."""

    PROGRAM = """
import sys
from pathlib import Path
from bench.fail_open import stopping_agent as agent

class Work:
    def act(self, what):
        print(what, flush=True)
    async def later(self):
        print("later", flush=True)

agent.FOLDER = Path(sys.argv[1])
agent.MOST_MEMORY = 0
agent.lay(Work, "act", lambda _, what: what, before=False)
agent.lay(Work, "later", lambda _: "before", before=True)
import asyncio
Work().act("one")
asyncio.run(Work().later())
print("end", flush=True)
"""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = [sys.executable, "-c", self.PROGRAM, str(folder)]
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def lines(self, count):
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def until_reached(self):
        while not (self.folder / "reached").exists():
            assert self.process.poll() is None
            os.sched_yield()


@pytest.fixture
def stopped(tmp_path):
    made = []

    def start(step):
        if step:
            (tmp_path / "trap").write_text(f"{step}\n")
        made.append(Stopped(tmp_path))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.communicate()


def test_without_a_trap_it_goes_its_way(stopped):
    assert stopped("").lines(3) == ["one", "later", "end"]


def test_a_trap_for_another_step_stays(stopped, tmp_path):
    assert stopped("another").lines(3) == ["one", "later", "end"]
    assert (tmp_path / "trap").exists()


@pytest.mark.parametrize(("step", "before"), [("one", ["one"]), ("before", ["one"])])
def test_it_waits_at_the_step_until_it_is_let_go(stopped, tmp_path, step, before):
    program = stopped(step)
    assert program.lines(1) == before
    program.until_reached()
    assert not (tmp_path / "trap").exists()
    (tmp_path / "go").write_text("on\n")
    assert program.lines(2) == ["later", "end"]
    assert not (tmp_path / "reached").exists()


def test_an_agent_without_a_limit_of_memory_ends_itself(stopped, tmp_path):
    program = stopped("one")
    program.until_reached()
    (tmp_path / "go").write_text("memory\n")
    _, errors = program.process.communicate()
    assert program.process.returncode == 1
    assert "has no limit of memory" in errors


@pytest.mark.parametrize("fault", ACTS)
def test_a_script_is_one_that_a_shell_understands(fault):
    text = script(fault, Target("node-1", "^python3.11 -I /x", "192.0.2.1"))
    subprocess.run(["sh", "-n", "-c", text], check=True)
    assert set(ACTS) == set(BREAKING)


def test_the_agent_runs_the_same_arguments_through_the_other_program():
    made = {
        "kind": "DaemonSet",
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"args": ["agent", "--claims"], "volumeMounts": []}],
                    "volumes": [],
                }
            }
        },
    }
    spec = installation.stopping(made)["spec"]["template"]["spec"]
    (agent,) = spec["containers"]
    assert agent["args"] == ["agent", "--claims"]
    assert agent["command"][-1] == f"{installation.PLACE}/stopping_agent.py"
    mounts = {one["name"]: one["mountPath"] for one in agent["volumeMounts"]}
    assert {one["name"] for one in spec["volumes"]} == set(mounts)
    assert mounts["fail-open"] == faults.FOLDER


def test_a_row_names_each_pod_that_failed_open_and_counts_the_others(capsys):
    judgements = (
        Judgement("a-1", PodVerdict.WITH, recovered=True),
        Judgement("a-2", PodVerdict.WITHOUT, "no netdev", late=4),
        Judgement("a-3", PodVerdict.REFUSED, "FailedScheduling: no room"),
        Judgement("a-4", PodVerdict.REFUSED, "FailedScheduling: no room"),
    )
    table = Table()
    table.begin()
    table.show(Wave(Plan(HOOK, Fault.KILLED, "hook", 4), judgements, 12.4))
    head, row, *notes = capsys.readouterr().out.splitlines()
    shown = dict(zip(head.split(), row.split(), strict=True))
    assert list(shown.values()) == [
        "hook",
        "killed",
        "hook",
        "4",
        "1",
        "1",
        "2",
        "0",
        "0",
        "1",
        "12",
    ]
    assert (shown["without"], shown["recovered"]) == ("1", "1")
    assert notes == [
        "    a-2 without: no netdev, came after 4 s",
        "    2 refused: FailedScheduling: no room",
    ]
    assert table.total.failed_open == 1


def test_the_sums_have_all_steps_of_a_fault_together(capsys):
    table = Table()
    for step in ("hook", "hooked"):
        table.show(Wave(Plan(HOOK, Fault.KILLED, step, 1), (Judgement("a", PodVerdict.WITH),), 2.0))
    capsys.readouterr()
    table.sums()
    (row,) = capsys.readouterr().out.splitlines()
    assert row.split() == ["hook", "killed", "all", "2", "2", "0", "0", "0", "0", "0", "4"]


def test_a_wave_that_was_not_measured_has_a_row_that_says_why(capsys):
    table = Table()
    table.failed(Plan(HOOK, Fault.FROZEN, "hook", 4), "the time was over")
    assert "not measured: the time was over" in capsys.readouterr().out
    assert (table.failures, table.total.pods) == (1, 0)
