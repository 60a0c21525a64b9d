"""`kube-rdma lab …` on the command line: which lab is meant."""

import pytest
from click.testing import CliRunner

from kube_rdma_lab.cli import lab


@pytest.mark.parametrize(
    ("words", "name"),
    [((), "mine"), (("--name", "other"), "other")],
    ids=["the variable alone", "the option before it"],
)
def test_a_variable_names_the_lab(tmp_path, words, name):
    """For every command; people who follow a page of commands set it once."""
    variables = {"KUBE_RDMA_CACHE": str(tmp_path), "KUBE_RDMA_LAB": "mine"}
    done = CliRunner().invoke(lab, ["status", *words], env=variables)
    assert (done.exit_code, done.output.split(".")[0]) == (1, f"There is no lab '{name}'")
