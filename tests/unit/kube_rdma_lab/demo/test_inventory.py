"""What `lab down --if-only-demo` takes for the demo's, and what keeps a lab up."""

import os
import time
from dataclasses import replace

import pytest

from kube_rdma_lab import lab as labs
from kube_rdma_lab import state
from kube_rdma_lab.demo import inventory

# As kubectl prints inventory.COLUMNS.
DEMO = """\
Namespace  scc \n\
Pod scc rdma-test-pod \n\
DaemonSet kube-system rdma-device-plugin \n\
Pod kube-system rdma-device-plugin-x7k2p DaemonSet
NodeReport  node-1 Node
Event scc rdma-test-pod.18a \n\
Lease kube-node-lease node-1 Node
EndpointSlice default kubernetes \n\
"""
KUBECTL = """#!/bin/sh
case "$*" in
*api-resources*) echo pods; echo events ;;
*"get pods,events"*) cat {objects} ;;
*) echo "unknown words: $*" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def lab(tmp_path):
    """A lab that is up as far as its state says, with a kubectl that prints a file."""
    (tmp_path / "objects").write_text(DEMO)
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(objects=tmp_path / "objects"))
    program.chmod(0o755)
    facts = state.State("x", "two-nodes", os.getpid(), "up", time.time(), binaries=str(tmp_path))
    return labs.Lab(tmp_path, facts)


def add(lab, line):
    """Somebody makes an object."""
    with (lab.home / "objects").open("a") as file:
        file.write(f"{line}\n")


def test_what_another_object_owns_and_what_passes_by_is_not_counted(lab):
    assert inventory.objects(lab) == {
        "Namespace scc",
        "Pod scc/rdma-test-pod",
        "DaemonSet kube-system/rdma-device-plugin",
    }


def test_a_lab_that_holds_what_the_demo_made_is_the_demo_s(lab):
    """Also when a pod of a DaemonSet came anew, and something happened."""
    inventory.write(lab)
    add(lab, "Pod kube-system rdma-device-plugin-new DaemonSet")
    add(lab, "Event default something ")
    assert inventory.why_not(lab) == ""


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "somebody made Pod default/mine-0"),
        (5, "somebody made Pod default/mine-0, Pod default/mine-1, Pod default/mine-2 and 2 more"),
    ],
)
def test_whatever_somebody_made_is_named_and_keeps_the_lab_up(lab, count, sentence):
    inventory.write(lab)
    for number in range(count):
        add(lab, f"Pod default mine-{number} ")
    assert inventory.why_not(lab) == sentence


def test_a_lab_without_a_demo_is_not_the_demo_s(lab):
    assert inventory.why_not(lab) == "no demo has run in it"


def running(name, folder, **changes):
    """A lab of that name as its folder shows it while this process holds its lock."""
    home = state.home(name)
    home.mkdir(parents=True)
    facts = state.State(name, "two-nodes", os.getpid(), "up", time.time(), binaries=str(folder))
    state.write(home, replace(facts, **changes))
    return home


@pytest.mark.parametrize("phase", ["up", "booting"])
def test_a_lab_that_stays_says_so_in_one_sentence(lab, tmp_path, monkeypatch, phase):
    """Nothing of it is touched."""
    monkeypatch.setenv("KUBE_RDMA_CACHE", str(tmp_path / "cache"))
    home = running("other", tmp_path, phase=phase)
    with state.lock(home):
        sentence = inventory.end("other")
    assert sentence.startswith("The lab 'other' stays up and takes its part of this machine: ")
    assert sentence.count("\n") == 0
    assert state.read(home).phase == phase


def test_no_lab_is_nothing_to_tell(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBE_RDMA_CACHE", str(tmp_path))
    assert inventory.end("none") == ""
