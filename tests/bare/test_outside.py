"""The outer half: what JUnit says is what this run says, and a machine that fails hides nothing."""

import tarfile
from itertools import pairwise
from pathlib import Path

import pytest

from kube_rdma.model.errors import Refused, Unavailable
from kube_rdma_lab.bare import Outcome, Result, Run
from kube_rdma_lab.bare.junit import read
from kube_rdma_lab.bare.machine import command_line
from kube_rdma_lab.bare.run import RESULTS_SIZE, files, unpack
from kube_rdma_lab.build.qemu import Qemu
from kube_rdma_lab.build.testroot import BareParts, select

from .outside import CHECKOUT, FailedInsideError, Inside

JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="t.test_a" name="test_good[1]" time="0.5"/>
<testcase classname="t.test_a" name="test_bad" time="1"><failure message="m">a traceback</failure>
<system-out>what it printed</system-out></testcase>
<testcase classname="t.test_a" name="test_left" time="1"/>
<testcase classname="t.test_a" name="test_left" time="1"><error message="m">at teardown</error>
</testcase>
<testcase classname="t.test_a.TestB" file="t/shared.py" name="test_shared"/>
<testcase classname="bench.inside" name="test_told"><properties><property name="ms" value="7"/>
</properties></testcase>
<testcase classname="t.test_a" name="test_skipped"><skipped message="not here"/></testcase>
</testsuite></testsuites>"""
LOCK = (
    "one==1 \\\n    --hash=sha256:a\ntwo==2 ; x \\\n    --hash=sha256:b \\\n    --hash=sha256:c\n"
)


def test_junit_is_read_by_node_id():
    found = read(JUNIT)
    assert found["t/test_a.py::test_good[1]"] == Result(Outcome.PASSED, 0.5)
    assert found["t/test_a.py::test_bad"].text == "a traceback\nwhat it printed"
    assert found["t/test_a.py::TestB::test_shared"].outcome is Outcome.PASSED
    assert found["t/test_a.py::test_skipped"] == Result(Outcome.SKIPPED, 0, "not here")


def test_a_benchmark_s_figures_are_facts_of_its_test():
    assert read(JUNIT)["bench/inside.py::test_told"].facts == {"ms": "7"}


def test_a_test_that_cannot_be_torn_down_has_failed():
    assert read(JUNIT)["t/test_a.py::test_left"] == Result(Outcome.FAILED, 1, "at teardown")


@pytest.mark.parametrize("end", [0, 30, 200, len(JUNIT) - 1])
def test_a_file_cut_short_is_said_to_be(end):
    with pytest.raises(Unavailable, match="not whole"):
        read(JUNIT[:end])


def test_a_machine_that_left_nothing_shows_the_end_of_its_console(tmp_path):
    console, results = tmp_path / "console.log", tmp_path / "results.tar"
    console.write_text("Kernel panic - not syncing\n")
    with results.open("wb") as disk:
        disk.truncate(RESULTS_SIZE)
    with pytest.raises(Unavailable, match="Kernel panic"):
        unpack(results, tmp_path, console)


def test_results_are_taken_off_the_disk_by_name_only(tmp_path):
    """Nothing else in the archive is unpacked, wherever it says it belongs."""
    names = {"./junit.xml": JUNIT, "./kernel.log": "quiet\n", "../outside": "x"}
    with tarfile.open(tmp_path / "results.tar", "w") as archive:
        for name, text in names.items():
            (tmp_path / "one").write_text(text)
            archive.add(tmp_path / "one", name)
    home = tmp_path / "home"
    home.mkdir()
    assert unpack(tmp_path / "results.tar", home, tmp_path / "console.log") == read(JUNIT)
    assert {path.name for path in home.iterdir()} == {"junit.xml", "kernel.log"}
    assert not (tmp_path / "outside").exists()


class Machine:
    """A machine that has run, or could not."""

    def __init__(self, answer):
        self._answer = answer

    def run(self):
        if isinstance(self._answer, Exception):
            raise self._answer
        return Run(1.0, 2.0, self._answer, Path("/nowhere"))


@pytest.fixture
def item(request, monkeypatch):
    """An item of the outer run, its machine given; not in CI."""
    monkeypatch.delenv("CI", raising=False)

    def make(answer):
        return Inside.from_parent(request.node.parent, name="test_x", machine=Machine(answer))

    return make


def outcome(item, result):
    """An item whose test had this result in the machine."""
    name = item({}).nodeid
    return item({name: result})


def test_a_test_passes_as_it_did_in_the_machine(item):
    outcome(item, Result(Outcome.PASSED, 0)).runtest()


def test_a_failure_shows_the_traceback_of_the_machine(item):
    with pytest.raises(FailedInsideError, match="there"):
        outcome(item, Result(Outcome.FAILED, 0, "it broke there")).runtest()


def test_a_test_without_a_result_has_failed(item):
    with pytest.raises(FailedInsideError, match="says nothing"):
        item({}).runtest()


def test_a_machine_that_broke_fails_every_test(item):
    with pytest.raises(Unavailable, match="did not boot"):
        item(Unavailable("did not boot")).runtest()


@pytest.mark.parametrize("answer", [Refused("no root", remedy="sudo"), "skipped inside"])
def test_what_cannot_run_is_skipped_here_and_fails_in_ci(item, answer, monkeypatch):
    """Both where no machine can be, and where a test skipped itself in one."""
    skipping = (
        item(answer)
        if isinstance(answer, Refused)
        else outcome(item, Result(Outcome.SKIPPED, 0, answer))
    )
    with pytest.raises(pytest.skip.Exception):
        skipping.runtest()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(FailedInsideError, match="CI does not accept"):
        skipping.runtest()


def test_only_what_is_asked_for_is_taken_from_a_lock_with_its_hashes():
    assert select(LOCK, {"two"}) == LOCK[LOCK.index("two") :]
    with pytest.raises(Refused, match="three is not locked"):
        select(LOCK, {"one", "three"})


def test_a_run_carries_tests_fixtures_and_sources_and_the_machine_s_own_init():
    name = "tests/bare/vm/test_survey.py::test_x"
    carried = {entry.path: entry for entry in files(CHECKOUT, [name])}
    assert carried["lab/tests.txt"].data == f"{name}\n".encode()
    assert {"lab/pyproject.toml", "lab/inside.py", "lab/src/kube_rdma/__init__.py"} <= set(carried)
    assert {f"lab/tests/bare/vm/{n}.py" for n in ("conftest", "test_survey")} <= set(carried)
    assert carried["node/usr/sbin/lab-init"].mode & 0o111


def test_the_machine_touches_nothing_of_the_host_and_dies_with_its_starter():
    parts = BareParts(Qemu(Path("/q")), Path("/k"), Path("/i"), Path("/d"))
    argv = command_line(parts, ("-accel", "tcg"), Path("/initrd"), Path("/results"))
    assert argv[:3] == ["setpriv", "--pdeathsig", "KILL"]
    options = list(pairwise(argv))
    assert all(",bus=" in value for flag, value in options if flag == "-device")
    assert all(value.startswith("hubport,") for flag, value in options if flag == "-netdev")
