"""The releases of Kubernetes and containerd that a lab can run, and all that differs between them.

A topology names a release; build/go.py compiles its modules, node_files.py and native/node.py ask
here how its kubelet and its runtime are configured.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from kube_rdma_lab.paths import PACKAGE


class Release(StrEnum):
    """The lab's releases: sets of component versions that go.mod files of modules/ pin."""

    NEWEST = "newest"
    OLDER = "older"  # Kubernetes 1.30 and containerd 1.7, for what fleets still run
    FIRST_CLAIMS = "1.34"  # the first with claims on, and with most of their newer gates off
    NEXT = "1.37"  # newer than NEWEST, which most labs run

    @property
    def differences(self) -> Differences:
        """Return how a lab of this release differs from others."""
        return DIFFERENCES[self]

    def shelf(self, name: str) -> str:
        """Return an artifact's name in the store with the release added, unless that is NEWEST."""
        return name if self is Release.NEWEST else f"{name}-{self}"


@dataclass(frozen=True, slots=True)
class Differences:
    """The parts of a lab that depend on its release.

    `modules` are the folders of modules/ that replace those named after a component. `runtime` is
    containerd's configuration, which ends with the table that native nodes add to. `runc` begins
    the table of the OCI runtime, `config_version` is the version of this file. `not_in_kubelet` are
    fields of a KubeletConfiguration that this kubelet does not know.
    """

    runtime: Path
    runc: str
    config_version: int
    modules: dict[str, str] = field(default_factory=dict)
    not_in_kubelet: frozenset[str] = frozenset()


_NEWEST = Differences(
    runtime=PACKAGE / "node/root/etc/containerd/config.toml",
    runc="[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n",
    config_version=3,
)
DIFFERENCES = {
    Release.NEWEST: _NEWEST,
    Release.FIRST_CLAIMS: replace(_NEWEST, modules={"kubernetes": "kubernetes-1.34"}),
    Release.NEXT: replace(_NEWEST, modules={"kubernetes": "kubernetes-1.37"}),
    Release.OLDER: Differences(
        runtime=PACKAGE / "node/older/containerd.toml",
        # Without its type containerd 1.7 takes a runtime with a table for none.
        runc="[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\n"
        '  runtime_type = "io.containerd.runc.v2"\n',
        config_version=2,
        modules={"kubernetes": "kubernetes-1.30", "containerd": "containerd-1.7"},
        not_in_kubelet=frozenset({"failCgroupV1"}),  # since 1.31
    ),
}
