"""What stands against a lab on this machine is told before anything is built."""

import os
import platform
import shutil
from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma_lab import preflight
from kube_rdma_lab.topology import TOPOLOGIES, find


@pytest.fixture
def good_machine(monkeypatch):
    """A machine on which everything is right; each test breaks one thing."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.setattr(Path, "read_text", lambda path: "MemAvailable:   20000000 kB\n")
    return monkeypatch


def test_a_good_machine_passes(good_machine):
    preflight.check(find("two-nodes"))


@pytest.mark.parametrize(
    ("where", "name", "value", "words"),
    [
        (platform, "machine", lambda: "aarch64", "this machine is aarch64"),
        (os, "geteuid", lambda: 1000, "Run it again with sudo"),
        (shutil, "which", lambda name: None, "Run tools/bootstrap or install iproute2"),
        (Path, "exists", lambda path: False, "modprobe tun"),
        (Path, "read_text", lambda path: "MemAvailable: 1048576 kB\n", "1024 MiB of memory are"),
        (Path, "read_text", lambda path: "garbage\n", "0 MiB of memory are available"),
    ],
)
def test_each_missing_thing_is_one_sentence_with_its_remedy(
    good_machine, where, name, value, words
):
    good_machine.setattr(where, name, value)
    with pytest.raises(Refused, match=words) as caught:
        preflight.check(find("two-nodes"))
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


def test_a_lab_without_nodes_needs_less_memory():
    needs = {name: preflight.needed_mib(topology) for name, topology in TOPOLOGIES.items()}
    assert needs["control-plane"] < needs["two-nodes"]
