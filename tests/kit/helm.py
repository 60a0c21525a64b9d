"""The real Helm, built from its Go modules beside the lab's tests."""

import contextlib
import subprocess
from pathlib import Path

from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/kube-rdma"
MODULES = ROOT / "tests/lab/native"
NEWEST, OLDER = "helm", "helm-3"  # folders of MODULES


def build(store, name):
    """The program of a folder of MODULES."""
    return go.build_module(store, name, MODULES) / "helm"


@contextlib.contextmanager
def built(*names):
    """The programs by the name of their folder; safe from pruning meanwhile."""
    with open_store() as store:
        yield {name: build(store, name) for name in names}


@contextlib.contextmanager
def on_lab(lab, home, namespace):
    """A function that calls the newest Helm there: its exit status and all that it printed."""
    with built(NEWEST) as programs:

        def call(*arguments):
            words = ("-n", namespace, *arguments)
            done = run(programs[NEWEST], home, *words, kubeconfig=lab.kubeconfig)
            return done.returncode, done.stdout + done.stderr

        yield call


def run(program, home, *arguments, kubeconfig=None):
    """The outcome of a call that sees nothing of the user's settings."""
    environment = {"HOME": str(home)} | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, env=environment
    )
