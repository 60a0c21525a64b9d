"""The root disk of the bare machine: the node's Debian and kernel, with Python and pytest.

Kernel tests run on it (bare/). It needs nothing of Kubernetes, so a fresh checkout has it in a
minute or two, not after the compiler. Sources and tests are not on it: they travel with each run.
The sources travel compiled, for the emulated machine would take half a minute for it. Two other
roots have SELinux's policy besides, which takes longer than all else; only the tests of SELinux
boot them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab.build import (
    debian,
    disk,
    initrd,
    kernel,
    product,
    qemu,
    resolution,
    root,
    user_mode,
    wheels,
)
from kube_rdma_lab.build.shell import Shell, need_root
from kube_rdma_lab.build.store import Store

# Only unpacked, and laid over the node's tree of the same suite: the C library is there already.
# apparmor is the parser of profiles; selinux-utils says which label a file should have.
TREE = debian.DebianTree(root.TREE.suite, "extract", ("python3", "apparmor", "selinux-utils"))
# The first suite whose policy knows containers and Kubernetes; its own semodule compiles it.
POLICY = debian.DebianTree("trixie", "minbase", ("selinux-policy-default",))
POLICY_FOLDER = Path("etc/selinux/default")
# The unconfined type spc_t gets the name super_t in every policy module that names it. A module of
# a higher priority stands in for that of the same name (semodule(8)).
RENAME = """
set -e
cd /tmp
for folder in /var/lib/selinux/default/active/modules/*/*; do
  name=${folder##*/}
  semodule -s default --cil --extract=$name
  grep -qw spc_t $name.cil || rm $name.cil
done
sed -i 's/\\bspc_t\\b/super_t/g' *.cil
semodule -s default --noreload --priority=400 --install=$(echo *.cil | sed 's/ / --install=/g')
"""
# What the tests want beside the product's own dependencies, and what that needs in turn.
PYTEST = ("pytest", "pytest-asyncio", "iniconfig", "packaging", "pluggy", "pygments")
RECIPE = "1"
DISK = "root.ext4"
SOURCES = "lab/src"  # where the machine has the packages of the checkout
FAKES = "kube_rdma_testing"


class Policy(Enum):
    """The SELinux policy in a test root, if any; its value is part of that root's store name."""

    NONE = ""
    DEBIAN = "selinux"
    SUPER_T = "super_t"  # the same, in which the agent's type has Bottlerocket's name


@dataclass(frozen=True, slots=True)
class BareParts:
    """The files that a bare machine boots from; nothing in them ever changes."""

    qemu: qemu.Qemu
    kernel: Path
    initrd: Path
    disk: Path
    sources: Path  # a tree that travels with each run: the package in its place, compiled


def build(store: Store, checkout: Path, policy: Policy = Policy.NONE) -> BareParts:
    """Return a bare machine's parts, built if missing; locks of `checkout` name the packages.

    They are safe from pruning while `store` is open. Raises Refused without root or without locks,
    Unavailable when a program of the build fails.
    """
    need_root()
    stamp = resolution.stamp(update=False)
    resolved = resolution.current_kernel(store, update=False)
    chosen = kernel.build(store, resolved, resolution.archive())
    base = root.build_base(store, stamp)
    python = _python(store, stamp, checkout / "locks")
    return BareParts(
        qemu=qemu.build(store, stamp),
        kernel=chosen.vmlinuz,
        initrd=initrd.build(store, base, chosen),
        disk=_disk(store, base, chosen, python, policy, _policy(store, stamp, policy)),
        sources=_sources(store, python),
    )


def user_mode_kernel(store: Store) -> Path:
    """Return the user-mode kernel of the machine's kernel version, built if missing.

    Raise as `user_mode.build` does.
    """
    resolved = resolution.current_kernel(store, update=False)
    return user_mode.build(store, resolved, resolution.archive())


def _python(store: Store, stamp: str, locks: Path) -> Path:
    """Return a Debian tree with Python, the product's dependencies and pytest."""
    lock = requirements(locks)

    def make(folder: Path, shell: Shell) -> None:
        tree = folder / "tree"
        debian.unpack(TREE, tree, shell)
        (folder / "lock.txt").write_text(lock)
        wheels.install_locked(folder / "lock.txt", tree / product.SITE, product.WHEELS, shell)

    inputs = {
        **TREE.inputs(),
        "stamp": stamp,
        "lock": hashlib.sha256(lock.encode()).hexdigest(),
        "platform": product.WHEELS.platform,
        "recipe": RECIPE,
    }
    return store.get("test-python", inputs, make) / "tree"


