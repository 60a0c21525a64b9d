"""Programs of the builders: their last words reach the user, and they end when told to."""

import threading
import time

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab.build.shell import Running, Shell, ask, need


def test_failure_shows_the_end_of_the_log(tmp_path):
    """The error carries what the program printed last, and where the rest is."""
    shell = Shell(tmp_path / "log")
    with pytest.raises(Unavailable) as caught:
        shell.run(["sh", "-c", "seq 100; echo the reason >&2; exit 7"])
    message = str(caught.value)
    assert "code 7" in message
    assert str(tmp_path / "log") in message
    assert message.endswith("the reason")
    assert "\n    50\n" not in message


def test_missing_program_names_its_package():
    """A missing host program is refused with the package to install."""
    with pytest.raises(Refused, match="apt-get install no-such-program"):
        need("no-such-program")


def test_ask_returns_output_or_the_programs_own_words():
    """A short question gives its answer, or the error that the program printed."""
    assert ask(["echo", "yes"]) == "yes\n"
    with pytest.raises(Unavailable, match="because"):
        ask(["sh", "-c", "echo because >&2; exit 1"])


def test_end_stops_programs_of_other_threads(tmp_path):
    """Stopping a build does not wait for what another thread runs."""
    running = Running()
    shell = Shell(tmp_path / "log", running)
    caught: list[Exception] = []

    def sleep() -> None:
        try:
            shell.run(["sleep", "60"])
        except Unavailable as error:
            caught.append(error)

    thread = threading.Thread(target=sleep)
    thread.start()
    while not (tmp_path / "log").exists():
        time.sleep(0.01)
    time.sleep(0.1)
    running.end()
    thread.join(5)
    assert len(caught) == 1
    with pytest.raises(Unavailable, match="stopped"):
        shell.run(["true"])
