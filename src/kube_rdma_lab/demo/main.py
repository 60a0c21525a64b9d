"""`kube-rdma lab demo`: the path from nothing to the table, in the order a user sees it."""

from __future__ import annotations

import shutil
import sys

import click

from kube_base.errors import Refused
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc, table
from kube_rdma_lab.demo.scc import Proof
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.progress import Report, step

PAIRS = 3
PRESET = "daemonset-preset.yaml"


def demonstrate(lab: Lab, report: Report, *, daemonset: str = PRESET, pairs: int = PAIRS) -> Proof:
    """Install kube-rdma on a running lab, start examples/s2-scc's pods anew, measure between them.

    `pairs` is how often writes are measured between pods and between hosts.
    """
    with step(report, "install kube-rdma"):
        scc.install(lab, daemonset)
    with step(report, "start two pods"):
        scc.remove_pods(lab)
        scc.start_pods(lab)
    with step(report, "talk RDMA"):
        return scc.prove(lab, pairs)


def run(name: str) -> None:
    """Boot a lab unless it runs, run the demo on it and print its table."""
    with Printer() as report:
        try:
            lab = labs.find(name)
        except Refused:
            lab = labs.up(name, "two-nodes", None, report)
        proof = demonstrate(lab, report)
    option = "" if name == labs.DEFAULT_NAME else f" --name {name}"
    program = "kube-rdma" if shutil.which("kube-rdma") else sys.argv[0]  # `make demo` gives a path
    click.echo("\n" + table.render(proof, option, program))
