"""The outer half: a test does here what it does in the machine, as soon as it has ended there."""

import asyncio
import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab.bare import InnerOutcome, InnerResult, Progress
from kube_rdma_lab.bare.machine import command_line
from kube_rdma_lab.bare.run import Silent, follow
from kube_rdma_lab.build.qemu import Qemu
from kube_rdma_lab.build.testroot import BareParts

from .outside import FailedInsideError, Inside, Machine

PASSED = InnerResult(InnerOutcome.PASSED, 0.5)
BEGUN = json.dumps({"test": "x"})
ENDED = json.dumps({"test": "x", "outcome": "passed", "seconds": 0.5})
LONG = json.dumps({"test": "x", "long": True})
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
    with pytest.raises(Unavailable, match="said nothing for 0 s during x"):
        followed(f"say '{BEGUN}'; {BOOT}; cat heard; exec sleep 600", quiet=(0, 0))


def test_a_machine_that_is_alive_says_which_test_does_not_end(followed):
    """Between its beginning and that there are signs of life, as a serial line ends them."""
    rest = f"printf '{{}}\\r\\n' >> tests.jsonl; say '{LONG}'; exec sleep 600"
    with pytest.raises(Silent, match="does not end a test during x"):
        followed(f"{BOOT}; say '{BEGUN}'; heard; {rest}")


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


def test_the_machine_touches_nothing_of_the_host_and_dies_with_its_starter():
    parts = BareParts(Qemu(Path("/q")), Path("/k"), Path("/i"), Path("/d"), Path("/s"))
    argv = command_line(parts, ("-accel", "tcg"), Path("/initrd"), Path("/results"))
    assert argv[:3] == ["setpriv", "--pdeathsig", "KILL"]
    options = list(pairwise(argv))
    assert all(",bus=" in value for flag, value in options if flag == "-device")
    assert all(value.startswith("hubport,") for flag, value in options if flag == "-netdev")
