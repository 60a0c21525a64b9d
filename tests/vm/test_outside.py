"""The outer half: a test does here what it does in the machine, as soon as it has ended there."""

import asyncio
import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab.bare import InnerOutcome, InnerResult, Progress
from kube_rdma_lab.bare.machine import command_line, words
from kube_rdma_lab.bare.run import USER_MODE, Silent, files, follow, with_another
from kube_rdma_lab.build.qemu import Qemu
from kube_rdma_lab.build.testroot import BareParts, select

from .conftest import VARIABLE, kernel_words
from .outside import CHECKOUT, FailedInsideError, Inside, Machine

LOCK = (
    "one==1 \\\n    --hash=sha256:a\ntwo==2 ; x \\\n    --hash=sha256:b \\\n    --hash=sha256:c\n"
)
PASSED = InnerResult(InnerOutcome.PASSED, 0.5)
BEGUN = json.dumps({"test": "x"})
ENDED = json.dumps({"test": "x", "outcome": "passed", "seconds": 0.5})
LAST = json.dumps({"test": ""})
BOOT = "echo lab: stage booted 1"
# Words of the script: the first writes to the machine's second line, the other waits until the
# first of what came from there was read.
WORDS = 'say() { echo "$1" >> tests.jsonl; }; heard() { cat heard; }'


@pytest.fixture
def followed(tmp_path):
    """What comes of following a machine that is a script of the shell."""

    def follow_script(script, **patience):
        console, results = tmp_path / "console.log", tmp_path / "tests.jsonl"
        results.touch()
        os.mkfifo(tmp_path / "heard")
        argv = ("sh", "-c", f"cd {tmp_path}; {WORDS}; {script}")

        async def collect():
            events = []
            async for each in follow(argv, console, results, **patience):
                if not events:
                    (tmp_path / "heard").write_text("yes")
                events.append((each.test, each.result))
            return events

        return asyncio.run(collect())

    return follow_script


def test_a_test_is_told_when_it_begins_and_with_its_result_when_it_has_ended(followed):
    events = followed(f"{BOOT}; say '{BEGUN}'; heard; say '{ENDED}'; say '{LAST}'")
    assert events == [("x", None), ("x", PASSED)]


@pytest.mark.parametrize(
    ("said", "when"),
    [
        (f"say '{BEGUN}'; heard", "during x"),
        (f"say '{BEGUN}'; heard; say '{ENDED}'", "after x"),
        (f"say '{BEGUN}'; heard; printf %.30s '{ENDED}' >> tests.jsonl", "during x"),
    ],
    ids=["in a test", "between tests", "in a line"],
)
def test_a_machine_that_dies_names_its_test_and_shows_its_console(followed, said, when):
    with pytest.raises(Unavailable, match=f"(?s)ended {when};.*Kernel panic"):
        followed(f"{BOOT}; {said}; echo Kernel panic")


def test_a_machine_that_falls_silent_names_its_test(followed):
    """How long it may be silent is measured by its boot."""
    with pytest.raises(Unavailable, match="said nothing for 0 s during x"):
        followed(f"say '{BEGUN}'; {BOOT}; cat heard; exec sleep 600", quiet_boots=0)


def test_a_machine_that_falls_silent_tells_where_it_stood(followed):
    """From the line on with which it began to; else only the console's last lines."""
    lines = "; ".join(f"echo line {number}" for number in range(50))
    script = f"say '{BEGUN}'; {BOOT}; cat heard; echo x runs longer than 15 starts; {lines}"
    with pytest.raises(Unavailable, match=r"(?s)x runs longer than 15 starts\nline 0\n.*line 49"):
        followed(f"{script}; exec sleep 600", quiet_boots=0)


HANGS = "INFO: task udevadm:2638 blocked for more than"


def test_a_machine_whose_kernel_reports_a_task_that_hangs_is_given_up(followed):
    """Though it goes on reporting it."""
    often = f"for seconds in 121 242 363; do echo {HANGS} $seconds seconds.; done; exec sleep 600"
    with pytest.raises(Silent, match="has a task that hangs, udevadm:2638, during x"):
        followed(f"say '{BEGUN}'; {BOOT}; cat heard; {often}")


