"""Processes that a benchmark tells lines and hears lines from: clients of `ipam` and `scale`.

They run in the network of a lab, and end with the block that they were started in.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from kube_base.errors import Unavailable


@contextmanager
def talking(
    command: Sequence[str], errors: BinaryIO | int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A process that reads and writes lines; `errors` takes what it says of itself."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], *words: object) -> None:
    """Write a line, an empty one where there is nothing to say but to go on."""
    assert process.stdin
    process.stdin.write(" ".join(map(str, words)) + "\n")
    process.stdin.flush()


def expect(process: subprocess.Popen[str], start: str) -> str:
    """The next line that begins so; raise Unavailable when the client ends before."""
    assert process.stdout
    for line in process.stdout:
        if line.startswith(start):
            return line
    raise Unavailable(f"A client of the benchmark ended with {process.wait()}.")
