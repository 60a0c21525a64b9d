"""A word of `make bench` as people give it, but short: it shows figures, no failures."""

import json
import os
import subprocess
import sys
import tempfile

from bench.attach_vm import CHECKOUT


def check(word):
    """Run one; AssertionError with what it said unless it has figures and no row that failed."""
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}  # in memory, as of other tests
    command = [sys.executable, "-m", "bench", "--short", "--json", word]
    ended = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not [row["reason"] for row in rows if row.get("failed")], ended.stderr
    assert any("value" in row for row in rows)
    assert ended.returncode == 0, ended.stderr