def test_a_machine_that_was_starved_for_two_minutes_goes_on(followed):
    begins = f"{BOOT}; say '{BEGUN}'; heard; echo {HANGS} 121 seconds."
    assert followed(f"{begins}; say '{ENDED}'; say '{LAST}'") == [("x", None), ("x", PASSED)]


class Machines:
    """Machines that stand still in these tests, each once; `runs` is what they were given."""

    def __init__(self, *still):
        self._still = list(still)
        self.runs = []

    async def __call__(self, tests, home):
        self.runs.append((list(tests), home))
        for test in tests:
            yield Progress(0, test, None)
            if test in self._still:
                self._still.remove(test)
                raise Silent(f"stood still in {test}")
            yield Progress(1, test, PASSED)


def lived_by(machines, home):
    """What comes of running three tests."""

    async def collect():
        events = with_another(machines, ["a", "b", "c"], home)
        return [(e.test, e.result, e.silent) async for e in events]

    return asyncio.run(collect())


def test_another_machine_goes_on_where_one_stood_still(tmp_path):
    """It begins with the test that had begun, and says why."""
    machines = Machines("b")
    events = lived_by(machines, tmp_path)
    assert [(test, silent) for test, result, silent in events if result is None] == [
        ("a", ""), ("b", ""), ("b", "stood still in b"), ("c", "")
    ]  # fmt: skip
    assert [test for test, result, _ in events if result] == ["a", "b", "c"]
    assert machines.runs == [(["a", "b", "c"], tmp_path), (["b", "c"], tmp_path / "again")]


def test_a_second_machine_that_stands_still_is_the_end(tmp_path):
    with pytest.raises(Silent, match="in c"):
        lived_by(Machines("b", "c"), tmp_path)


@pytest.fixture
def item(request, monkeypatch):
    """An item of the outer run, whose machine does what it is given; not in CI."""
    monkeypatch.delenv("CI", raising=False)

    def make(*happens):
        async def events(checkout, tests, home):
            for number, what in enumerate(happens):
                if isinstance(what, Exception):
                    raise what
                yield Progress(number, made.nodeid, what)

        machine = Machine(request.session, events)
        request.addfinalizer(machine.close)
        made = Inside.from_parent(request.node.parent, name="test_x", machine=machine)
        return made

    return make


def test_a_test_passes_as_soon_as_it_has_ended_in_the_machine(item):
    """What comes after it is not waited for."""
    passing = item(None, PASSED, Unavailable("the machine ended"))
    passing.runtest()
    assert passing.seconds == PASSED.seconds


def test_a_failure_shows_the_traceback_of_the_machine(item):
    with pytest.raises(FailedInsideError, match="there"):
        item(None, InnerResult(InnerOutcome.FAILED, 0, "it broke there")).runtest()


def test_a_test_that_never_comes_has_failed(item):
    with pytest.raises(Unavailable, match="ended in the machine before this test"):
        item().runtest()


def test_a_machine_that_breaks_fails_every_test_that_has_not_ended(item):
    broken = item(None, Unavailable("did not boot"))
    for _ in range(2):
        with pytest.raises(Unavailable, match="did not boot"):
            broken.runtest()


@pytest.mark.parametrize(
    "happens", [Refused("no root", remedy="sudo"), InnerResult(InnerOutcome.SKIPPED, 0, "not here")]
)
def test_what_cannot_run_is_skipped_here_and_fails_in_ci(item, happens, monkeypatch):
    """Both where no machine can be, and where a test skipped itself in one."""
    skipping = item(happens)
    with pytest.raises(pytest.skip.Exception):
        skipping.runtest()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(FailedInsideError, match="CI does not accept"):
        skipping.runtest()


