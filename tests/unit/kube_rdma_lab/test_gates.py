"""Feature gates and API groups of a topology: who gets which, and what is refused before a boot."""

from dataclasses import replace

import pytest

from kube_base.errors import Refused
from kube_rdma_lab import gates
from kube_rdma_lab.node_files import kubelet_configuration
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import find

# As Kubernetes 1.36 prints them: programs with gates of several components say whose each is.
SEVERAL = """\
      --feature-gates colonSeparatedMultimapStringString   Comma-separated list. Options are:
                                                           kube:AllAlpha=true|false (ALPHA)
                                                           kube:GangScheduling=true|false (ALPHA)
      --runtime-config mapStringString   Supported options are:
                                         v1=true|false for the core API group
"""
ONE = """\
      --feature-gates mapStringBool                              Options are:
                AllAlpha=true|false (ALPHA - default=false)
                PodLevelResourceManagers=true|false (ALPHA - default=false)
      --flow-control  Must be=true|false
"""


@pytest.fixture
def binaries(tmp_path):
    """Programs that print a help; the kubelet knows a gate that the others do not."""
    for name in gates.PROGRAMS:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat <<E\n{ONE if name == 'kubelet' else SEVERAL}E\n")
        program.chmod(0o755)
    return tmp_path


def wanting(**wanted):
    return replace(find("control-plane"), feature_gates=wanted)


def test_both_forms_of_help_are_read_and_other_options_are_no_gates():
    assert gates.known(SEVERAL) == {"AllAlpha", "GangScheduling"}
    assert gates.known(ONE) == {"AllAlpha", "PodLevelResourceManagers"}


def test_each_program_gets_the_gates_that_it_knows(binaries):
    topology = wanting(AllAlpha=False, GangScheduling=True, PodLevelResourceManagers=True)
    gates.check(topology, binaries)
    assert gates.options("kube-scheduler", topology, binaries) == [
        "--feature-gates=AllAlpha=false,GangScheduling=true"
    ]
    own = gates.of("kubelet", topology, binaries)
    assert own == {"AllAlpha": False, "PodLevelResourceManagers": True}
    kubelet = kubelet_configuration(find("native").nodes[0], Release.NEWEST, own)
    assert kubelet["featureGates"] == own


def test_api_groups_are_the_api_servers(binaries):
    groups = {"scheduling.k8s.io/v1alpha2": True, "api/beta": False}
    topology = replace(find("control-plane"), api_groups=groups)
    assert gates.options("kube-apiserver", topology, binaries) == [
        "--runtime-config=scheduling.k8s.io/v1alpha2=true,api/beta=false"
    ]
    assert gates.options("kube-scheduler", topology, binaries) == []


def test_without_gates_no_program_is_asked(tmp_path):
    topology = find("control-plane")
    gates.check(topology, tmp_path / "none")
    assert gates.options("kube-apiserver", topology, tmp_path / "none") == []


def test_gates_that_no_program_knows_are_refused_at_once_with_the_nearest(binaries):
    with pytest.raises(Refused) as refused:
        gates.check(wanting(GangSchedulin=True, Xyz=True, AllAlpha=True), binaries)
    assert "feature gate GangSchedulin. Did you mean GangScheduling?" in str(refused.value)
    assert "feature gate Xyz. Remove it" in str(refused.value)
    assert "AllAlpha." not in str(refused.value)