def _sources(store: Store, python: Path) -> Path:
    """Return a tree with the product and its fakes, compiled by the Python of the tree `python`."""
    files = product.source_files(*product.PACKAGES, FAKES)
    files |= product.shim_files(store, product.AMD64.machine)

    def make(folder: Path, shell: Shell) -> None:
        tree = folder / "tree"
        product.write(files, tree / SOURCES)
        product.compile_python(python, tree, SOURCES, shell)

    inputs = {"sources": product.digest(files), "python": python.parent.name, "recipe": RECIPE}
    return store.get("test-sources", inputs, make) / "tree"


def _policy(store: Store, stamp: str, policy: Policy) -> Path | None:
    """Return a tree with only the compiled SELinux policy and its file labels, if any."""
    if policy is Policy.NONE:
        return None
    script = RENAME if policy is Policy.SUPER_T else ""

    def make(folder: Path, shell: Shell) -> None:
        whole = folder / "whole"
        debian.unpack(POLICY, whole, shell)
        if script:
            shell.run(["chroot", whole, "sh", "-c", script])
        for part in ("policy", "contexts"):
            shutil.copytree(whole / POLICY_FOLDER / part, folder / "tree" / POLICY_FOLDER / part)
        shutil.rmtree(whole)

    changed = {"script": script} if script else {}
    inputs = {**POLICY.inputs(), "stamp": stamp, "recipe": RECIPE, **changed}
    return store.get("test-policy", inputs, make) / "tree"


def _disk(
    store: Store,
    base: Path,
    chosen: kernel.Kernel,
    python: Path,
    policy: Policy,
    tree: Path | None,
) -> Path:
    """Build the disk image with Python's tree and, if it is given, the SELinux policy's tree."""

    def make(folder: Path, shell: Shell) -> None:
        stage = folder / "stage"
        shell.run(["cp", "-al", base, stage])  # links: nothing below changes an existing file
        add_missing(python, stage)
        if tree:
            shutil.copytree(tree, stage, dirs_exist_ok=True)
        for where in (f"usr/lib/python{product.PYTHON}", product.SITE):
            product.compile_python(stage, stage, where, shell)
        modules = stage / "usr/lib/modules" / chosen.release
        shutil.copytree(chosen.modules, modules, symlinks=True)
        disk.make_ext4(stage, folder / DISK, shell)
        shutil.rmtree(stage)

    inputs = {
        "base": base.parent.name,
        "kernel": chosen.folder.name,
        "python": python.parent.name,
        "recipe": f"{RECIPE} {disk.FEATURES}",
    }
    if tree:
        inputs = {**inputs, "policy": tree.parent.name}
        return store.get(f"test-root-{policy.value}", inputs, make) / DISK
    return store.get("test-root", inputs, make) / DISK


def add_missing(tree: Path, stage: Path) -> None:
    """Link files that `stage` lacks from `tree`, which is of the same suite.

    A tree that is only unpacked still has /lib and /sbin as folders; in a root they are links.
    """
    tops = (tree / name for name in ("usr", "lib", "sbin"))
    for path in (path for top in tops for path in sorted(top.rglob("*"))):
        target = stage / path.relative_to(tree)
        if path.is_dir() and not path.is_symlink():
            target.mkdir(exist_ok=True)
        elif not os.path.lexists(target):
            os.link(path, target, follow_symlinks=False)


def requirements(locks: Path) -> str:
    """Return the pip lock of the test root: dev.txt's versions of runtime.txt's names and PYTEST.

    Raises Refused when `locks` is not the folder of a checkout, or a name is not locked there.
    """
    try:
        runtime, everything = ((locks / name).read_text() for name in ("runtime.txt", "dev.txt"))
    except FileNotFoundError as error:
        raise Refused(
            f"there is no {error.filename}, which names the packages of the kernel tests",
            remedy="Run them in a checkout of kube-rdma",
        ) from error
    return select(everything, {*_entries(runtime), *PYTEST})


def select(lock: str, names: Collection[str]) -> str:
    """Return a lock file's entries for `names`, with hashes; raise Refused if one is missing."""
    entries = _entries(lock)
    if missing := sorted(set(names) - entries.keys()):
        raise Refused(
            f"{', '.join(missing)} is not locked", remedy="Run tools/lock", where="locks/dev.txt"
        )
    return "".join(text for name, text in entries.items() if name in names)


def _entries(lock: str) -> dict[str, str]:
    """Return by package the entries of a lock file, each of which begins at the start of a line."""
    parts = re.split(r"(?m)^(?=[A-Za-z0-9])", lock)
    return {part.split("==", 1)[0].lower(): part for part in parts if "==" in part}