def test_the_end_of_a_run_ends_the_machine_and_tells_of_it(request):
    """Also when a test has not come yet; a run that asked for no test has nothing to end."""
    lived = []

    async def events(checkout, tests, home):
        lived.append(home)
        try:
            yield Progress(1.5, "test_x", PASSED, "The first one stood still.")
            await asyncio.Event().wait()
        finally:
            lived.append("ended")

    machine = Machine(request.session, events)
    machine.close()
    assert not list(machine.told())
    assert machine.result("test_x") is PASSED
    machine.close()
    assert lived == [machine.home, "ended"]
    times, where, stood = machine.told()
    assert "first test after 1.5 s" in times
    assert str(machine.home) in where
    assert stood.startswith("The first one stood still.")


def test_only_what_is_asked_for_is_taken_from_a_lock_with_its_hashes():
    assert select(LOCK, {"two"}) == LOCK[LOCK.index("two") :]
    with pytest.raises(Refused, match="three is not locked"):
        select(LOCK, {"one", "three"})


def test_a_run_carries_tests_fixtures_and_sources_and_the_machine_s_own_init(tmp_path):
    (tmp_path / "lab/src/kube_rdma").mkdir(parents=True)
    (tmp_path / "lab/src/kube_rdma/__init__.py").touch()
    name = "tests/vm/guest/test_survey.py::test_x"
    carried = {entry.path: entry for entry in files(CHECKOUT, [name], tmp_path)}
    assert carried["lab/tests.txt"].data == f"{name}\n".encode()
    assert {"lab/pyproject.toml", "lab/inside.py", "lab/src/kube_rdma/__init__.py"} <= set(carried)
    assert {f"lab/tests/vm/guest/{n}.py" for n in ("conftest", "test_survey")} <= set(carried)
    assert carried["node/usr/sbin/lab-init"].mode & 0o111


def test_the_machine_touches_nothing_of_the_host_and_dies_with_its_starter():
    parts = BareParts(Qemu(Path("/q")), Path("/k"), Path("/i"), Path("/d"), Path("/s"))
    argv = command_line(parts, ("-accel", "tcg"), Path("/initrd"), Path("/results"))
    assert argv[:3] == ["setpriv", "--pdeathsig", "KILL"]
    options = list(pairwise(argv))
    assert all(",bus=" in value for flag, value in options if flag == "-device")
    assert all(value.startswith("hubport,") for flag, value in options if flag == "-netdev")


def test_a_kernel_s_own_word_stands_in_the_place_of_the_general_one():
    general = words("").split()
    assert "audit=0" in general
    own = words("security=selinux audit=1").split()
    assert set(own) - set(general) == {"security=selinux", "audit=1"}
    assert set(general) - set(own) == {"audit=0"}


def test_a_test_whose_kernel_has_words_of_its_own_runs_in_another_machine(request):
    """A machine runs the tests that are its own and no others."""
    ran = []

    async def events(checkout, tests, home):
        ran.append(tests)
        for test in tests:
            yield Progress(0, test, PASSED)

    machines = [Machine(request.session, events) for _ in range(2)]
    made = [
        Inside.from_parent(request.node.parent, name=f"test_{number}", machine=machine)
        for number, machine in enumerate(machines)
    ]
    before, request.session.items = request.session.items, made
    try:
        for item in made:
            item.runtest()
    finally:
        request.session.items = before
        for machine in machines:
            machine.close()
    assert ran == [[item.nodeid] for item in made]


def test_the_words_of_a_kernel_are_those_of_the_mark(request):
    assert kernel_words(request.node) == ""
    request.node.add_marker(pytest.mark.kernel("quiet"))
    assert kernel_words(request.node) == "quiet"


def test_the_environment_has_all_that_can_run_on_qemu_run_there(request, monkeypatch):
    request.node.add_marker(pytest.mark.kernel(USER_MODE))
    monkeypatch.delenv(VARIABLE, raising=False)
    assert kernel_words(request.node) == USER_MODE
    monkeypatch.setenv(VARIABLE, "emulated")
    assert kernel_words(request.node) == ""
    request.node.add_marker(pytest.mark.kernel("security=selinux"), append=False)
    assert kernel_words(request.node) == "security=selinux"
