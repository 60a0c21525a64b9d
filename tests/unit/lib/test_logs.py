"""Everything that is logged comes out in one form, one line each."""

import json
import subprocess
import sys

PROGRAM = """
import logging, structlog
from kube_rdma.lib import logs
logs.configure()
structlog.get_logger().warning("two lines", why=ValueError("a\\nb\\x1b[2J"), resource="rdma/hca")
logging.getLogger("grpclib.server").error("foreign")
logging.getLogger("grpclib.server").info("not worth it")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("x").exception("with traceback")
"""


def lines_of(program):
    words = [sys.executable, "-c", program]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    assert not run.stdout
    return run.stderr.splitlines()


def test_ours_and_foreign_lines_look_alike():
    lines = lines_of(PROGRAM)
    assert len(lines) == 3, lines
    assert lines[0].endswith(r'level=warning event="two lines" why=a\nb?[2J resource=rdma/hca')
    assert lines[1].endswith("level=error event=foreign")
    assert "ZeroDivisionError" in lines[2]
    assert all(line.startswith("timestamp=20") for line in lines)


def test_a_level_leaves_out_what_is_below_it_and_json_is_an_object_each():
    """The client of the API server says at debug what it asks; no other library does."""
    more = 'structlog.get_logger().debug("ours", n=1)\nlogging.getLogger("x").debug("theirs")'
    more += '\nlogging.getLogger("kube_client.calls").debug("a request")'
    levels = {}
    for level in ("debug", "info", "error"):
        program = PROGRAM.replace("configure()", f'configure("{level}", "json")') + more
        levels[level] = [json.loads(line) for line in lines_of(program)]
    events = {level: [line["event"] for line in lines] for level, lines in levels.items()}
    assert events["error"] == ["foreign", "with traceback"]
    assert events["info"] == ["two lines", *events["error"]]
    assert events["debug"] == [*events["info"], "ours", "a request"]
    first = levels["debug"][0]
    del first["timestamp"]
    assert first == {
        "level": "warning",
        "event": "two lines",
        "why": "a\nb?[2J",
        "resource": "rdma/hca",
    }
