"""Every benchmark that needs no lab measures something, as it is called."""

import json
import subprocess
import sys

import pytest

from bench.attach_vm import CHECKOUT

WORDS = (
    *("devices", "admission", "imports", "survey", "events", "hostile", "scrape", "shim"),
    "nccl-env",
)
WITH_NAMESPACES = ("attach", "overload")  # which root may make


@pytest.mark.slow
@pytest.mark.parametrize("word", [*WORDS, *WITH_NAMESPACES])
def test_a_word_measures_something(word):
    """Short, so that nothing is said of the figures; no row says that something failed."""
    command = [sys.executable, "-m", "bench", "--short", "--json", word]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not [row["reason"] for row in rows if "reason" in row], ended.stderr
    assert rows
    assert ended.returncode == 0, ended.stderr
