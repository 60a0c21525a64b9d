"""The machines that come with kube-rdma: which there are, and what a wrong name is told."""

from __future__ import annotations

import tomllib

import pytest

from kube_rdma.hardware import machines
from tests.house.tree import ROOT
from tests.kit.refusals import refusal
from tests.unit.adapters.kernel.sysfs.picture import TREES


def test_every_recorded_tree_of_the_tests_is_a_machine():
    assert machines.names() == tuple(sorted(folder.name for folder in TREES.iterdir()))
    assert len(machines.names()) == 14
    assert all((TREES / name / "SOURCE.md").is_file() for name in machines.names())


def test_a_wheel_has_them_where_they_are_looked_for():
    """hatchling puts the folder of the tests there; a checkout has no such folder."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    places = wheel["targets"]["wheel"]["force-include"]
    assert places["tests/data/trees"] == "kube_rdma/hardware/machines"
    in_wheel, in_checkout = machines.PLACES
    assert in_wheel == ROOT / "src" / places["tests/data/trees"]
    assert in_checkout == TREES


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("dgx", "dgx-like"),
        ("mlx5-bund", "mlx5-bond"),
        ("rxe_two", "rxe-two"),
        ("DGX-like", "dgx-like"),
    ],
)
def test_a_name_that_is_nearly_one_gets_the_one_that_was_meant(name, meant):
    error = machines.unknown(name)
    assert str(error).startswith(
        f"--sysfs: there is no recorded machine {name!r}. Did you mean {meant}? "
    )
    assert str(error).count("\n") == 0


@pytest.mark.parametrize("name", ["", "zzz", "/sys"])
def test_any_other_name_gets_the_list(name):
    raised = refusal(machines.machine, name)
    assert "Did you mean" not in str(raised)
    assert ", ".join(machines.names()) in str(raised)
