"""The line that says what a command waits for: on terminals alone, late, and gone at the end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kube_rdma.cli.output import ProgressLine
from tests.kit.terminal import shown

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    "TERM": "xterm",
    "PYTHONUTF8": "1",
}
LINE = """
import sys
from kube_rdma.cli.output import AFTER_SECONDS, ProgressLine
class Now:
    "A clock on which the time is over at once."
    def __init__(self, seconds, begin):
        assert seconds == AFTER_SECONDS == 2
        self.begin = begin
    def start(self):
        self.begin()
    def cancel(self):
        pass
class Never(Now):
    def start(self):
        pass
print("before")
with ProgressLine("Asking all.", {timer}, is_wanted={wanted}) as line:
    line.tell("3 of 4 \\x1b[2J have answered.")
print("rich" in sys.modules, line.is_shown)
"""
# Commands whose cluster never answers, side by side, each on a terminal of its own. Told are those
# that end without the words.
ASKING = """
import asyncio, json, os, pty, signal, sys
from contextlib import asynccontextmanager
from kube_client.objects import Cluster
from kube_rdma.cli.main import cli
class Line:
    "An API server that hears and says nothing."
    async def send(self, _):
        await asyncio.Event().wait()
@asynccontextmanager
async def silent(_):
    yield Cluster(Line())
running = []
for line, words in json.loads(sys.argv[1]).items():
    process, screen = pty.fork()
    if not process:
        cli.main(line.split(), obj=silent)
    running.append((line, words, process, screen))
for line, words, process, screen in running:
    text = b""
    try:
        while words.encode() not in text:
            text += os.read(screen, 1 << 16)
    except OSError:  # EIO: it ended by itself
        print(line, text.decode())
    os.kill(process, signal.SIGKILL)
"""


def on_terminal(timer="Now", wanted="True", *, piped="", **environment):
    code = LINE.format(timer=timer, wanted=wanted)
    words = ("sh", "-c", f'exec "$@" {piped}', "sh", sys.executable, "-c", code)
    return shown(words, {**ENVIRONMENT, **environment}).text


def screen(text):
    """What is left on a terminal: each erased line is gone, the cursor is where it was."""
    lines = [""]
    for part in re.split(r"(\n|\r|\x1b\[[\d;?]*[A-Za-z])", text):
        if part == "\n":
            lines.append("")
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part == "\x1b[1A":
            lines.pop()
        elif part not in ("\r", "") and not part.startswith("\x1b"):
            lines[-1] += part
    return "\n".join(lines)


def test_the_line_says_the_last_news_and_vanishes():
    text = on_terminal()
    assert "3 of 4 ?[2J have answered." in text
    assert screen(text) == "before\nTrue True\n"


def test_a_cursor_that_was_hidden_is_shown_at_once():
    """A command that is killed leaves the terminal as it was."""
    text = on_terminal()
    assert text.index("\x1b[?25h") < text.index("3 of 4")


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({"timer": "Never"}, "before\nFalse True\n"),
        ({"wanted": "False"}, "before\nFalse False\n"),
        ({"TERM": "dumb"}, "before\nFalse False\n"),
        ({"piped": "2>/dev/null"}, "before\nFalse False\n"),
    ],
)
def test_without_need_or_terminal_is_no_line_and_rich_is_not_loaded(how, left):
    assert on_terminal(**how) == left


def test_a_pipe_of_results_does_not_hide_the_line():
    """What is printed goes its own way."""
    text = on_terminal(piped=">/dev/null")
    assert "3 of 4" in text
    assert screen(text).strip() == ""


SILENCE = """
import structlog, sys
from kube_rdma.cli.output import ProgressLine, take_logs
class Now:
    def __init__(self, seconds, begin):
        self.start = begin
    def cancel(self):
        pass
take_logs()
log = structlog.get_logger()
with ProgressLine("Reading the cluster.", Now) as line:
    log.warning("API server awaited", server="10.0.0.1", seconds=5)
    line.tell("Reading more.")
    log.info("API server answering", server="10.0.0.1")
log.warning("events dropped", dropped=3)
print("{}")
"""


def test_a_silent_api_server_is_told_in_the_line_and_not_in_a_log():
    text = shown((sys.executable, "-c", SILENCE), ENVIRONMENT).text
    assert "The API server at 10.0.0.1 has not answered for 5 s." in text
    assert text.index("has not answered") < text.index("Reading more.")
    assert "API server a" not in text.replace("API server at", "")
    assert screen(text).count("\n") == 2
    assert "events dropped" in screen(text), "a log of anything else"


def test_where_is_no_line_stderr_has_the_sentence_and_the_result_is_whole():
    """Programs read the result, so no log is between its lines."""
    ran = [sys.executable, "-c", SILENCE]
    done = subprocess.run(ran, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert done.stdout == "{}\n"
    first, second = done.stderr.splitlines()
    assert first == "kube-rdma: The API server at 10.0.0.1 has not answered for 5 s."
    assert "events dropped" in second


class Clock:
    """Begins when a test says so, as another thread might."""

    def __init__(self, _, begin):
        self.begin = begin
        self.calls = []

    def start(self):
        self.calls.append("start")

    def cancel(self):
        self.calls.append("cancel")


def test_a_line_that_comes_after_the_end_does_not_come():
    """The clock and the end may meet."""
    clocks = []

    def timer(seconds, begin):
        clocks.append(Clock(seconds, begin))
        return clocks[0]

    with ProgressLine("Asking all.", timer):
        pass
    clocks[0].begin()
    assert clocks[0].calls[-1] == "cancel"


def test_an_error_ends_it_too():
    with pytest.raises(json.JSONDecodeError), ProgressLine("Reading."):
        json.loads("{")


WAITING = {
    "bundle all.tar.gz": "Asking the agents of all nodes.",
    "doctor --all-nodes": "Asking the agents of all nodes.",
    "doctor node/node-1": "Asking the node's agent.",
    "explain pod/train/w-0": "Reading the cluster, and the pod.",
    "explain claim/train/two": "Reading the cluster.",
    "ip check": "Asking the cluster.",
    "migrate plan --image a/b:1": "Reading the cluster.",
    "migrate node node-1": "Reading the cluster.",
    "resources -n train": "Reading the cluster.",
    "status": "Reading the cluster.",
    "verify pods w-0 w-1 -n train": "Asking the cluster for the pods.",
    "verify nodes --image a/b:1": "Asking the cluster for the nodes.",
}


def test_commands_say_what_they_wait_for():
    ran = [sys.executable, "-c", ASKING, json.dumps(WAITING)]
    done = subprocess.run(ran, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert done.stdout == ""
