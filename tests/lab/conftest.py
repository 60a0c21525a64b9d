"""The labs of native nodes of a run; machines/conftest.py has that of machines.

A test is in native/ and asks for `native` unless it needs verbs, virtual functions or the guest's
own kernel; those are in machines/. tests/groups.py says which of them run side by side.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma_lab import cluster, preflight
from kube_rdma_lab import lab as labs
from kube_rdma_lab.demo import scc
from kube_rdma_lab.native import trees
from kube_rdma_lab.native.replay import as_ethernet
from kube_rdma_lab.topology import find
from kube_rdma_tools.rights import used
from tests.documents.shell import Shell
from tests.groups import Place, own, place
from tests.house.tree import ROOT

HERE = Path(__file__).parent
RIGHTS = ROOT / "build" / "rights"  # `make rights` reads it
NATIVE_NAME, NATIVE_VARIABLE = "test-native", "KUBE_RDMA_TEST_NATIVE"


def pytest_collection_modifyitems(items):
    """Mark all of this folder, so that `make check` leaves it out; order all that needs a lab."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)
    items.sort(key=order)


def order(item):
    """Where a test has its place in a run, the smallest first.

    Pages are followed on fresh nodes: on machines README comes behind the others, for it installs
    what the files behind it need.
    """
    where, pages = place(item.path), item.path.name == "test_documents.py"
    if where is Place.MACHINES:
        return where, 2 if "proof" in item.fixturenames else pages
    return where, not pages


def able(topology):
    """Skip where no lab of a topology can run; in CI that is a failure."""
    try:
        preflight.check(find(topology))
    except Refused as reason:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def machine():
    """For tests that boot machines of their own."""
    able("two-nodes")


@contextlib.contextmanager
def up(name, topology, command, variable):
    """Have a lab up for a while, booted and ended by the commands of docs/lab.md.

    The environment may name a running one instead: it asks nothing more of the machine, and stays.
    Either leaves a file that says which rights were used.
    """
    if chosen := os.environ.get(variable):
        yield labs.find(chosen)
        gathered(labs.find(chosen))
        return
    able(topology)
    with Shell({"KUBE_RDMA_LAB": name}) as shell:
        labs.down(name)
        print(shell.check(command))
        yield labs.find(name)
        gathered(labs.find(name))
        print(shell.check("kube-rdma lab down"))


def gathered(lab):
    """Keep what this lab's API server wrote down of rights, one file for each lab that was up."""
    used.gather(lab.home / "logs", RIGHTS / f"{lab.state.name}-{lab.state.started:.0f}.jsonl")


def passes_on(lab, file, *words):
    """Run a file of native tests once more, told to take this lab for the native one."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, file],
        cwd=ROOT,
        env={**os.environ, NATIVE_VARIABLE: lab.state.name},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


@pytest.fixture(scope="session")
def native():
    """Two native nodes with eight constructed cards each; KUBE_RDMA_TEST_NATIVE=NAME as above."""
    command = "kube-rdma lab up --topology native"
    with up(own(NATIVE_NAME), "native", command, NATIVE_VARIABLE) as running:
        yield running


@pytest.fixture(scope="session")
def survey(tmp_path_factory):
    """What each native node of the topology `native` shows."""
    folder = tmp_path_factory.mktemp("tree") / "sys"
    trees.write("dgx-like", folder)
    return read_survey(folder)


@pytest.fixture(scope="module")
def ethernet(native):
    """The cards' interfaces as what they are here: the constructed ones were of InfiniBand."""
    recorded = as_ethernet(native)
    yield native
    for path, text in recorded.items():
        path.write_text(text)


@pytest.fixture(scope="module")
def recorded(native):
    """The native lab with seed S2's device plugin, unchanged, on its constructed cards.

    For one file: others install plugins whose ConfigMap has the same name, which this one would
    follow.
    """
    folder = f"{scc.examples()}/s2-scc"
    scc.install(native, "daemonset-preset.yaml")
    yield native
    files = ("-f", f"{folder}/daemonset-preset.yaml", "-f", f"{folder}/config.yaml")
    cluster.kubectl(native, "delete", *files, "--cascade=foreground", "--wait")


@pytest.fixture(scope="module")
def vke(lab, proof):
    """Seed S1's DaemonSet beside S2's, which keeps serving rdma/hca; no node is labelled yet.

    For one file: a node has one agent of role `node`, and other examples bring their own.
    """
    example = str(scc.examples() / "s1-vke" / "daemonset.yaml")
    scc.install_kinds(lab)
    cluster.kubectl(lab, "apply", "-f", example)
    cluster.rollout(lab, "rdma-device-plugin", "kube-rdma-vke")
    yield lab
    cluster.kubectl(lab, "delete", "-f", example, "--ignore-not-found", "--wait")
    # Any agent follows the label: left on, it makes a second resource beside those of later files.
    cluster.kubectl(lab, "label", "node", "--all", "vke.node.rdma.mode-")
