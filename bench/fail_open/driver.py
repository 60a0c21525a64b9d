"""What the rig asks of a driver: to be put on a lab, to be found there, to be started anew."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from bench.fail_open.faults import Target
from bench.fail_open.steps import Fault, Way
from kube_rdma_lab.lab import Lab


class Driver(Protocol):
    """One that can be broken."""

    ways: tuple[Way, ...]  # each on a node of its own
    faults: tuple[Fault, ...]  # those that can happen to it
    expect: tuple[str, ...]  # what its pods have (kube_rdma_tools/fail_open/pods.py)

    def on(self, lab: Lab) -> AbstractContextManager[None]:
        """Have it on a fresh lab for a while."""

    def pod(self, way: Way) -> dict[str, Any]:
        """A pod that asks it for one NIC."""

    def target(self, lab: Lab, way: Way) -> Target:
        """Where it runs."""

    def renew(self, lab: Lab, way: Way) -> None:
        """Have it as after its first start again, once it was ended."""
