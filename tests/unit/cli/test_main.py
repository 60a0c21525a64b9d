"""What every command does before its own work: it is not slowed down by looks for garbage."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from bench.imports import programs
from kube_base.errors import Refused
from kube_rdma.cli import main, verify
from kube_rdma.cli.beside import beside
from kube_rdma.cli.controller import controller
from kube_rdma_selftest.trial import TrialKind

COUNT = """
import atexit, gc, sys
from kube_rdma.cli import main
main.GARBAGE_AT_START = int(sys.argv.pop(1))
atexit.register(lambda: print("looks", sum(part["collections"] for part in gc.get_stats())))
main.main()
"""
PYTHONS_OWN = 700


def looks(folder, threshold):
    """How often Python looks for garbage until the agent has read its configuration."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(threshold), *programs(folder)["agent_networks"][1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "rdmaHcaMax" in done.stderr
    return int(done.stdout.rpartition("looks")[2])


def test_a_start_is_not_spent_on_looks_for_garbage(tmp_path):
    """Beside the same start as Python would do it by itself, which is the planted fault."""
    assert 3 * looks(tmp_path / "ours", main.GARBAGE_AT_START) < looks(
        tmp_path / "own", PYTHONS_OWN
    )


# `kube-rdma controller`: what it refuses before it asks any API server.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policies", "--policy-set", "host.runtime"), "host.runtime' sets no value"),
        (("--policies", "--policy-set", "host.runtime=run"), "--policy-set:1:1: host.runtime"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(Refused, match=words):
        CliRunner().invoke(controller, arguments, catch_exceptions=False)


# Packages beside kube_rdma are found by name, and their absence is one sentence.


@pytest.mark.parametrize("module", ["kube_rdma_absent.command", "kube_rdma_selftest.absent"])
def test_a_package_that_is_not_installed_is_refused_with_what_to_do(module):
    with pytest.raises(Refused, match=r"^--x: this installation of kube-rdma has no y") as caught:
        beside(module, "y", "--x")
    assert "image" in caught.value.remedy


def test_a_package_that_lacks_something_itself_is_no_refusal(tmp_path, monkeypatch):
    """The name of what is missing is told, for that is another fault."""
    (tmp_path / "planted_beside.py").write_text("import planted_absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="planted_absent"):
        beside("planted_beside", "y", "--x")


def test_the_words_of_an_option_are_the_trials_of_the_package():
    assert tuple(kind.value for kind in TrialKind) == verify.KINDS
