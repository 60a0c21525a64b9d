"""The machines that come with kube-rdma: which there are, and what a wrong name is told."""

from __future__ import annotations

import tomllib

import pytest

from kube_rdma.doctor.recorded import observe_recorded
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.hardware import machines
from tests.house.tree import ROOT
from tests.kit.refusals import refusal
from tests.unit.adapters.kernel.sysfs.picture import TREES

FAULTY = TREES.with_name("faulty_trees")
# What the doctor says first of each faulty machine.
FIRST = {
    "dgx-cable-out": ("KR121", "mlx5_3"),
    "dgx-slow-pcie": ("KR125", "mlx5_3"),
    "dgx-slow-port": ("KR124", "mlx5_3"),
    "dgx-slow-uplink": ("KR125", "mlx5_2, mlx5_3"),
    "ib-no-subnet-manager": ("KR122", "mlx5_1"),
    "ib-vf-without-guid": ("KR122", "mlx5_2"),
}


def first_words(path):
    return (path / "SOURCE.md").read_text().split("\n\n")[1][:30]


def test_every_tree_of_the_tests_is_a_machine():
    of_tests = {path.name: path for folder in (TREES, FAULTY) for path in folder.iterdir()}
    assert machines.names() == tuple(sorted(of_tests))
    assert machines.names(machines.FAULTY) == tuple(sorted(FIRST))
    assert len(machines.names(machines.WELL)) >= 14
    recorded = {path.name for path in of_tests.values() if " recorded" not in first_words(path)}
    assert recorded == {"lab-node", "rxe-two"}, "docs/lab.md names the one that is recorded"


def test_a_wheel_has_them_where_they_are_looked_for():
    """hatchling puts the folders of the tests there; a checkout has no such folders."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    places = wheel["targets"]["wheel"]["force-include"]
    in_wheel, in_checkout = machines.PLACES
    for folder in (TREES, FAULTY):
        assert ROOT / "src" / places[str(folder.relative_to(ROOT))] == in_wheel / folder.name
        assert in_checkout / folder.name == folder


@pytest.mark.parametrize("name", FIRST)
def test_the_doctor_names_the_fault_of_a_faulty_machine_and_nothing_else(name):
    base = machines.text_of(name).splitlines()[0]
    assert not base.startswith(machines.BASE)
    found = diagnose(observe_recorded(name, machines.machine(name))).findings
    assert [(one.code, one.subject) for one in found] == [FIRST[name]]


def test_without_its_changes_a_faulty_machine_has_another_verdict():
    for name, fault in FIRST.items():
        base = (FAULTY / name / machines.TEXT).read_text().splitlines()[0]
        well = machines.machine(base.removeprefix(machines.BASE))
        found = diagnose(observe_recorded(name, well)).findings
        assert fault not in [(one.code, one.subject) for one in found]


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
        f"--sysfs: there is no example machine {name!r}. Did you mean {meant}? "
    )
    assert str(error).count("\n") == 0


@pytest.mark.parametrize("name", ["", "zzz", "/sys"])
def test_any_other_name_gets_the_list(name):
    raised = refusal(machines.machine, name)
    assert "Did you mean" not in str(raised)
    assert ", ".join(machines.names()) in str(raised)
