"""Everything that is logged comes out in one form, one line each."""

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


def test_ours_and_foreign_lines_look_alike():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    lines = run.stderr.splitlines()
    assert len(lines) == 3, run.stderr
    assert lines[0].endswith(r'level=warning event="two lines" why=a\nb?[2J resource=rdma/hca')
    assert lines[1].endswith("level=error event=foreign")
    assert "ZeroDivisionError" in lines[2]
    assert all(line.startswith("timestamp=20") for line in lines)
    assert not run.stdout
