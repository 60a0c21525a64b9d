"""All parts of the lab, in an order that suits two cores: one thread compiles, one installs.

The entry point of this folder: `build` gives the runtime everything that the nodes of a topology
start from.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kube_rdma_lab.build import (
    drivers,
    go,
    image_disk,
    images,
    initrd,
    kernel,
    oci,
    product,
    qemu,
    resolution,
    root,
    user_mode,
    wheels,
)
from kube_rdma_lab.build.shell import need_root
from kube_rdma_lab.build.store import Report, Store, default_root, silent
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import NodeKind


@dataclass(frozen=True, slots=True)
class MachineParts:
    """The files that the machines of a lab boot from.

    `initrd` takes a further archive per node at its end; `root_disk` is read-only. `image_disk` is
    a containerd data root, the backing file of each node's own disk. `user_mode` is the user-mode
    kernel, a program; None if no node runs on one.
    """

    qemu: qemu.Qemu
    kernel: Path
    kernel_release: str
    initrd: Path
    root_disk: Path
    image_disk: Path
    user_mode: Path | None = None

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> MachineParts:
        """Return the parts from fields that asdict and JSON made of a MachineParts."""
        release, tree = fields["kernel_release"], Path(fields["qemu"]["tree"])
        names = ("kernel", "initrd", "root_disk", "image_disk")
        paths = {name: Path(fields[name]) for name in names}
        user_mode = fields["user_mode"] and Path(fields["user_mode"])
        return cls(qemu=qemu.Qemu(tree), kernel_release=release, **paths, user_mode=user_mode)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the paths of the parts, which are to be kept from pruning."""
        user_mode = (self.user_mode,) if self.user_mode else ()
        common = (self.qemu.tree, self.kernel, self.initrd, self.root_disk, self.image_disk)
        return (*common, *user_mode)


@dataclass(frozen=True, slots=True)
class NativeParts:
    """The folders of native nodes: a Debian tree and a containerd data root, both read-only."""

    base: Path
    images: Path


@dataclass(frozen=True, slots=True)
class Parts:
    """The files that a lab boots from.

    `bin` holds the binaries of the control plane and the nodes, with the CNI plugins in `cni/`. A
    lab without nodes has nothing else, one without machines no `machine`. `release` is what nodes
    and control plane are configured for.
    """

    bin: Path
    native: NativeParts | None = None
    machine: MachineParts | None = None
    release: Release = Release.NEWEST

    def to_json(self) -> str:
        """Return the parts as text, for the supervisor's command line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Parts:
        """Parse the text that `to_json` made of the parts."""
        fields = json.loads(text)
        native, machine = fields["native"], fields["machine"]
        return cls(
            Path(fields["bin"]),
            native and NativeParts(Path(native["base"]), Path(native["images"])),
            machine and MachineParts.from_fields(machine),
            Release(fields["release"]),
        )

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the paths of all parts, which are to be kept from pruning."""
        native = (self.native.base, self.native.images) if self.native else ()
        return (self.bin, *native, *(self.machine.folders if self.machine else ()))

    @contextlib.contextmanager
    def held(self) -> Iterator[Parts]:
        """Protect all parts from pruning while the context is open, as a running lab does."""
        store = open_store()
        with contextlib.ExitStack() as stack:
            for path in self.folders:
                if path.is_relative_to(store.root):
                    stack.enter_context(store.hold(path))
            yield self


def open_store(report: Report = silent) -> Store:
    """Open the artifact store of this machine's user."""
    return Store(default_root(), report)


@dataclass(frozen=True, slots=True)
class Demand:
    """The parts that a lab needs: by kinds of nodes (none: only a control plane) and release.

    `drivers` adds the images of build/drivers.py, for machines without RDMA at boot.
    """

    kinds: Collection[NodeKind] = (NodeKind.MACHINE, NodeKind.NATIVE)
    release: Release = Release.NEWEST
    drivers: bool = False


def build(
    demand: Demand | None = None,
    report: Report = silent,
    *,
    bin_dir: Path | None = None,
    update: bool = False,
    archives: Sequence[Path] = (),
) -> Parts:
    """Build the missing parts of a demand, remove old versions of parts, and return the parts.

    Without a demand they are for machines and native nodes. `bin_dir` gives ready-made binaries
    instead of building them; `update` asks Debian for newer packages; `archives` are image files
    that the nodes have besides. Raises Refused for what the user must change and Unavailable when a
    program of the build fails. An interruption ends all programs of the build.
    """
    need_root()
    demand = demand or Demand()
    kinds, release = demand.kinds, demand.release
    if kinds:
        wheels.find_uv()  # asked now, not after minutes of other work
    brought = tuple(oci.read_image(path) for path in archives)
    ready_made = None if bin_dir is None else go.ready_made(bin_dir)
    # The store closes first: it ends what the other lane still runs, or we would wait for that.
    with ThreadPoolExecutor(1, "compile") as lane, open_store(report) as store:
        compiling = lane.submit(lambda: ready_made or go.build_all(store, release))
        made = _installed(store, kinds, update=update) if kinds else None
        binaries = compiling.result()
        parts = Parts(binaries.folder, release=release)
        if made:
            if demand.drivers and made.hardware:
                brought += drivers.build(store, made.base, made.hardware.kernel)
            parts = _joined(store, made, brought, binaries, release)
        store.prune()
        return parts


@dataclass(frozen=True, slots=True)
class _Hardware:
    """The parts that only machines need: QEMU, kernel, initramfs and user-mode kernel."""

    qemu: qemu.Qemu
    kernel: kernel.Kernel
    initrd: Path
    user_mode: Path | None


@dataclass(frozen=True, slots=True)
class _Installed:
    """The parts of a lab that do not need the Go binaries."""

    base: Path
    images: tuple[oci.Written, ...]
    hardware: _Hardware | None


def _installed(store: Store, kinds: Collection[NodeKind], *, update: bool) -> _Installed:
    stamp = resolution.stamp(update=update)
    base = root.build_base(store, stamp)
    written = (
        images.build_pause(store, base),
        images.build_verbs(store, base),
        product.build(store, stamp),
    )
    hardware = None
    if set(kinds) - {NodeKind.NATIVE}:
        resolved = resolution.current_kernel(store, update=update)
        chosen = kernel.build(store, resolved, resolution.archive())
        ramdisk = initrd.build(store, base, chosen)
        program = None
        if NodeKind.USER_MODE in kinds:
            program = user_mode.build(store, resolved, resolution.archive())
        hardware = _Hardware(qemu.build(store, stamp), chosen, ramdisk, program)
    return _Installed(base, written, hardware)


def _joined(
    store: Store,
    made: _Installed,
    brought: Sequence[oci.Written],
    binaries: go.GoBinaries,
    release: Release,
) -> Parts:
    """Combine all parts into Parts once binaries exist; `brought` are further images."""
    # By another name, so that pruning keeps the last two roots with such images and two without.
    name = "image-root-brought" if brought else "image-root"
    filled = image_disk.build_root(store, (*made.images, *brought), binaries, name, release)
    native = NativeParts(made.base, filled)
    if made.hardware is None:
        return Parts(binaries.folder, native, release=release)
    chosen = made.hardware.kernel
    machine = MachineParts(
        qemu=made.hardware.qemu,
        kernel=chosen.vmlinuz,
        kernel_release=chosen.release,
        initrd=made.hardware.initrd,
        root_disk=root.build_disk(store, made.base, chosen, binaries, release),
        image_disk=image_disk.build_disk(store, filled),
        user_mode=made.hardware.user_mode,
    )
    return Parts(binaries.folder, native, machine, release)
