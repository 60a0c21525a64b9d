"""The node's root disk: Debian, the kernel's modules and the built binaries, the same for all.

Machines mount it read-only under a tmpfs overlay. The node's own scripts are not in it but in the
initramfs (initrd.py), which is made anew when one of them changes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kube_rdma_lab.build import debian, disk
from kube_rdma_lab.build.go import BINARIES, GoBinaries
from kube_rdma_lab.build.kernel import Kernel
from kube_rdma_lab.build.shell import Shell
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.release import Release

TREE = debian.DebianTree("bookworm", "minbase", (
    # verbs and cards; rdma-core brings udev along, which tests/vm/guest/test_udev.py starts
    "rdma-core", "ibverbs-utils", "ibverbs-providers", "perftest", "iproute2", "ethtool",
    "pciutils", "kmod",
    # applications: MPI's ping-pong and UCX's own, over what they find in a container by themselves
    "netpipe-openmpi", "ucx-utils",
    # Kubernetes; with its parser AppArmor confines every container, as on Ubuntu and Debian
    "runc", "apparmor", "iptables", "conntrack", "mount", "util-linux", "ca-certificates",
    # init, the way in, and tools for looking around
    "runit", "dropbear-bin", "busybox-static", "procps", "iputils-ping",
))  # fmt: skip
NODE_BINARIES = ("kubelet", "kube-proxy", *BINARIES["containerd"])
BUSYBOX = "usr/bin/busybox"
RECIPE = "1"


def build_base(store: Store, stamp: str) -> Path:
    """Build the node's Debian tree, without kernel and binaries, and return its folder."""

    def make(folder: Path, shell: Shell) -> None:
        debian.unpack(TREE, folder / "tree", shell)

    return store.get("node-base", {**TREE.inputs(), "stamp": stamp}, make) / "tree"


def build_disk(
    store: Store, base: Path, kernel: Kernel, binaries: GoBinaries, release: Release
) -> Path:
    """Build the machines' root disk for a release, an ext4 image, and return its path."""

    def make(folder: Path, shell: Shell) -> None:
        stage = folder / "stage"
        shell.run(["cp", "-al", base, stage])  # links: nothing below changes an existing file
        _add_modules(stage, kernel)
        _add_binaries(stage, binaries.folder)
        disk.make_ext4(stage, folder / "root.ext4", shell)
        shutil.rmtree(stage)

    inputs = {
        "base": base.parent.name,
        "kernel": kernel.folder.name,
        **binaries.inputs(*NODE_BINARIES, *BINARIES["cni"]),
        "recipe": f"{RECIPE} {disk.FEATURES}",
    }
    return store.get(release.shelf("root-disk"), inputs, make) / "root.ext4"


def _add_modules(stage: Path, kernel: Kernel) -> None:
    shutil.copytree(kernel.modules, stage / "usr/lib/modules" / kernel.release, symlinks=True)


def _add_binaries(stage: Path, binaries: Path) -> None:
    for name in NODE_BINARIES:
        shutil.copy(binaries / name, stage / "usr/local/bin" / name)
    shutil.copytree(binaries / "cni", stage / "opt/cni/bin")
