"""A word of `make bench` as people give it, but short: it shows figures and nothing else."""

import json
import subprocess
import sys

from bench.attach_vm import CHECKOUT


def check(word):
    """Run one; AssertionError with what it said unless every row of it is a figure."""
    command = [sys.executable, "-m", "bench", "--short", "--json", word]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not [row["reason"] for row in rows if "reason" in row], ended.stderr
    assert rows
    assert ended.returncode == 0, ended.stderr
