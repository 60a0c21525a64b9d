"""What benchmarks run elsewhere is what they say it is, and what it told is read."""

import json
import subprocess
import sys

import pytest

from bench import attach_inside, attach_vm, imports
from bench.allocate import MODULES
from kube_base.errors import Unavailable
from kube_rdma_lab.bare import InnerOutcome, InnerResult
from kube_rdma_lab.build import go


@pytest.mark.parametrize("module", ["google.golang.org/grpc", "k8s.io/kubelet"])
def test_it_has_the_versions_of_the_labs_kubelet(module):
    """Allocate is measured by the kubelet's own gRPC: both lists name the same version."""
    texts = [
        (MODULES / "allocate/go.mod").read_text(),
        (go.MODULES / "kubernetes/go.mod").read_text(),
    ]
    ours, kubelets = (go.parse_go_mod(text).versions[module] for text in texts)
    assert ours == kubelets


def test_each_kind_of_nic_is_measured_by_a_test_of_the_bare_machine():
    assert (attach_vm.CHECKOUT / attach_vm.INSIDE).samefile(attach_inside.__file__)
    assert all(callable(getattr(attach_inside, test)) for test in attach_vm.KINDS.values())


def test_the_figures_are_medians_of_what_the_rounds_recorded():
    """The wait for a GID is told where there was one."""
    floor = {"ms": 10.0, "cpu_ms": 4.0, "disk_ms": 0.0, "gid_ms": 6.0}
    rounds = [
        {"inside": {"ms": ms, "del_ms": 3.0, "cpu_ms": 9.0}, "floor": floor} for ms in (9, 25, 90)
    ]
    result = InnerResult(InnerOutcome.PASSED, 1, facts={"rounds": json.dumps(rounds)})
    found = attach_vm.figures("nic", attach_vm.rounds("test_nic", result, ""), "emulated")
    assert {one.key: one.value for one in found} == {
        "nic_by_floor": 2.5,
        "nic_floor_p50_ms": 10.0,
        "nic_inside_p50_ms": 25.0,
        "nic_del_p50_ms": 3.0,
        "nic_cpu_ms": 9.0,
    }
    assert "6 until the GID came" in found[1].note


FAILED = InnerResult(
    InnerOutcome.FAILED, 1, "def test_nic():\nE   OSError: no card\nx.py:1: OSError"
)


@pytest.mark.parametrize(
    ("result", "console", "why"),
    [
        (FAILED, "", "OSError: no card"),
        (InnerResult(InnerOutcome.SKIPPED, 1, "no function"), "", "no function"),
        (None, "booted\n", "it did not begin"),
        (None, "booted\r\nE   ImportError: no lab\r\noff\r\n", "ImportError: no lab"),
    ],
)
def test_a_machine_that_measured_nothing_says_why_in_one_line(result, console, why):
    """Of a file that cannot be imported there, the console alone tells."""
    with pytest.raises(Unavailable, match=rf"bare machine: {why}$"):
        attach_vm.rounds("test_nic", result, console)


def test_what_runs_in_the_bare_machine_needs_no_package_that_it_lacks():
    """It has the product and its fakes, and nothing of the lab (build/testroot.py)."""
    code = "import sys; sys.modules['kube_rdma_lab'] = None; import bench.attach_inside"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=attach_vm.CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ended.returncode, ended.stderr


def test_programs_are_measured_with_compiled_files(monkeypatch, tmp_path):
    """Whatever the environment of the bench says: else it is the compiler that is measured."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "measured.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import measured"
    imports.cpu_seconds([sys.executable, "-c", code])
    assert list((tmp_path / "__pycache__").iterdir())
