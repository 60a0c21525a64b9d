"""Feature gates and API groups that a topology asks for, as options of Kubernetes' programs.

Each program knows gates of its own, and ends at one that it does not know. So each is asked for its
help, which lists its alpha and beta gates: before a lab boots, and when its options are made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.build.shell import ask
from kube_rdma_lab.topology import Topology

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
# A line of the help; programs with gates of several components write kube: before theirs.
_GATE = re.compile(r"^\s*(?:kube:)?([A-Z]\w*)=true\|false", re.MULTILINE)


def known(text: str) -> frozenset[str]:
    """Return the feature gates that a program's help lists."""
    return frozenset(_GATE.findall(text))


def of(program: str, topology: Topology, binaries: Path) -> dict[str, bool]:
    """Return a topology's feature gates as far as a program knows them."""
    if not topology.feature_gates:
        return {}
    listed = known(ask([binaries / program, "--help"]))
    return {name: on for name, on in topology.feature_gates.items() if name in listed}


def options(program: str, topology: Topology, binaries: Path) -> list[str]:
    """Return a control plane program's options for a topology's gates and API groups."""
    gates = of(program, topology, binaries)
    groups = topology.api_groups if program == "kube-apiserver" else {}
    given = {"feature-gates": gates, "runtime-config": groups}
    return [f"--{option}={_pairs(values)}" for option, values in given.items() if values]


def _pairs(values: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(on).lower()}" for name, on in values.items())


def check(topology: Topology, binaries: Path) -> None:
    """Raise Refused for each feature gate that none of the programs knows."""
    if not topology.feature_gates:
        return
    listed = known("\n".join(ask([binaries / program, "--help"]) for program in PROGRAMS))
    if unknown := [_refusal(name, listed) for name in topology.feature_gates if name not in listed]:
        raise Refused.all(unknown)


def _refusal(name: str, listed: frozenset[str]) -> Refused:
    near = get_close_matches(name, listed, n=1)
    return Refused(
        f"this release of Kubernetes has no alpha or beta feature gate {name}",
        remedy=f"Did you mean {near[0]}?" if near else "Remove it, or choose another release",
        where="feature_gates",
    )
