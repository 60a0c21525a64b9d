"""Waits of the lab: what a command is given reaches it, however long it takes to read."""

from __future__ import annotations

import os
from types import SimpleNamespace

from kube_base.errors import Unavailable
from kube_rdma_lab.pki import Authority
from kube_rdma_lab.waiting import run

MOST_LOOKS = 30  # of 2 s each, so a fault ends the test
LARGE = "x" * 1_000_000  # bytes, many times what a pipe holds


class SlowLab:
    """A lab without an API server; `gate` is opened when somebody looks for the first time."""

    def __init__(self, folder):
        self.home, self.api = folder, "https://127.0.0.1:1"
        authority = Authority("test")
        (folder / "pki").mkdir()
        authority.issue("admin").write(folder / "pki", "admin")
        (folder / "pki" / "ca.crt").write_bytes(authority.certificate)
        self.state = SimpleNamespace(pace=1.0)
        self.gate = folder / "gate"
        os.mkfifo(self.gate)
        self.looks = 0

    def consoles(self):
        """Called at each look."""
        self.looks += 1
        if self.looks == 1:
            self.gate.write_text("open\n")
        if self.looks > MOST_LOOKS:
            raise Unavailable("the command never got all of its input")
        return ()


def test_a_command_that_is_slow_gets_all_of_a_large_input(tmp_path):
    """It begins to read when it was looked after once, so not all was given by then."""
    lab = SlowLab(tmp_path)
    command = ["sh", "-c", 'read word < "$0"; wc -c', str(lab.gate)]
    assert int(run(lab, command, stdin=LARGE)) == len(LARGE)
    assert lab.looks
