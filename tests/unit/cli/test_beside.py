"""Packages beside kube_rdma are found by name, and their absence is one sentence."""

import pytest

from kube_base.errors import Refused
from kube_rdma.cli import verify
from kube_rdma.cli.beside import beside
from kube_rdma_selftest.trial import TrialKind


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
