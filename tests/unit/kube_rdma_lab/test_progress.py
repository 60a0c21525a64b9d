"""The pipe between the supervisor and its follower, and the console it is told from."""

import io

import pytest

from kube_base.errors import Broken, Unavailable
from kube_rdma_lab.console import Console
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.progress import Event, Phase, PipeReport, follow, step


def piped(*events):
    sink = io.StringIO()
    report = PipeReport(sink)
    for event in events:
        report(event)
    return io.StringIO(sink.getvalue())


def test_events_arrive_as_they_were_sent_until_the_lab_is_ready():
    sent = [Event("network", Phase.STARTED), Event("network", Phase.DONE, 0.5)]
    seen = []
    follow(piped(*sent, Event("lab", Phase.READY), Event("late", Phase.STARTED)), seen.append)
    assert seen == sent


def test_a_failure_is_raised_with_its_sentence():
    failed = Event("Unavailable", Phase.FAILED, note="node-1 did not boot: no card")
    with pytest.raises(Unavailable, match="no card"):
        follow(piped(failed), print)


def test_broken_stays_broken():
    with pytest.raises(Broken):
        follow(piped(Event("Broken", Phase.FAILED, note="x")), print)


def test_a_pipe_that_closes_early_is_a_killed_supervisor():
    with pytest.raises(Unavailable, match="ended before the lab was ready"):
        follow(piped(Event("network", Phase.STARTED)), print)


def test_a_step_that_raises_is_never_reported_as_done():
    seen = []
    with pytest.raises(RuntimeError), step(seen.append, "x"):
        raise RuntimeError
    assert [event.phase for event in seen] == [Phase.STARTED]


async def test_the_console_is_read_as_it_grows_even_in_half_lines(tmp_path):
    log = tmp_path / "console"
    log.write_text("noise\r\nlab: sta")
    console = Console("node-1", log)
    assert not await console.reached("booted")
    with log.open("a") as sink:
        sink.write("ge booted 4.20\r\n")
    assert await console.reached("booted")


async def test_a_boot_that_fails_says_why_and_where(tmp_path):
    log = tmp_path / "console"
    log.write_text("lab: failed the card ens2f0 is missing\n")
    with pytest.raises(Unavailable, match=r"node-1 did not boot: the card ens2f0.*console"):
        await Console("node-1", log).reached("booted")


async def test_a_service_that_does_not_stay_up_ends_the_boot_and_one_that_ended_twice_does_not(
    tmp_path,
):
    log = tmp_path / "console"
    log.write_text("lab: kubelet ended with code 1\nno such file\n" * 2)
    console = Console("node-1", log)
    assert not await console.reached("kubelet")
    with log.open("a") as sink:
        sink.write("lab: kubelet ended with code 1\nno such file\n" * 3)
    with pytest.raises(Unavailable, match=r"kubelet of node-1 does not stay up; (?s:.*)no such"):
        await console.reached("kubelet")


def test_a_step_that_begins_again_is_a_line_and_goes_on(capsys):
    with Printer() as printer:
        printer(Event("node-1 booted", Phase.STARTED))
        printer(Event("node-1 booted", Phase.AGAIN, 60.0, "silent"))
        printer(Event("node-1 booted", Phase.DONE, 94.0))
    marks = [line.split()[0] for line in capsys.readouterr().err.splitlines()]
    assert marks == ["↻", "✓"]
