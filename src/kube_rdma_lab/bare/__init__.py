"""Kernel tests: pytest on the real kernel, in a machine that has cards and no Kubernetes.

    tests/vm/outside.py      shows the tests of tests/vm/guest as tests of the outer run
    run.py                   boots one machine with the chosen tests and the current sources, and
                             yields the beginning and the result of each test
    machine.py               its QEMU command line: two NUMA nodes, two cards and an SR-IOV card
    user_mode.py             its command line as a user-mode kernel, with the same cards
    node/bare/               the programs inside: the first process and a plugin of pytest
    results.py               reads what came of each test

`progress` is the entry point, and `run` for callers that need the results alone.
"""

from __future__ import annotations

from kube_rdma_lab.bare.results import InnerOutcome, InnerResult
from kube_rdma_lab.bare.run import Progress, progress, run

__all__ = ["InnerOutcome", "InnerResult", "Progress", "progress", "run"]
